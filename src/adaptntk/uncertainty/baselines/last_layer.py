"""Methods on the features that enter the readouts: LLPR (Bigi et al., 2024), and the distance to the training set."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from ase import Atoms
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from adaptntk.core.calibration import PRIOR_ALPHA, choose_ridge
from adaptntk.core.metrics import force_rmse
from adaptntk.core.posterior import Posterior, RidgePath
from adaptntk.data.structures import reference_forces
from adaptntk.errors import ModelError
from adaptntk.features.energy_gradients import NORMALISATIONS
from adaptntk.models.protocol import Potential, Predictions
from adaptntk.progress import Progress, silent
from adaptntk.uncertainty.method import Assessment, MethodState, Workbench
from adaptntk.uncertainty.ntk import choose_normalisation

Array = NDArray[np.float64]


def mean_invariants(potential: Potential, predicted: Predictions) -> Array:
    """The invariant features of the atoms, averaged over each structure."""
    if predicted.node_features is None:
        raise ModelError(f"last-layer features need a model that has them, which {potential.description} has not")
    return np.array([rows.mean(axis=0) for rows in predicted.node_features])


@dataclass(frozen=True)
class LastLayer:
    """LLPR: the same regularised distance as ours, but of last-layer features only."""

    potential: Potential
    rows: Tensor
    posterior: Posterior
    normalise: str = "none"
    name = "last_layer"

    @classmethod
    def fit(cls, workbench: Workbench, alpha: float = PRIOR_ALPHA) -> "LastLayer":
        """Choose the ridge on the validation set, and what sizes mean, by the same rules as for the NTK."""
        potential = workbench.member(0)
        normalise = choose_normalisation("auto", workbench.train)
        rows = _features(potential, potential.predict(workbench.train), workbench.train, normalise)
        predicted = potential.predict(workbench.valid)
        queries = _features(potential, predicted, workbench.valid, normalise)
        errors = force_rmse(predicted.forces, reference_forces(workbench.valid))
        path = RidgePath(rows)
        ridge = choose_ridge(
            path,
            "spearman",
            lambda lams: path.variances(queries, lams).numpy(),
            errors,
            np.random.default_rng(workbench.seed),
            alpha,
        )
        return cls(potential, rows, Posterior.fit(rows, ridge.lam), normalise)

    def assess(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Assessment:
        predicted = self.potential.predict(structures, batch_size, progress)
        variance = self.posterior.variance(_features(self.potential, predicted, structures, self.normalise)).numpy()
        return Assessment(variance, "variance", predicted.energies, predicted.forces)

    def state(self) -> MethodState:
        return MethodState(
            (self.potential,), {"rows": self.rows}, {"lam": self.posterior.lam, "normalise": self.normalise}
        )

    @classmethod
    def restore(cls, state: MethodState) -> "LastLayer":
        rows = state.tensors["rows"]
        normalise = state.settings.get("normalise", "none")
        return cls(state.networks[0], rows, Posterior.fit(rows, state.settings["lam"]), normalise)


@dataclass(frozen=True)
class Distance:
    """The distance to the nearest training structure, in standardised mean features."""

    potential: Potential
    tree: cKDTree
    centre: Array
    scale: Array
    name = "distance"

    @classmethod
    def fit(cls, workbench: Workbench) -> "Distance":
        """Remember the training structures."""
        potential = workbench.member(0)
        features = mean_invariants(potential, potential.predict(workbench.train))
        centre, scale = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-12)
        return cls(potential, cKDTree((features - centre) / scale), centre, scale)

    def assess(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Assessment:
        predicted = self.potential.predict(structures, batch_size, progress)
        features = (mean_invariants(self.potential, predicted) - self.centre) / self.scale
        return Assessment(self.tree.query(features)[0], "std", predicted.energies, predicted.forces)

    def state(self) -> MethodState:
        arrays = {"features": np.asarray(self.tree.data), "centre": self.centre, "scale": self.scale}
        return MethodState((self.potential,), {name: torch.tensor(array) for name, array in arrays.items()})

    @classmethod
    def restore(cls, state: MethodState) -> "Distance":
        features, centre, scale = (state.tensors[name].numpy() for name in ("features", "centre", "scale"))
        return cls(state.networks[0], cKDTree(features), centre, scale)


def _features(potential: Potential, predicted: Predictions, structures: Sequence[Atoms], normalise: str) -> Tensor:
    """Sums over atoms, the gradient of the total energy over the weights of a linear readout, or their mean."""
    sizes = np.array([[len(atoms)] for atoms in structures], dtype=float)
    return torch.as_tensor(mean_invariants(potential, predicted) * sizes ** (1 - NORMALISATIONS[normalise]))
