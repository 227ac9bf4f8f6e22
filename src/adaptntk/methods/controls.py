"""Scores that any method should beat: chance, and the predicted energy itself."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms

from adaptntk.methods.method import Assessment, Workbench
from adaptntk.models.protocol import Potential
from adaptntk.progress import Progress, silent


@dataclass(frozen=True)
class Random:
    """Independent uniform numbers."""

    potential: Potential
    seed: int
    name = "random"

    @classmethod
    def fit(cls, workbench: Workbench) -> "Random":
        """Nothing to fit."""
        return cls(workbench.member(0), workbench.seed)

    def assess(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Assessment:
        predicted = self.potential.predict(structures, batch_size, progress)
        score = np.random.default_rng(self.seed).uniform(size=len(structures))
        return Assessment(score, "variance", predicted.energies, predicted.forces)


@dataclass(frozen=True)
class PredictedEnergy:
    """The predicted energy per atom, from the lowest one of the training set upwards.

    Frames of high energy are rarer and their forces larger: a trivial score that some published ones do not beat.
    """

    potential: Potential
    lowest: float
    name = "energy"

    @classmethod
    def fit(cls, workbench: Workbench) -> "PredictedEnergy":
        """Find the zero of the scale."""
        potential = workbench.member(0)
        predicted = potential.predict(workbench.train)
        return cls(potential, float((predicted.energies / _sizes(workbench.train)).min()))

    def assess(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Assessment:
        predicted = self.potential.predict(structures, batch_size, progress)
        score = np.maximum(predicted.energies / _sizes(structures) - self.lowest, 0.0)
        return Assessment(score, "variance", predicted.energies, predicted.forces)


def _sizes(structures: Sequence[Atoms]) -> np.ndarray:
    return np.array([len(atoms) for atoms in structures])
