"""Files of earlier formats, brought to the present one by small steps.

Formats: 2 of ``.ntk`` files (one row per structure, no other methods), 1 of ``.uq`` files (the other methods), 3 of
both, and 4, which has a checksum. A format 1 of ``.ntk`` files drew other random numbers and cannot be read.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from adaptntk.core.posterior import RidgePath
from adaptntk.core.ridge import fixed_ridge
from adaptntk.errors import InputError
from adaptntk.features.feature_map import NORMALISATIONS
from adaptntk.files import shortened
from adaptntk.uncertainty.file_header import damaged

FORMAT = 4

Contents = tuple[dict[str, Any], dict[str, Tensor]]


def upgrade(path: Path, header: dict[str, Any], tensors: dict[str, Tensor]) -> Contents:
    """Header and tensors as this version writes them."""
    written = header.get("format")
    if type(written) is int and written == FORMAT:
        return header, tensors
    steps = {(3, True): _from_3, (2, False): _from_ntk_2, (1, True): _from_uq_1}
    step = steps.get((written, "method" in header)) if type(written) is int else None
    if step is None:
        known = f"this version reads up to {FORMAT}; fit again or upgrade"
        raise InputError(f"{path}: written in format {shortened(written)}, {known}")
    try:
        return step(header, tensors)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, ArithmeticError) as error:
        why = f"not what format {written} holds: {type(error).__name__} {shortened(error)}"
        raise damaged(path, why) from None


def _from_3(header: dict[str, Any], tensors: dict[str, Tensor]) -> Contents:
    """There was no checksum."""
    return header | {"format": FORMAT}, tensors


def _from_ntk_2(header: dict[str, Any], tensors: dict[str, Tensor]) -> Contents:
    """Energy gradients were the only features, and had one row per structure."""
    calibration = header["calibration"]
    if calibration is not None:
        calibration = {**calibration, "energy_power": NORMALISATIONS[header["normalise"]]}
    upgraded = {
        **{key: header[key] for key in ("dtype", "head", "parameters_sha256", "train_hashes", "calibration_hashes")},
        "format": FORMAT,
        "method": "ntk",
        "networks": [{"path": header["model"], "sha256": header["model_sha256"]}],
        "settings": _ntk_settings(header, header["sketch_check"]),
        "calibration": calibration,
    }
    kept = {name: tensor for name, tensor in tensors.items() if name != "train_features"}
    return upgraded, kept | {"state.blocks": tensors["train_features"][:, None]}


def _from_uq_1(header: dict[str, Any], tensors: dict[str, Tensor]) -> Contents:
    """Energies were always calibrated per atom; distances in features had states of their own."""
    settings, kept = dict(header["settings"]), dict(tensors)
    if header["method"] == "last_layer":
        rows = kept.pop("state.rows")
        kept["state.blocks"], settings = rows[:, None], _last_layer_settings(settings, rows)
    elif header["method"] == "error_model":
        rows = kept.pop("state.last_layer.rows")
        kept["state.last_layer.blocks"] = rows[:, None]
        kept["state.ntk.blocks"] = kept.pop("state.ntk.features")[:, None]
        settings["last_layer"] = _last_layer_settings(settings["last_layer"], rows)
        settings["ntk"] = _ntk_settings(settings["ntk"], None)
    calibration = {**header["calibration"], "energy_power": 1.0}
    changed = {"format": FORMAT, "settings": settings, "calibration": calibration, "parameters_sha256": None}
    return header | changed, kept


def _ntk_settings(stored: dict[str, Any], check: dict[str, Any] | None) -> dict[str, Any]:
    spec = {"map": "energy", "normalise": stored["normalise"], "sketch": stored["sketch"]}
    return {"features": spec, "ridge": stored["ridge"], "sketch_check": check}


def _last_layer_settings(stored: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    spec = {"map": "last_layer", "normalise": stored.get("normalise", "none")}
    return {"features": spec, "ridge": asdict(fixed_ridge(RidgePath(rows), stored["lam"])), "sketch_check": None}
