"""The size of the predicted force: the other trivial score, which across materials many published ones do not beat."""

from dataclasses import dataclass

import numpy as np

from adaptntk.data.structures import Structures
from adaptntk.models.protocol import Potential, Predictions
from adaptntk.uncertainty.method import Array, Kind, NoOptions, ScoresOnly
from adaptntk.uncertainty.workbench import Workbench


@dataclass(frozen=True)
class ForceSize(ScoresOnly):
    """The root mean square of the predicted force components: where forces are large, so are their errors."""

    potential: Potential
    name = "force_size"
    kind: Kind = "std"

    @classmethod
    def fit(cls, bench: Workbench, rng: np.random.Generator, options: NoOptions) -> "ForceSize":
        """There is nothing to fit."""
        return cls(bench.member(0))

    def score(self, structures: Structures, predicted: Predictions) -> Array:
        return np.array([np.sqrt(np.mean(forces**2)) for forces in predicted.forces])
