"""What the files of all fitted methods have in common: safetensors with a JSON header, and a calibration."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from adaptntk.core.calibration import REPORTED_COVERAGES, Calibration, VarianceCalibration, conformal_quantile
from adaptntk.errors import InputError, MismatchError
from adaptntk.files import write_atomically


def write_file(path: str | Path, header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Write a file, atomically."""
    text = json.dumps(header, indent=1, allow_nan=False)
    contents = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: save_file(contents, temporary, {"adaptntk": text}))


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Header and tensors of a file that adaptntk fit wrote."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["adaptntk"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, json.JSONDecodeError, OSError):
        raise InputError(f"{path}: not a .ntk file, or truncated; make one with adaptntk fit") from None
    return header, tensors


def check_format(path: Path, header: dict[str, Any], expected: int) -> None:
    """Refuse what another version wrote."""
    if header.get("format") != expected:
        raise InputError(
            f"{path}: written in format {header.get('format')}, this version reads {expected}; fit again or upgrade"
        )


def relative_to(source: str | None, folder: Path) -> str | None:
    """Where a model is, seen from the folder of the file."""
    return None if source is None else os.path.relpath(Path(source).resolve(), folder.resolve())


def find_model(path: Path, model: str | None, first: bool = True) -> Path:
    """Where a network of a file is now; only of the first one another place can be given."""
    if model is None:
        raise InputError(f"{path}: was fitted for a model without a file; pass the potential")
    location = path.parent / model
    if not location.is_file():
        cure = "say where with --model" if first else "put it back, or fit again"
        raise InputError(f"{path}: its model is not at {location} any more; {cure}")
    return location


def check_hash(path: Path, what: str, expected: str, found: str) -> None:
    """Refuse a model that is not the one the file was written for."""
    if expected != found:
        raise MismatchError(
            f"{path}: was fitted for another model: {what} SHA-256 {expected}, but this one has {found}; "
            "use the right model or fit again"
        )


def calibration_header(calibration: Calibration | None, score: str) -> dict[str, Any] | None:
    """The calibration in words; ``score`` is what the raw score is called."""
    if calibration is None:
        return None
    return {
        "forces": vars(calibration.forces),
        "energy": vars(calibration.energy),
        "structures": len(calibration.ratios),
        "units": "sigma^2 = a U + b^2; forces in eV/Å, energy in eV, normalised as the features are",
        "thresholds": {
            str(coverage): {
                "error_over_sigma": _json_number(conformal_quantile(calibration.ratios, coverage)),
                score: _json_number(calibration.variance_threshold(coverage)),
            }
            for coverage in REPORTED_COVERAGES
        },
    }


def calibration_tensors(calibration: Calibration | None) -> dict[str, torch.Tensor]:
    """The arrays of a calibration."""
    if calibration is None:
        return {}
    return {
        "calibration_ratios": torch.from_numpy(calibration.ratios),
        "calibration_variances": torch.from_numpy(calibration.variances),
    }


def read_calibration(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Calibration | None:
    """The calibration of a file."""
    stored = header["calibration"]
    if stored is None:
        return None
    return Calibration(
        VarianceCalibration(**stored["forces"]),
        VarianceCalibration(**stored["energy"]),
        tensors["calibration_ratios"].numpy(),
        tensors["calibration_variances"].numpy(),
    )


def _json_number(value: float) -> float | None:
    """JSON has no infinity: a coverage out of reach of a small calibration set becomes null."""
    return value if np.isfinite(value) else None
