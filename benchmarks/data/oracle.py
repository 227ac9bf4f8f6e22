"""A data set that plays the labeler: labels are hidden until they are bought."""

from collections.abc import Sequence

from ase import Atoms

from adaptntk.data.structures import ENERGY, bare
from adaptntk.errors import InputError


class Oracle:
    """Hands out the labels of pool structures, each once, and remembers which.

    ``pool`` holds the structures without their labels: it is all that a method gets to see.
    """

    def __init__(self, labelled: Sequence[Atoms]) -> None:
        self._labelled = list(labelled)
        self.pool = [bare(atoms) for atoms in labelled]
        for atoms, known in zip(self.pool, labelled, strict=True):
            atoms.info = {key: value for key, value in known.info.items() if key != ENERGY}
        self.bought: list[int] = []

    def buy(self, indices: Sequence[int]) -> list[Atoms]:
        """The structures of these indices with their labels."""
        for index in indices:
            if index in self.bought:
                raise InputError(f"the label of pool structure {index} was bought before")
            self.bought.append(index)
        return [self._labelled[index] for index in indices]
