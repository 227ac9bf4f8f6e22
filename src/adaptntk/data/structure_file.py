"""Large files, read a frame at a time: a pool of a million structures never has to fit into memory."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from adaptntk.data.extxyz import FrameFile, Frames, open_frames
from adaptntk.data.structures import ENERGY, FORCES, Checks, structure_hash

# Frames in memory take about four times the space of the file.
_SHARE_OF_BUDGET = 64


class StructureFile(Frames):
    """The frames of an extxyz file as a sequence that holds 80 bytes per frame.

    All frames are read and checked once when the file is opened, then again whenever they are asked for.
    """

    def __init__(self, frames: FrameFile, checks: Checks) -> None:
        self._frames, self._checks = frames, checks
        self.sizes = frames.sizes
        self.hashes = np.zeros(len(frames), dtype="S64")
        self.species: set[int] = set()
        for index, atoms in enumerate(self):
            self.hashes[index] = structure_hash(atoms).encode()
            self.species.update(atoms.numbers.tolist())
        checks.check_file(self.hashes, self[:20], frames.path)

    def __len__(self) -> int:
        return len(self._frames)

    def _frame(self, index: int) -> Atoms:
        return self._checks.check_frame(self._frames[index], f"{self._frames.path}, frame {index}")


def open_structures(
    path: str | Path,
    energy_key: str = ENERGY,
    forces_key: str = FORCES,
    labelled: bool = False,
    unique: bool = True,
    memory_budget: int = 0,
) -> Sequence[Atoms]:
    """The checked frames of a file: in memory, or, if it is large beside the budget, read when they are needed."""
    checks, frames = Checks(energy_key, forces_key, labelled, unique), open_frames(Path(path))
    if isinstance(frames, FrameFile) and frames.bytes * _SHARE_OF_BUDGET > memory_budget:
        return StructureFile(frames, checks)
    return checks.read(frames, Path(path))


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
