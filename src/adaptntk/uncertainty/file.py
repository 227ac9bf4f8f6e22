"""The file of a fitted uncertainty: one safetensors file, tensors plus a JSON header. Never a pickle.

Of the networks it holds where they are, relative to the file, and their SHA-256.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from adaptntk.core.calibration import REPORTED_COVERAGES, Calibration, VarianceCalibration, conformal_quantile
from adaptntk.errors import InputError, MismatchError
from adaptntk.files import check_readable, parse_json, write_atomically
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.models.protocol import Potential, parameter_count, parameters_hash
from adaptntk.models.registry import file_hash, load_potential
from adaptntk.training.limits import Learnt
from adaptntk.uncertainty.file_header import (
    CALIBRATION,
    NO_CHECKSUM,
    STATE,
    check_contents,
    damaged,
    verify_checksum,
    write_checksum,
)
from adaptntk.uncertainty.file_upgrades import FORMAT, upgrade
from adaptntk.uncertainty.fitted import Fitted
from adaptntk.uncertainty.method import MethodState
from adaptntk.uncertainty.registry import find_method
from adaptntk.version import __version__

_ARRAYS = ("ratios", "variances", "energy_ratios", "atom_ratios", "worst_ratios", "force_scores")


def save_fitted(fitted: Fitted, path: str | Path) -> None:
    """Write one file, atomically; what could not be read again is not written."""
    path, state = Path(path), fitted.method.state()
    tensors = {STATE + name: tensor for name, tensor in state.tensors.items()}
    if fitted.calibration is not None:
        arrays = {name: torch.from_numpy(getattr(fitted.calibration, name)) for name in _ARRAYS}
        tensors |= {CALIBRATION + name: array for name, array in arrays.items() if len(array)}
    contents = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = _header(fitted, state, path)
    check_contents(path, header, contents)
    text = json.dumps(header, indent=1, allow_nan=False)

    def write(temporary: Path) -> None:
        save_file(contents, temporary, {"adaptntk": text})
        write_checksum(temporary)

    write_atomically(path, write)


def load_fitted(
    path: str | Path,
    model: str | Path | None = None,
    device: str = "auto",
    memory_budget: int = DEFAULT_BUDGET,
    potential: Potential | None = None,
    trust: bool = False,
) -> Fitted:
    """Read a file together with the networks it was fitted for; files of earlier formats as well.

    Args:
        model: where the model is now; when not given, where it was when the file was written.
        device: where to put networks that are loaded here.
        potential: the model, already loaded.
        trust: run code that ``model`` brings; only of a model that you name, not of one that the file names.

    Raises:
        MismatchError: if a network is another one, with both hashes in the message; nothing of it was read then.
    """
    path = Path(path)
    if trust and model is None:
        raise InputError(f"{path}: --trust-model needs --model FILE: name the model that you trust yourself")
    _, about, tensors = _read(path)
    networks = _networks(path, about, None if model is None else str(model), device, potential, trust)
    held = {name.removeprefix(STATE): t for name, t in tensors.items() if name.startswith(STATE)}
    state = MethodState(networks, held, about["settings"], memory_budget)
    try:
        method = find_method(about["method"]).restore(state)
    except InputError as error:
        raise damaged(path, error) from None
    calibration = _read_calibration(about["calibration"], tensors)
    learnt = None if about.get("learnt") is None else Learnt(**about["learnt"])
    return Fitted(method, calibration, tuple(about["train_hashes"]), tuple(about["calibration_hashes"]), learnt)


def read_header(path: str | Path) -> dict[str, Any]:
    """What a file says of itself, as it was written, without the model; the file is checked as it is when loaded."""
    return _read(Path(path))[0]


def check_networks(path: str | Path) -> None:
    """Refuse a damaged file, and networks beside it that are not those it was fitted for; none of them is loaded."""
    path = Path(path)
    for number, network in enumerate(_read(path)[1]["networks"]):
        found = file_hash(_find_model(path, network, number == 0))
        if found != network["sha256"]:
            why = f"SHA-256 {found}, and {network['sha256']} when {path.name} was written"
            raise damaged(path.parent / network["path"], why)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, torch.Tensor]]:
    """The header as it was written; header and tensors of the present format, checked."""
    check_readable(path, ".ntk file")
    try:
        # First of all: no other code sees bytes that are not those that were written.
        checksum = verify_checksum(path)
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {})["adaptntk"]
            # Copies begin where torch puts them: products of matrices round otherwise where they begin elsewhere.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except (SafetensorError, KeyError):
        raise InputError(f"{path}: not a .ntk file, or truncated; make one with adaptntk fit") from None
    try:
        header = parse_json(text)
        if not isinstance(header, dict):
            raise ValueError("its header is not a record")
    except ValueError as error:
        raise damaged(path, error) from None
    about, contents = upgrade(path, header, tensors)
    if about.get("checksum") != checksum or (checksum is None and header["format"] == FORMAT):
        raise damaged(path, "its checksum is missing or stands in the wrong place")
    check_contents(path, about, contents)
    return header, about, contents


def _header(fitted: Fitted, state: MethodState, path: Path) -> dict[str, Any]:
    model, folder, networks = state.networks[0], path.parent.resolve(), []
    for network in state.networks:
        place = None if network.source is None else os.path.relpath(Path(network.source).resolve(), folder)
        networks.append({"path": place, "sha256": network.fingerprint, "family": network.family})
    return {
        "format": FORMAT,
        "written_by": f"adaptntk {__version__}",
        "method": fitted.name,
        "networks": networks,
        "parameters_sha256": parameters_hash(model),
        "parameter_count": parameter_count(model),
        "dtype": str(model.dtype).removeprefix("torch."),
        "head": model.head,
        "settings": state.settings,
        "calibration": _calibration_header(fitted.calibration, fitted.variance_key),
        "train_hashes": list(fitted.train_hashes),
        "calibration_hashes": list(fitted.calibration_hashes),
        **({} if fitted.learnt is None else {"learnt": asdict(fitted.learnt)}),
        "checksum": NO_CHECKSUM,
    }


def _networks(
    path: Path, about: dict[str, Any], model: str | None, device: str, potential: Potential | None, trust: bool
) -> tuple[Potential, ...]:
    found = []
    for number, network in enumerate(about["networks"]):
        first, expected = number == 0, network["sha256"]
        what = "model" if first else f"network {number}"
        if first and potential is not None:
            loaded = potential
        else:
            location = model if first and model is not None else _find_model(path, network, first)
            _check_hash(path, what, expected, file_hash(location))  # before anything of it is interpreted
            loaded = load_potential(location, device, about["dtype"], about["head"], trust and first)
        _check_hash(path, what, expected, loaded.fingerprint)
        found.append(loaded)
    if (expected := about["parameters_sha256"]) is not None:
        _check_hash(path, "parameter list", expected, parameters_hash(found[0]))
    if about["head"] != found[0].head:
        raise MismatchError(f"{path}: was fitted for head {about['head']!r} of the model, not {found[0].head!r}")
    return tuple(found)


def _find_model(path: Path, network: dict[str, Any], first: bool) -> str:
    """The name of a network of a file; only of the first one another can be given."""
    model, family = network["path"], network.get("family")
    if model is None:
        raise InputError(f"{path}: was fitted for a model without a file; pass the potential")
    location = path.parent / model
    if not os.path.isfile(location):  # also where the system refuses the name
        cure = "say where with --model" if first else "put it back, or fit again"
        raise InputError(f"{path}: its model is not at {location} any more; {cure}")
    return str(location) if family is None else f"{family}:{location}"


def _check_hash(path: Path, what: str, expected: str, found: str) -> None:
    """Refuse a model that is not the one the file was written for."""
    if expected != found:
        why = f"{path}: was fitted for another model: {what} SHA-256 {expected}, but this one has {found}"
        raise MismatchError(f"{why}; use the right model or fit again")


def _calibration_header(calibration: Calibration | None, score: str) -> dict[str, Any] | None:
    """The calibration in words; ``score`` is what the raw score is called."""
    if calibration is None:
        return None
    thresholds = {}
    for coverage in REPORTED_COVERAGES:
        found = conformal_quantile(calibration.ratios, coverage), calibration.variance_threshold(coverage)
        # JSON has no infinity: a coverage out of reach of a small calibration set becomes null.
        ratio, threshold = (value if np.isfinite(value) else None for value in found)
        thresholds[str(coverage)] = {"error_over_sigma": ratio, score: threshold}
    return {
        "forces": None if calibration.forces is None else vars(calibration.forces),
        "energy": None if calibration.energy is None else vars(calibration.energy),
        "energy_power": calibration.energy_power,
        "lone_atoms": calibration.lone_atoms,
        "energy_offset": calibration.energy_offset,
        "structures": len(calibration.variances),
        "force_labels": len(calibration.ratios),
        "energy_labels": len(calibration.energy_ratios),
        "atoms": None if calibration.atoms is None else vars(calibration.atoms),
        "atom_labels": len(calibration.atom_ratios),
        "atom_structures": len(calibration.worst_ratios),
        "question": calibration.question,
        "units": "sigma^2 = a score + b^2; forces in eV/Å, energy in eV over the number of atoms to energy_power",
        "thresholds": thresholds,
    }


def _read_calibration(stored: dict[str, Any] | None, tensors: dict[str, torch.Tensor]) -> Calibration | None:
    if stored is None:
        return None
    found: dict[str, Any] = {
        name: stored.get(name) and VarianceCalibration(**stored[name]) for name in ("forces", "energy", "atoms")
    }
    # Files of before have no offset of energies, and no bound on their errors.
    none = torch.zeros(0, dtype=torch.float64)
    found |= {name: tensors.get(CALIBRATION + name, none).numpy() for name in _ARRAYS}
    known = "energy_power", "lone_atoms", "energy_offset", "question"
    return Calibration(**found, **{name: stored[name] for name in known if name in stored})
