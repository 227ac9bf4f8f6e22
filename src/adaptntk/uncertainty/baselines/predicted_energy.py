"""The predicted energy itself: a trivial score that some published ones do not beat."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms

from adaptntk.data.structure_file import structure_sizes
from adaptntk.models.protocol import Potential
from adaptntk.progress import Progress, silent
from adaptntk.uncertainty.method import Assessment, NoOptions, ScoresOnly
from adaptntk.uncertainty.workbench import Workbench


@dataclass(frozen=True)
class PredictedEnergy(ScoresOnly):
    """The predicted energy per atom, from the lowest one of the training set upwards.

    Frames of high energy are rarer and their forces larger.
    """

    potential: Potential
    lowest: float
    name = "energy"

    @classmethod
    def fit(cls, bench: Workbench, rng: np.random.Generator, options: NoOptions) -> "PredictedEnergy":
        """Find the zero of the scale."""
        potential = bench.member(0)
        predicted = potential.predict(bench.train)
        return cls(potential, float((predicted.energies / structure_sizes(bench.train)).min()))

    def assess(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Assessment:
        predicted = self.potential.predict(structures, batch_size, progress)
        score = np.maximum(predicted.energies / structure_sizes(structures) - self.lowest, 0.0)
        return Assessment(score, "variance", predicted.energies, predicted.forces)
