"""The header of the file of a fitted uncertainty: a schema, and a checksum over every byte of the file."""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from adaptntk.core.question import ENERGY, QUESTIONS
from adaptntk.errors import InputError
from adaptntk.features.feature_map import NORMALISATIONS
from adaptntk.uncertainty.registry import find_method
from adaptntk.uncertainty.stored import CLOSED, Hash, NotNegative, check_tensor, one_of, validate

STATE = "state."
CALIBRATION = "calibration_"
# Stands where the checksum will, while it is computed.
NO_CHECKSUM = "0" * 64
# The header is JSON within the JSON of safetensors: its quotation marks are escaped, those within its texts twice.
_CHECKSUM = re.compile(rb'\\"checksum\\": \\"([0-9a-f]{64})\\"')
_LARGEST_HEADER = 100_000_000  # of safetensors


@dataclass(frozen=True, config=CLOSED)
class Network:
    """Where a network is, relative to the file, the SHA-256 of its file, and the family that loads it."""

    path: Annotated[str, Field(min_length=1)] | None
    sha256: Hash
    family: Annotated[str, Field(min_length=1)] | None = None


@dataclass(frozen=True, config=CLOSED)
class Line:
    """``sigma^2 = a U + b^2``."""

    a: NotNegative
    b: NotNegative


@dataclass(frozen=True, config=CLOSED)
class StoredCalibration:
    """What turns scores into eV and eV/Å; its tensors are ``calibration_*``.

    Files of before have no ``energy_offset`` and no numbers of labels: the offset is in their sigma of energies, all
    structures had forces, and nothing bounds the errors of energies.
    """

    forces: Line | None
    energy: Line | None
    energy_power: float
    structures: Annotated[int, Field(ge=2)]
    units: str
    thresholds: dict[str, dict[str, float | None]]
    lone_atoms: bool = False
    energy_offset: float = 0.0
    force_labels: Annotated[int, Field(ge=0)] = 0
    energy_labels: Annotated[int, Field(ge=0)] = 0
    atoms: Line | None = None
    atom_labels: Annotated[int, Field(ge=0)] = 0
    atom_structures: Annotated[int, Field(ge=0)] = 0
    question: one_of(QUESTIONS) = ENERGY  # type: ignore[valid-type]


@dataclass(frozen=True, config=CLOSED)
class StoredLearnt:
    """How far the training of the model came: see `adaptntk.training.limits.Learnt`."""

    train: NotNegative
    valid: NotNegative
    structures: Annotated[int, Field(gt=0)]
    gain: Annotated[float, Field(ge=0, le=1)] | None


@dataclass(frozen=True, config=CLOSED)
class Header:
    """Every entry of a file of the present format; upgraded files have no checksum."""

    format: Literal[4]
    method: str
    networks: Annotated[list[Network], Field(min_length=1)]
    parameters_sha256: Hash | None
    dtype: Literal["float32", "float64"]
    head: str | None
    settings: dict[str, Any]
    calibration: StoredCalibration | None
    train_hashes: Annotated[list[Hash], Field(min_length=1)]
    calibration_hashes: list[Hash]
    parameter_count: Annotated[int, Field(gt=0)] | None = None
    written_by: str | None = None
    learnt: StoredLearnt | None = None  # absent where it is not known, as in files of before
    checksum: Hash | None = None


def check_contents(path: Path, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Refuse what no fit can have written: types, ranges, shapes, numbers that are not finite."""
    try:
        validate(Header, header, "header")
        calibration = header["calibration"]
        if calibration is not None and calibration["energy_power"] not in NORMALISATIONS.values():
            raise ValueError(f"calibration.energy_power: {calibration['energy_power']} is none that is known")
        _check_calibration(calibration, {k: v for k, v in tensors.items() if not k.startswith(STATE)})
        state = {name.removeprefix(STATE): v for name, v in tensors.items() if name.startswith(STATE)}
        sizes = {"n": len(header["train_hashes"])}
        if header.get("parameter_count") is not None:
            sizes["P"] = header["parameter_count"]
        find_method(header["method"]).stored.check(header["settings"], state, sizes)
    except ValueError as error:
        raise damaged(path, error) from None


def _check_calibration(header: Mapping[str, Any] | None, tensors: Mapping[str, Tensor]) -> None:
    wanted, sizes = {}, {}
    if header is not None:
        wanted["variances"], sizes["m"] = "m", header["structures"]
        if header["forces"] is not None:
            wanted["ratios"], sizes["f"] = "f >= 0", header.get("force_labels", header["structures"])
        if header.get("energy_labels"):
            wanted["energy_ratios"], sizes["e"] = "e >= 0", header["energy_labels"]
        if header.get("atoms") is not None:
            wanted["atom_ratios"], sizes["a"] = "a >= 0", header.get("atom_labels", 0)
            if header.get("atom_structures"):
                wanted["worst_ratios"], sizes["w"] = "w >= 0", header["atom_structures"]
        if header.get("question", ENERGY) != ENERGY:
            wanted["force_scores"] = "m >= 0"
    wanted = {CALIBRATION + name: shape for name, shape in wanted.items()}
    if odd := wanted.keys() ^ tensors.keys():
        raise ValueError(f"tensor {min(odd)} is {'missing' if min(odd) in wanted else 'unknown'}")
    for name, shape in wanted.items():
        check_tensor(name, tensors[name], shape, sizes, {})
        if bool((tensors[name].diff() < 0).any()):
            raise ValueError(f"tensor {name} is not sorted")


def damaged(path: Path, why: object) -> InputError:
    """What to say of a file that cannot be what was written."""
    return InputError(f"{path}: was changed or damaged ({why}); restore it from a copy, or fit again")


def write_checksum(path: Path) -> None:
    """Put the SHA-256 of all bytes of a file where its header has zeros for it."""
    with path.open("rb+") as file:
        found = _find_checksum(file)
        assert found is not None, "a file that is sealed has a place for its checksum"
        place, digest = found[0], _digest(file, found[0])
        file.seek(place)
        file.write(digest.encode())


def verify_checksum(path: Path) -> str | None:
    """The checksum that a file holds, once it was compared with the bytes; None if it has none."""
    with path.open("rb") as file:
        found = _find_checksum(file)
        if found is not None and _digest(file, found[0]) != found[1]:
            raise damaged(path, "its checksum does not fit its content")
        return found and found[1]


def _find_checksum(file: BinaryIO) -> tuple[int, str] | None:
    """Where in the file the checksum begins, and what it is."""
    size = int.from_bytes(file.read(8), "little")
    head = file.read(min(size, _LARGEST_HEADER))
    found = list(_CHECKSUM.finditer(head))
    return (8 + found[0].start(1), found[0][1].decode()) if len(found) == 1 else None


def _digest(file: BinaryIO, place: int) -> str:
    """SHA-256 of the whole file, with zeros in place of the checksum."""
    file.seek(0)
    digest = hashlib.sha256(file.read(place))
    digest.update(NO_CHECKSUM.encode())
    file.seek(len(NO_CHECKSUM), os.SEEK_CUR)
    while part := file.read(2**20):
        digest.update(part)
    return digest.hexdigest()
