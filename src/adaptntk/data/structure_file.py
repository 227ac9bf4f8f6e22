"""Large extxyz files, read a frame at a time: a pool of a million structures never has to fit into memory."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import ase.io
import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from adaptntk.data.structures import (
    ENERGY,
    FORCES,
    check_frame,
    check_length_unit,
    check_readable,
    read_structures,
    structure_hash,
    unreadable,
)
from adaptntk.errors import InputError

# Frames in memory take about four times the space of the file.
_SHARE_OF_BUDGET = 64


class StructureFile(Sequence[Atoms]):
    """The frames of an extxyz file as a sequence that holds 80 bytes per frame.

    All frames are read and checked once when the file is opened, then again whenever they are asked for.
    """

    def __init__(
        self,
        path: str | Path,
        energy_key: str = ENERGY,
        forces_key: str = FORCES,
        labelled: bool = False,
        unique: bool = True,
    ) -> None:
        self.path = Path(path)
        self._keys = energy_key, forces_key
        self._labelled = labelled
        check_readable(self.path)
        self._offsets, self.sizes = _scan(self.path)
        if not len(self.sizes):
            raise InputError(f"{path}: no structures in the file")
        self.hashes = np.zeros(len(self.sizes), dtype="S64")
        self.species: set[int] = set()
        for index, atoms in enumerate(self):
            self.hashes[index] = structure_hash(atoms).encode()
            self.species.update(atoms.numbers.tolist())
        if unique:
            self._check_unique()
        check_length_unit(self[:20], str(path))

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, key: int) -> Atoms: ...
    @overload
    def __getitem__(self, key: slice) -> list[Atoms]: ...
    def __getitem__(self, key: int | slice) -> Atoms | list[Atoms]:
        if isinstance(key, slice):
            return [self[index] for index in range(*key.indices(len(self)))]
        index = range(len(self))[key]
        start, stop = self._offsets[index : index + 2]
        with self.path.open("rb") as file:
            file.seek(start)
            text = file.read(stop - start)
        try:
            atoms = ase.io.read(io.StringIO(text.decode()), index=0, format="extxyz")
        except Exception as error:  # ase raises whatever its parser raises
            raise unreadable(self.path, index, error) from None
        check_frame(atoms, *self._keys, self._labelled, f"{self.path}, frame {index}")
        return atoms

    def _check_unique(self) -> None:
        order = np.argsort(self.hashes, kind="stable")
        same = np.flatnonzero(self.hashes[order[1:]] == self.hashes[order[:-1]])
        if len(same):
            first, second = order[same[0]], order[same[0] + 1]
            raise InputError(f"{self.path}: frames {first} and {second} are the same structure; remove one of them")


def open_structures(
    path: str | Path,
    energy_key: str = ENERGY,
    forces_key: str = FORCES,
    labelled: bool = False,
    unique: bool = True,
    memory_budget: int = 0,
) -> Sequence[Atoms]:
    """The checked frames of a file: in memory, or, if it is large beside the budget, read when they are needed."""
    path = Path(path)
    large = path.is_file() and path.stat().st_size * _SHARE_OF_BUDGET > memory_budget
    if large and path.suffix in (".xyz", ".extxyz"):
        return StructureFile(path, energy_key, forces_key, labelled, unique)
    return read_structures(path, energy_key, forces_key, labelled, unique)


def structure_hashes(frames: Sequence[Atoms]) -> list[str]:
    """The hash of every structure."""
    if isinstance(frames, StructureFile):
        return [digest.decode() for digest in frames.hashes]
    return [structure_hash(atoms) for atoms in frames]


def structure_sizes(frames: Sequence[Atoms]) -> NDArray[np.int64]:
    """The number of atoms of every structure."""
    if isinstance(frames, StructureFile):
        return frames.sizes
    return np.array([len(atoms) for atoms in frames], dtype=np.int64)


def structure_species(frames: Sequence[Atoms]) -> set[int]:
    """The atomic numbers of all structures."""
    if isinstance(frames, StructureFile):
        return frames.species
    return {number for atoms in frames for number in atoms.numbers.tolist()}


def _scan(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each frame begins (and the last one ends), and how many atoms it has."""
    offsets: list[int] = [0]
    sizes: list[int] = []
    with path.open("rb") as file:
        while (first := file.readline()).strip():
            try:
                atoms = int(first)
            except ValueError:
                raise InputError(
                    f"{path}, frame {len(sizes)}: begins with {first.decode(errors='replace').strip()[:40]!r} instead "
                    "of the number of atoms; not an extxyz file, or damaged"
                ) from None
            for _ in range(atoms + 1):
                if not file.readline():
                    raise InputError(f"{path}, frame {len(sizes)}: incomplete, the file is truncated; copy it again")
            offsets.append(file.tell())
            sizes.append(atoms)
        if any(line.strip() for line in file):
            raise InputError(
                f"{path}: a blank line after {len(sizes)} frames hides the frames behind it; remove the line"
            )
    return np.array(offsets), np.array(sizes, dtype=np.int64)
