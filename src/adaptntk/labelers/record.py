"""What is on disk of a label: where its file is, where the structure came from, and the story of one that failed."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self

from ase import Atoms
from ase.io.extxyz import key_val_str_to_dict

from adaptntk.data.structures import ENERGY, read_structures, structure_hash
from adaptntk.errors import InputError
from adaptntk.files import as_record, damaged, read_record, write_json

Role = Literal["train", "valid", "holdout"]
GIVEN = "given"  # who chose labels that the user had already


class LabelFiles:
    """The files of labels in a run directory, by the hash of the structure."""

    def __init__(self, run: Path) -> None:
        self.labels = run / "labels"
        self.quarantine = run / "quarantine"
        self.locks = self.labels / ".locks"  # held while a label is computed

    def label(self, identity: str) -> Path:
        return self.labels / f"{identity}.xyz"

    def failure(self, identity: str) -> Path:
        """The record of what could not be labelled; the structure is beside it."""
        return self.quarantine / f"{identity}.json"

    # A name with a leading dot is a file that was not completed.
    def all_labels(self) -> list[Path]:
        return sorted(self.labels.glob("[!.]*.xyz"))

    def all_failures(self) -> list[Path]:
        return sorted(self.quarantine.glob("[!.]*.json"))

    def settled(self) -> set[str]:
        """Hashes of all structures that were labelled or could not be."""
        return {path.stem for path in [*self.all_labels(), *self.all_failures()]}


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Who asked for a label, and why: what a structure carries in ``info`` from its choice on.

    Args:
        number: its place in the order of the round and role; negative for those given.
        score, information: U when it was picked, and log(1 + U/lam); None for what was drawn at random.
    """

    round: int
    role: Role
    chosen_by: str
    number: int
    score: float | None = None
    information: float | None = None

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

    @classmethod
    def of(cls, info: Mapping[str, Any], path: Path) -> Self:
        """From the entries of a structure that was read from its file."""
        known = {field.name: info[field.name] for field in fields(cls) if field.name in info}
        if info.get("chosen_by") == GIVEN:
            # Entries of the user's own file may have the same names and another meaning.
            known = {key: value for key, value in known.items() if key in _OF_A_GIVEN_LABEL}
        return as_record(cls, known | {"hash": path.stem, "energy": info.get(ENERGY)}, path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """From the comment line alone: a campaign may have thousands of labels, and few need their structures."""
        try:
            with path.open() as file:
                file.readline()
                comment = file.readline()
            info = read_info(comment)
        except (OSError, ValueError) as error:
            raise damaged(path, error) from None
        return cls.of(info, path)


_OF_A_GIVEN_LABEL = {field.name for field in fields(Origin)} - {"score", "information"}


@dataclass(frozen=True)
class Attempt:
    """How a failed attempt ended."""

    error: str
    seconds: float = 0.0


@dataclass(frozen=True)
class FailureRecord:
    """A structure that could not be labelled, with the story of each attempt."""

    hash: str
    attempts: tuple[Attempt, ...]
    round: int | None = None
    role: Role | None = None
    chosen_by: str | None = None

    @property
    def seconds(self) -> float:
        """All attempts."""
        return sum(attempt.seconds for attempt in self.attempts)

    @classmethod
    def of(cls, atoms: Atoms, attempts: Sequence[Attempt]) -> Self:
        """The story of a structure that carries its origin, if it has one."""
        origin = {key: atoms.info.get(key) for key in ("round", "role", "chosen_by")}
        return cls(structure_hash(atoms), tuple(attempts), **origin)

    @classmethod
    def read(cls, path: Path) -> Self:
        return read_record(path, cls)

    def write(self, path: Path) -> None:
        write_json(path, {key: value for key, value in asdict(self).items() if value is not None})


def read_labelled(path: Path) -> Atoms:
    """A labelled structure that is what its name says."""
    (atoms,) = read_structures(path, labelled=True, own=True)
    if structure_hash(atoms) != path.stem:
        raise InputError(f"{path}: was changed, it no longer holds the structure of that name; put the old file back")
    return atoms


def read_info(comment: str) -> dict[str, Any]:
    """What the comment line of an extxyz frame says; a hash stays a string even where it looks like a number."""
    info: dict[str, Any] = key_val_str_to_dict(comment)
    info.pop("Properties", None)
    found = re.search(r'(?:^|\s)hash="?([0-9A-Za-z]+)', comment)
    if found:
        info["hash"] = found.group(1)
    return info
