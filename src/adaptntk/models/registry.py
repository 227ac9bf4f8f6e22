"""The families of networks by name, and one door for all model files."""

from importlib.metadata import entry_points
from pathlib import Path

import torch

from adaptntk.errors import InputError, ModelError
from adaptntk.models.family import Family
from adaptntk.models.mace.family import MACEFamily
from adaptntk.models.protocol import Potential, choose_device

DTYPES = {"float32": torch.float32, "float64": torch.float64}
FAMILIES: dict[str, Family] = {}


def register_family(family: Family) -> None:
    """Make a family known under its name; one of the same name is replaced."""
    FAMILIES[family.name] = family


register_family(MACEFamily())
DEFAULT_FAMILY = MACEFamily.name


def find_family(name: str) -> Family:
    """The family of that name."""
    if name not in FAMILIES:
        _register_plugins()
    if name not in FAMILIES:
        raise InputError(f"unknown model family {name!r}: choose one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


def choose_dtype(name: str) -> torch.dtype:
    """The precision of that name."""
    if name not in DTYPES:
        raise InputError(f"unknown dtype {name!r}: choose float32 or float64")
    return DTYPES[name]


def load_potential(
    name: str | Path, device: str = "auto", dtype: str | None = None, head: str | None = None
) -> Potential:
    """Load a trained potential. Model files are often pickles, and loading one runs code: load only what you trust.

    Args:
        name: a file, whose family is recognised, or ``family:file``.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        dtype: ``float32`` or ``float64``; as stored when not given.
        head: which head of a model that has several.
    """
    family, path = _family_and_path(str(name))
    return family.load(path, choose_device(device), None if dtype is None else choose_dtype(dtype), head)


def _family_and_path(name: str) -> tuple[Family, Path]:
    path = Path(name)
    prefix, colon, rest = name.partition(":")
    if colon and prefix.isidentifier() and not path.exists():
        return find_family(prefix), Path(rest)
    for attempt in (lambda: None, _register_plugins):
        attempt()
        # The latest first: a family that is registered by somebody may be choosier than ours.
        for family in reversed(FAMILIES.values()):
            if family.recognises(path):
                return family, path
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    known = "; ".join(f"{family.name}: {family.files}" for family in FAMILIES.values())
    raise ModelError(f"{path}: no family of models recognises this file ({known}); name it as in {DEFAULT_FAMILY}:FILE")


def _register_plugins() -> None:
    """Installed packages offer families as entry points: the command line finds them there."""
    for found in entry_points(group="adaptntk.families"):
        if found.name not in FAMILIES:
            register_family(found.load()())
