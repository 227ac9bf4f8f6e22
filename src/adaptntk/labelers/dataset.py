"""A labelled file as a labeler."""

import numpy as np
from ase import Atoms

from adaptntk.data.labels import without_isolated
from adaptntk.data.structures import ENERGY, FORCES, read_structures, structure_hash
from adaptntk.labelers.labeler import Array, LabelError


class DatasetLabeler:
    """A labelled file that plays oracle: knows the structures it holds, and no other.

    Args:
        file: the labelled structures.
        energy_key, forces_key: where the labels stand.
    """

    def __init__(self, file: str, energy_key: str = ENERGY, forces_key: str = FORCES) -> None:
        frames = without_isolated(read_structures(file, energy_key, forces_key, labelled=True))
        self._labels = {structure_hash(a): (float(a.info[ENERGY]), np.asarray(a.arrays[FORCES])) for a in frames}
        self._file = file

    def label(self, atoms: Atoms) -> tuple[float, Array]:
        try:
            return self._labels[structure_hash(atoms)]
        except KeyError:
            raise LabelError(f"{self._file} does not hold this structure") from None
