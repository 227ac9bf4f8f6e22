"""Scores that any method should beat: chance, and the predicted energy itself."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms

from adaptntk.data.structures import structure_hash
from adaptntk.models.protocol import Potential
from adaptntk.progress import Progress, silent
from adaptntk.uncertainty.method import Assessment, MethodState, Workbench


@dataclass(frozen=True)
class Random:
    """Independent uniform numbers, each decided by the seed and the structure."""

    potential: Potential
    seed: int
    name = "random"

    @classmethod
    def fit(cls, workbench: Workbench) -> "Random":
        """Nothing to fit."""
        return cls(workbench.member(0), workbench.seed)

    def assess(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Assessment:
        predicted = self.potential.predict(structures, batch_size, progress)
        score = np.array([_number(self.seed, structure_hash(atoms)) for atoms in structures])
        return Assessment(score, "variance", predicted.energies, predicted.forces)

    def state(self) -> MethodState:
        return MethodState((self.potential,), settings={"seed": self.seed})

    @classmethod
    def restore(cls, state: MethodState) -> "Random":
        return cls(state.networks[0], state.settings["seed"])


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

    def state(self) -> MethodState:
        return MethodState((self.potential,), settings={"lowest": self.lowest})

    @classmethod
    def restore(cls, state: MethodState) -> "PredictedEnergy":
        return cls(state.networks[0], state.settings["lowest"])


def _number(seed: int, identity: str) -> float:
    """A uniform number in [0, 1)."""
    return int.from_bytes(hashlib.sha256(f"{seed} {identity}".encode()).digest()[:6]) / 2**48


def _sizes(structures: Sequence[Atoms]) -> np.ndarray:
    return np.array([len(atoms) for atoms in structures])
