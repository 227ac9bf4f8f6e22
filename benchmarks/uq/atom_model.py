"""A small error model of atoms: can their committee's score be improved by what comes for free with it?

``log e_i = w . (log v_i, log V, log |F_i|) + c_Z``: the variance of the atom's force, that of its structure, the size
of the predicted force, and a constant for each element. Fitted on the atoms of the calibration structures, which are
twenty to sixty times as many as these, and judged on others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adaptntk.core.metrics import Array
from adaptntk.data.structures import Structures
from adaptntk.evaluation import atom_errors, atom_ranking

_SMALLEST = 1e-30


@dataclass(frozen=True)
class SeenAtoms:
    """Of each structure one number per atom: element, score, size of the predicted force, and error."""

    numbers: list[Array]
    variances: list[Array]
    sizes: list[Array]
    errors: list[Array]

    @classmethod
    def of(cls, variances: Sequence[Array], forces: Sequence[Array], structures: Structures) -> "SeenAtoms":
        """From scores and predicted forces of labelled structures."""
        numbers = [atoms.numbers.astype(float) for atoms in structures]
        sizes = [np.sqrt(np.mean(predicted**2, axis=1)) for predicted in forces]
        return cls(numbers, list(variances), sizes, atom_errors(forces, structures))

    def ranks(self, part: str) -> dict[str, float | None]:
        """Of scores and of the sizes of forces with the errors."""
        found = {"score": self.variances, "force_size": self.sizes}
        return {
            f"{part}_atoms_{key}_{which}": rank
            for key, values in found.items()
            for which, rank in atom_ranking(values, self.errors).items()
        }

    def covariates(self, elements: Array) -> Array:
        """One row for each atom of all structures; elements that are not listed have the constant 0."""
        of_structure = [np.full(len(v), v.mean()) for v in self.variances]
        columns = (np.log(np.maximum(np.concatenate(c), _SMALLEST)) for c in (self.variances, of_structure, self.sizes))
        return np.column_stack([*columns, np.concatenate(self.numbers)[:, None] == elements])


def expected_errors(known: SeenAtoms, asked: SeenAtoms) -> list[Array]:
    """Of the atoms that are asked about, by the errors of those that are known."""
    elements = np.unique(np.concatenate(known.numbers))
    target = np.log(np.maximum(np.concatenate(known.errors), _SMALLEST))
    weights = np.linalg.lstsq(known.covariates(elements), target, rcond=None)[0]
    found = np.exp(asked.covariates(elements) @ weights)
    return np.split(found, np.cumsum([len(errors) for errors in asked.errors])[:-1])
