"""What is on disk of a label: where its file is, where the structure came from, and the story of one that failed."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar

import numpy as np
from ase import Atoms
from ase.io.extxyz import key_val_str_to_dict

from adaptntk.data.labels import STRESS, has_stress
from adaptntk.data.structures import ENERGY, FORCES, read_structures, structure_hash, write_structures
from adaptntk.errors import require
from adaptntk.files import as_record, damaged, read_record, write_json

Role = Literal["train", "valid", "holdout"]
Kind = TypeVar("Kind")
GIVEN = "given"  # who chose labels that the user had already
# Entries of a file that are left out where there is nothing to say; others are null then.
OPTIONAL = {"round", "role", "chosen_by", "test"}


@dataclass(frozen=True)
class RecordFile(Generic[Kind]):
    """A JSON file and the type of its content."""

    path: Path
    kind: type[Kind]

    @property
    def structures(self) -> Path:
        """The file of structures beside it, where there is one."""
        return self.path.with_suffix(".xyz")

    def get(self) -> Kind:
        """What was edited or damaged is refused in one line that names the file."""
        return read_record(self.path, self.kind)

    def read(self) -> Kind | None:
        """None where it is not there yet."""
        return self.get() if self.path.exists() else None

    def remove(self) -> None:
        """With the structures beside it, which mean nothing without it."""
        self.path.unlink(missing_ok=True)
        self.structures.unlink(missing_ok=True)

    def write(self, record: Kind) -> None:
        def entries(items: list[tuple[str, Any]]) -> dict[str, Any]:
            return {key: value for key, value in items if value is not None or key not in OPTIONAL}

        write_json(self.path, asdict(record, dict_factory=entries))  # type: ignore[call-overload]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Who asked for a label, and why: what a structure carries in ``info`` from its choice on."""

    round: int
    role: Role
    chosen_by: str
    number: int  # its place in the order of the round and role; negative for those given
    score: float | None = None  # U when it was picked; None for what was drawn at random
    information: float | None = None  # log(1 + U/lam) then

    def mark(self, atoms: Atoms) -> Atoms:
        """Write it into the structure."""
        atoms.info |= {key: value for key, value in asdict(self).items() if value is not None}
        return atoms


@dataclass(frozen=True, kw_only=True)
class LabelRecord(Origin):
    """A label: where it came from, and what it cost."""

    hash: str
    energy: float
    trajectory: str | None = None
    temperature: float | None = None
    step: int | None = None
    label_seconds: float | None = None
    label_hash: str | None = None  # of what is learnt, see `label_hash`; old files do not have it

    @classmethod
    def of(cls, info: Mapping[str, Any], path: Path) -> Self:
        """From the entries of a structure that was read from its file."""
        names = {field.name for field in fields(cls)}
        if info.get("chosen_by") == GIVEN:
            # Entries of the user's own file may have the same names and another meaning.
            names = {"round", "role", "chosen_by", "number", "label_hash"}
        known = {name: info[name] for name in names if name in info}
        return as_record(cls, known | {"hash": path.stem, "energy": info.get(ENERGY)}, path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """From the comment line alone: a campaign may have thousands of labels, and few need their structures."""
        try:
            with path.open() as file:
                file.readline()
                info = read_info(file.readline())
        except (OSError, ValueError) as error:
            raise damaged(path, error) from None
        return cls.of(info, path)


def labels_bought(labels: Iterable[LabelRecord]) -> int:
    """Those that were paid for: labels that the user gave are not counted, here and everywhere."""
    return sum(label.chosen_by != GIVEN for label in labels)


@dataclass(frozen=True)
class Attempt:
    """How a failed attempt ended."""

    error: str
    seconds: float = 0.0


@dataclass(frozen=True)
class FailureRecord:
    """A structure that could not be labelled, with the story of each attempt, and its origin if it has one."""

    hash: str
    attempts: tuple[Attempt, ...]
    round: int | None = None
    role: Role | None = None
    chosen_by: str | None = None

    @property
    def seconds(self) -> float:
        """All attempts."""
        return sum(attempt.seconds for attempt in self.attempts)


class LabelFiles:
    """The files of labels in a run directory, by the hash of the structure."""

    def __init__(self, run: Path) -> None:
        self.labels = run / "labels"
        self.quarantine = run / "quarantine"
        self.locks = self.labels / ".locks"  # held while a label is computed

    def label(self, identity: str) -> Path:
        return self.labels / f"{identity}.xyz"

    def failure(self, identity: str) -> RecordFile[FailureRecord]:
        """The record of what could not be labelled, with the structure beside it."""
        return RecordFile(self.quarantine / f"{identity}.json", FailureRecord)

    # A name with a leading dot is a file that was not completed.
    def all_labels(self) -> list[Path]:
        return sorted(self.labels.glob("[!.]*.xyz"))

    def all_failures(self) -> list[Path]:
        return sorted(self.quarantine.glob("[!.]*.json"))

    def empty_quarantine(self) -> None:
        """What could not be labelled may be tried again."""
        for path in self.all_failures():
            self.failure(path.stem).remove()

    def settled(self) -> set[str]:
        """Hashes of all structures that were labelled or could not be."""
        return {path.stem for path in [*self.all_labels(), *self.all_failures()]}


def label_hash(atoms: Atoms, with_stress: bool = True) -> str:
    """SHA-256 of all that is learnt from a label: structure, energy, forces to the digits of the file, and its role.

    And of the stress, where there is one; earlier versions left that out.
    """
    origin = [atoms.info.get(key) for key in ("round", "role", "number", "chosen_by")]
    forces = [f"{value:.8f}" for value in np.ravel(atoms.arrays[FORCES])]
    stress = [f"{value:.8f}" for value in np.ravel(atoms.info[STRESS])] if with_stress and has_stress(atoms) else []
    words = [structure_hash(atoms), float(atoms.info[ENERGY]), *origin, *forces, *stress]
    return "sha256:" + hashlib.sha256(" ".join(map(str, words)).encode()).hexdigest()


def write_label(path: Path, atoms: Atoms) -> None:
    """Write a labelled structure with the hash of its content: both or neither are there."""
    atoms.info["label_hash"] = label_hash(atoms)
    write_structures(path, [atoms])


def read_label(path: Path) -> tuple[Atoms, LabelRecord]:
    """A labelled structure that is what its name and its hash say, and its record."""
    frames = read_structures(path, labelled=True, own=True)
    require(len(frames) == 1, f"{path}: holds {len(frames)} structures instead of one; put the old file back")
    atoms = frames[0]
    same = structure_hash(atoms) == path.stem
    require(same, f"{path}: was changed, it no longer holds the structure of that name; put the old file back")
    known = label_hash(atoms), label_hash(atoms, with_stress=False)
    found = atoms.info.get("label_hash", known[0])
    require(found in known, f"{path}: was changed, its labels or its role are not those it had; put the old file back")
    return atoms, LabelRecord.of(atoms.info | {"label_hash": found}, path)


def read_info(comment: str) -> dict[str, Any]:
    """What the comment line of an extxyz frame says; a hash stays a string even where it looks like a number."""
    info: dict[str, Any] = key_val_str_to_dict(comment)
    info.pop("Properties", None)
    found = re.search(r'(?:^|\s)hash="?([0-9A-Za-z]+)', comment)
    return info | ({"hash": found.group(1)} if found else {})
