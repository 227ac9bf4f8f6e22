"""The predicted energy itself: a trivial score that some published ones do not beat."""

from dataclasses import dataclass

import numpy as np

from adaptntk.data.structures import Structures, structure_sizes
from adaptntk.models.protocol import Potential, Predictions
from adaptntk.uncertainty.method import Array, NoOptions, ScoresOnly
from adaptntk.uncertainty.stored import Stored
from adaptntk.uncertainty.workbench import Workbench


@dataclass(frozen=True)
class PredictedEnergy(ScoresOnly):
    """The predicted energy per atom above the lowest one of the training set; high ones are rarer, forces larger."""

    potential: Potential
    lowest: float
    name = "energy"
    stored = Stored({"lowest": float}, {})

    @classmethod
    def fit(cls, bench: Workbench, rng: np.random.Generator, options: NoOptions) -> "PredictedEnergy":
        """Find the zero of the scale."""
        potential = bench.member(0)
        energies = potential.predict(bench.train).energies
        return cls(potential, float((energies / structure_sizes(bench.train)).min()))

    def score(self, structures: Structures, predicted: Predictions) -> Array:
        return np.maximum(predicted.energies / structure_sizes(structures) - self.lowest, 0.0)
