"""The families of networks by name, and one door for all model files."""

import hashlib
from importlib.metadata import entry_points
from pathlib import Path

import torch

from adaptntk.errors import InputError, MismatchError, ModelError
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
    name: str | Path,
    device: str = "auto",
    dtype: str | None = None,
    head: str | None = None,
    trust: bool = False,
    sha256: str | None = None,
) -> Potential:
    """Load a trained potential. Nothing of the file is run, unless you trust it.

    Args:
        name: a file, whose family is recognised, or ``family:file``.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        dtype: ``float32`` or ``float64``; as stored when not given.
        head: which head of a model that has several.
        trust: take a file with classes or functions that are not known here. Whatever it names is run.
        sha256: of the file, when it is known; another file is refused before anything of it is read.
    """
    family, path = _family_and_path(str(name))
    if sha256 is not None and (found := file_hash(name)) != sha256:
        raise MismatchError(f"{path}: another model than the one that is asked for: SHA-256 {sha256}, not {found}")
    load = family.load_trusted if trust else family.load
    potential = load(path, choose_device(device), None if dtype is None else choose_dtype(dtype), head)
    potential.family = family.name
    return potential


def file_hash(name: str | Path) -> str:
    """SHA-256 of a model file."""
    _, path = _family_and_path(str(name))
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None


def _family_and_path(name: str) -> tuple[Family, Path]:
    path = Path(name)
    prefix, colon, rest = name.partition(":")
    if colon and prefix.isidentifier() and not path.exists():
        return find_family(prefix), _ordinary(Path(rest))
    _ordinary(path)
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


def _ordinary(path: Path) -> Path:
    """Refuse a pipe, which would keep us waiting for ever, and a device."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ModelError(f"{path}: is no ordinary file; give the file of a model")
    return path


def _register_plugins() -> None:
    """Installed packages offer families as entry points: the command line finds them there."""
    for found in entry_points(group="adaptntk.families"):
        if found.name not in FAMILIES:
            register_family(found.load()())
