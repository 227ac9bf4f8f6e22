"""The features that enter the readouts, summed over the atoms: those of LLPR (Bigi et al., 2024)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from ase import Atoms
from numpy.typing import NDArray
from torch import Tensor

from adaptntk.data.structures import Structures
from adaptntk.errors import InputError
from adaptntk.features.feature_map import NORMALISATIONS, FeatureMap, size_powers
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.models.protocol import Potential, Predictions, SinglePoint
from adaptntk.progress import Progress, silent


def mean_invariants(potential: Potential, predicted: Predictions) -> NDArray[np.float64]:
    """The scalar features of the atoms, averaged over each structure."""
    if predicted.node_features is None:
        raise InputError(f"{potential.description} has no features of atoms, which this method needs")
    return np.array([rows.mean(axis=0) for rows in predicted.node_features])


@dataclass(frozen=True)
class LastLayerFeatures(FeatureMap):
    """The gradient of the total energy over the weights of a linear readout; one row per structure."""

    normalise: str = "none"
    name: ClassVar[str] = "last_layer"

    def width(self, potential: Potential) -> int:
        atom = Atoms([min(potential.species or {1})])
        return mean_invariants(potential, potential.predict([atom])).shape[1]

    def extract(
        self,
        potential: Potential,
        structures: Structures,
        memory_budget: int = DEFAULT_BUDGET,
        progress: Progress = silent,
    ) -> Tensor:
        return self.extract_and_predict(potential, structures, progress=progress)[0]

    def extract_and_predict(
        self,
        potential: Potential,
        structures: Structures,
        batch_size: int = 16,
        memory_budget: int = DEFAULT_BUDGET,
        progress: Progress = silent,
    ) -> tuple[Tensor, Predictions]:
        predicted = potential.predict(structures, batch_size, progress)
        # Sums over atoms, or their mean.
        scale = size_powers(structures, 1 - NORMALISATIONS[self.normalise])
        rows = torch.as_tensor(mean_invariants(potential, predicted) * scale[:, None], device=potential.device)
        return rows[:, None], predicted

    def observe(self, potential: Potential, atoms: Atoms) -> tuple[SinglePoint, Tensor]:
        blocks, predicted = self.extract_and_predict(potential, [atoms])
        if atoms.pbc.all():  # predictions have no stress
            return potential.single_point(atoms), blocks[0]
        return SinglePoint(float(predicted.energies[0]), predicted.forces[0]), blocks[0]

    def spec(self, potential: Potential) -> dict[str, Any]:
        return {"map": self.name, "normalise": self.normalise}

    def summary(self, potential: Potential) -> str:
        return f"of the last layer, {self.width(potential)}"

    @classmethod
    def restore(cls, spec: dict[str, Any], memory_budget: int = DEFAULT_BUDGET) -> "LastLayerFeatures":
        return cls(spec["normalise"])
