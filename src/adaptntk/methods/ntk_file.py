"""The ``.ntk`` file: one safetensors file, tensors plus a JSON header. Never a pickle."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from adaptntk.core.calibration import (
    REPORTED_COVERAGES,
    Calibration,
    RidgeChoice,
    VarianceCalibration,
    conformal_quantile,
)
from adaptntk.core.posterior import fit_posterior
from adaptntk.core.sketches import make_sketch, sketch_spec
from adaptntk.core.theory import SketchAdvice
from adaptntk.errors import InputError, MismatchError
from adaptntk.files import write_atomically
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.methods.ntk import NTKUncertainty
from adaptntk.models.load import load_potential
from adaptntk.models.protocol import Potential, parameter_count, parameters_hash
from adaptntk.version import __version__

# 2: other normal numbers in the Gaussian sketch.
FORMAT = 2


def save_uncertainty(uncertainty: NTKUncertainty, path: str | Path) -> None:
    """Write a ``.ntk`` file, atomically."""
    tensors = {"train_features": uncertainty.features.cpu().contiguous()}
    if uncertainty.calibration is not None:
        tensors["calibration_ratios"] = torch.from_numpy(uncertainty.calibration.ratios)
        tensors["calibration_variances"] = torch.from_numpy(uncertainty.calibration.variances)
    header = json.dumps(_header(uncertainty, Path(path)), indent=1, allow_nan=False)
    write_atomically(path, lambda temporary: save_file(tensors, temporary, {"adaptntk": header}))


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
    header, tensors = _read(path)
    if potential is None:
        location = Path(model) if model is not None else _find_model(path, header)
        potential = load_potential(location, device=device, dtype=header["dtype"], head=header["head"])
    _check_same_model(path, header, potential)
    spec = header["sketch"]
    features = tensors["train_features"].to(potential.device)
    ridge = RidgeChoice(**header["ridge"])
    return NTKUncertainty(
        potential=potential,
        sketch=make_sketch(spec["kind"], spec["dim"], spec["seed"], memory_budget // 2),
        normalise=header["normalise"],
        features=features,
        ridge=ridge,
        posterior=fit_posterior(features, ridge.lam),
        train_hashes=tuple(header["train_hashes"]),
        calibration_hashes=tuple(header["calibration_hashes"]),
        calibration=_calibration(header, tensors),
        sketch_advice=None if header["sketch_check"] is None else SketchAdvice(**header["sketch_check"]),
        memory_budget=memory_budget,
    )


def read_header(path: str | Path) -> dict[str, Any]:
    """The JSON header of a ``.ntk`` file: what it is, without the model."""
    return _read(Path(path))[0]


def _header(uncertainty: NTKUncertainty, path: Path) -> dict[str, Any]:
    potential = uncertainty.potential
    calibration = uncertainty.calibration
    return {
        "format": FORMAT,
        "written_by": f"adaptntk {__version__}",
        "model": _relative_to(potential.source, path.parent),
        "model_sha256": potential.fingerprint,
        "parameters_sha256": parameters_hash(potential),
        "parameter_count": parameter_count(potential),
        "dtype": str(potential.dtype).removeprefix("torch."),
        "head": getattr(potential, "head", None),
        "sketch": sketch_spec(uncertainty.sketch, parameter_count(potential)),
        "normalise": uncertainty.normalise,
        "ridge": vars(uncertainty.ridge),
        "calibration": None
        if calibration is None
        else {
            "forces": vars(calibration.forces),
            "energy": vars(calibration.energy),
            "structures": len(calibration.ratios),
            "units": "sigma^2 = a U + b^2; forces in eV/Å, energy in eV, normalised as the features are",
            "thresholds": {
                str(coverage): {
                    "error_over_sigma": _json_number(conformal_quantile(calibration.ratios, coverage)),
                    "ntk_variance": _json_number(calibration.variance_threshold(coverage)),
                }
                for coverage in REPORTED_COVERAGES
            },
        },
        "sketch_check": None if uncertainty.sketch_advice is None else vars(uncertainty.sketch_advice),
        "train_hashes": list(uncertainty.train_hashes),
        "calibration_hashes": list(uncertainty.calibration_hashes),
    }


def _json_number(value: float) -> float | None:
    """JSON has no infinity: a coverage out of reach of a small calibration set becomes null."""
    return value if np.isfinite(value) else None


def _relative_to(source: str | None, folder: Path) -> str | None:
    return None if source is None else os.path.relpath(Path(source).resolve(), folder.resolve())


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["adaptntk"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, json.JSONDecodeError, OSError):
        raise InputError(f"{path}: not a .ntk file, or truncated; make one with adaptntk fit") from None
    if header.get("format") != FORMAT:
        raise InputError(
            f"{path}: written in format {header.get('format')}, this version reads {FORMAT}; fit again or upgrade"
        )
    return header, tensors


def _find_model(path: Path, header: dict[str, Any]) -> Path:
    if header["model"] is None:
        raise InputError(f"{path}: was fitted for a model without a file; pass the potential")
    location = path.parent / header["model"]
    if not location.is_file():
        raise InputError(f"{path}: its model is not at {location} any more; say where with --model")
    return location


def _check_same_model(path: Path, header: dict[str, Any], potential: Potential) -> None:
    for what, expected, found in (
        ("model", header["model_sha256"], potential.fingerprint),
        ("parameter list", header["parameters_sha256"], parameters_hash(potential)),
    ):
        if expected != found:
            raise MismatchError(
                f"{path}: was fitted for another model: {what} SHA-256 {expected}, but this one has {found}; "
                "use the right model or fit again"
            )
    if header["head"] != getattr(potential, "head", None):
        raise MismatchError(
            f"{path}: was fitted for head {header['head']!r} of the model, not {getattr(potential, 'head', None)!r}"
        )


def _calibration(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Calibration | None:
    stored = header["calibration"]
    if stored is None:
        return None
    return Calibration(
        VarianceCalibration(**stored["forces"]),
        VarianceCalibration(**stored["energy"]),
        tensors["calibration_ratios"].numpy(),
        tensors["calibration_variances"].numpy(),
    )
