"""Chance: a score that any method should beat."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms

from adaptntk.data.structures import structure_hash
from adaptntk.models.protocol import Potential
from adaptntk.progress import Progress, silent
from adaptntk.uncertainty.method import Assessment, NoOptions, ScoresOnly
from adaptntk.uncertainty.workbench import Workbench


@dataclass(frozen=True)
class RandomNumbers(ScoresOnly):
    """Independent uniform numbers, each decided by the seed and the structure."""

    potential: Potential
    seed: int
    name = "random"

    @classmethod
    def fit(cls, bench: Workbench, rng: np.random.Generator, options: NoOptions) -> "RandomNumbers":
        """Nothing to fit."""
        return cls(bench.member(0), bench.seed)

    def assess(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Assessment:
        predicted = self.potential.predict(structures, batch_size, progress)
        score = np.array([_number(self.seed, structure_hash(atoms)) for atoms in structures])
        return Assessment(score, "variance", predicted.energies, predicted.forces)


def _number(seed: int, identity: str) -> float:
    """A uniform number in [0, 1)."""
    return int.from_bytes(hashlib.sha256(f"{seed} {identity}".encode()).digest()[:6]) / 2**48
