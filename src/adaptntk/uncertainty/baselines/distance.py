"""The distance to the nearest training structure, in the features that enter the readouts."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial import cKDTree

from adaptntk.data.structures import Structures
from adaptntk.features.last_layer import mean_invariants
from adaptntk.models.protocol import Potential, Predictions
from adaptntk.representation import short_repr
from adaptntk.uncertainty.method import Array, MethodState, NoOptions, ScoresOnly
from adaptntk.uncertainty.stored import Stored
from adaptntk.uncertainty.workbench import Workbench


@short_repr
@dataclass(frozen=True)
class Distance(ScoresOnly):
    """The distance to the nearest training structure, in standardised mean features."""

    potential: Potential
    tree: cKDTree
    centre: Array
    scale: Array
    name = "distance"
    stored = Stored({}, {"features": "n f", "centre": "f", "scale": "f > 0"})
    kind = "std"

    @classmethod
    def fit(cls, bench: Workbench, rng: np.random.Generator, options: NoOptions) -> "Distance":
        """Remember the training structures."""
        potential = bench.member(0)
        features = mean_invariants(potential, potential.predict(bench.train))
        centre, scale = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-12)
        return cls(potential, cKDTree((features - centre) / scale), centre, scale)

    def score(self, structures: Structures, predicted: Predictions) -> Array:
        return self.tree.query((mean_invariants(self.potential, predicted) - self.centre) / self.scale)[0]

    def state(self) -> MethodState:
        arrays = {"features": np.asarray(self.tree.data), "centre": self.centre, "scale": self.scale}
        return MethodState((self.potential,), {name: torch.tensor(array) for name, array in arrays.items()})

    @classmethod
    def restore(cls, state: MethodState) -> "Distance":
        features, centre, scale = (state.tensors[name].numpy() for name in ("features", "centre", "scale"))
        return cls(state.networks[0], cKDTree(features), centre, scale)
