"""The ``.ntk`` file: one safetensors file, tensors plus a JSON header. Never a pickle."""

from pathlib import Path
from typing import Any

from adaptntk.core.calibration import RidgeChoice
from adaptntk.core.posterior import fit_posterior
from adaptntk.core.sketch.quality import SketchAdvice
from adaptntk.core.sketch.registry import make_sketch, sketch_spec
from adaptntk.errors import InputError, MismatchError
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.models.protocol import Potential, parameter_count, parameters_hash
from adaptntk.models.registry import load_potential
from adaptntk.uncertainty import header
from adaptntk.uncertainty.ntk import NTKUncertainty
from adaptntk.version import __version__

# 2: other normal numbers in the Gaussian sketch.
FORMAT = 2


def save_uncertainty(uncertainty: NTKUncertainty, path: str | Path) -> None:
    """Write a ``.ntk`` file, atomically."""
    tensors = {"train_features": uncertainty.features} | header.calibration_tensors(uncertainty.calibration)
    header.write_file(path, _header(uncertainty, Path(path)), tensors)


def load_uncertainty(
    path: str | Path,
    potential: Potential | None = None,
    model: str | Path | None = None,
    device: str = "auto",
    memory_budget: int = DEFAULT_BUDGET,
) -> NTKUncertainty:
    """Read a ``.ntk`` file together with the model it was fitted for.

    Args:
        path: the file.
        potential: the model, already loaded; otherwise it is read from
        model: a path; otherwise from where it was when the file was written, relative to the file.
        device: where to put a model that is loaded here.

    Raises:
        MismatchError: if the model is another one, with both hashes in the message.
    """
    path = Path(path)
    about, tensors = header.read_file(path)
    if (method := about.get("method", "ntk")) != "ntk":
        raise InputError(f"{path}: holds the method {method!r}; read it with load_method")
    header.check_format(path, about, FORMAT)
    if potential is None:
        location = Path(model) if model is not None else header.find_model(path, about["model"])
        potential = load_potential(location, device=device, dtype=about["dtype"], head=about["head"])
    _check_same_model(path, about, potential)
    spec = about["sketch"]
    features = tensors["train_features"].to(potential.device)
    ridge = RidgeChoice(**about["ridge"])
    return NTKUncertainty(
        potential=potential,
        sketch=make_sketch(spec["kind"], spec["dim"], spec["seed"], memory_budget // 2),
        normalise=about["normalise"],
        features=features,
        ridge=ridge,
        posterior=fit_posterior(features, ridge.lam),
        train_hashes=tuple(about["train_hashes"]),
        calibration_hashes=tuple(about["calibration_hashes"]),
        calibration=header.read_calibration(about, tensors),
        sketch_advice=None if about["sketch_check"] is None else SketchAdvice(**about["sketch_check"]),
        memory_budget=memory_budget,
    )


def read_header(path: str | Path) -> dict[str, Any]:
    """The JSON header of a ``.ntk`` file: what it is, without the model."""
    return header.read_file(Path(path))[0]


def _header(uncertainty: NTKUncertainty, path: Path) -> dict[str, Any]:
    potential = uncertainty.potential
    return {
        "format": FORMAT,
        "written_by": f"adaptntk {__version__}",
        "model": header.relative_to(potential.source, path.parent),
        "model_sha256": potential.fingerprint,
        "parameters_sha256": parameters_hash(potential),
        "parameter_count": parameter_count(potential),
        "dtype": str(potential.dtype).removeprefix("torch."),
        "head": potential.head,
        "sketch": sketch_spec(uncertainty.sketch, parameter_count(potential)),
        "normalise": uncertainty.normalise,
        "ridge": vars(uncertainty.ridge),
        "calibration": header.calibration_header(uncertainty.calibration, "ntk_variance"),
        "sketch_check": None if uncertainty.sketch_advice is None else vars(uncertainty.sketch_advice),
        "train_hashes": list(uncertainty.train_hashes),
        "calibration_hashes": list(uncertainty.calibration_hashes),
    }


def _check_same_model(path: Path, about: dict[str, Any], potential: Potential) -> None:
    header.check_hash(path, "model", about["model_sha256"], potential.fingerprint)
    header.check_hash(path, "parameter list", about["parameters_sha256"], parameters_hash(potential))
    if about["head"] != potential.head:
        raise MismatchError(f"{path}: was fitted for head {about['head']!r} of the model, not {potential.head!r}")
