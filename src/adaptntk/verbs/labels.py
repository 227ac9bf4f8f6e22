"""What the labels are called in the files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ase import Atoms

from adaptntk.data.structure_file import open_structures
from adaptntk.data.structures import ENERGY, FORCES, read_structures

PathLike = str | Path


@dataclass(frozen=True)
class LabelKeys:
    """What the labels are called in the files."""

    energy: str = ENERGY
    forces: str = FORCES

    def read(self, path: PathLike, labelled: bool = True, unique: bool = True) -> list[Atoms]:
        """Read and check a file."""
        return read_structures(path, self.energy, self.forces, labelled, unique)

    def open(self, path: PathLike, memory_budget: int) -> Sequence[Atoms]:
        """Check a file of structures; a large one is read again a frame at a time, when it is needed."""
        return open_structures(path, self.energy, self.forces, memory_budget=memory_budget)


STANDARD_KEYS = LabelKeys()
