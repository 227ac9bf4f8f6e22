"""Chance: a score that any method should beat."""

import hashlib
from dataclasses import dataclass

import numpy as np

from adaptntk.data.structures import Structures, structure_hash
from adaptntk.models.protocol import Potential, Predictions
from adaptntk.uncertainty.method import Array, NoOptions, ScoresOnly
from adaptntk.uncertainty.stored import Seed, Stored
from adaptntk.uncertainty.workbench import Workbench


@dataclass(frozen=True)
class RandomNumbers(ScoresOnly):
    """Independent uniform numbers in [0, 1), each decided by the seed and the structure."""

    potential: Potential
    seed: int
    name = "random"
    stored = Stored({"seed": Seed}, {})

    @classmethod
    def fit(cls, bench: Workbench, rng: np.random.Generator, options: NoOptions) -> "RandomNumbers":
        """Nothing to fit."""
        return cls(bench.member(0), bench.seed)

    def score(self, structures: Structures, predicted: Predictions) -> Array:
        digests = [hashlib.sha256(f"{self.seed} {structure_hash(atoms)}".encode()).digest() for atoms in structures]
        return np.array([int.from_bytes(digest[:6]) / 2**48 for digest in digests])
