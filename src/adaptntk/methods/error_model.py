"""Beyond the paper: the NTK score and what comes for free with it, combined on the validation set."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from adaptntk.core.error_model import LogErrorRegression
from adaptntk.core.metrics import force_rmse
from adaptntk.data.structures import reference_forces
from adaptntk.methods.last_layer import LastLayer
from adaptntk.methods.method import Assessment, Workbench
from adaptntk.methods.ntk_method import NTK
from adaptntk.progress import Progress, silent

Array = NDArray[np.float64]

COVARIATES = ("log U", "log of the last-layer score", "predicted energy per atom", "log of the root mean square force")


@dataclass(frozen=True)
class ErrorModel:
    """The score is the expected force error, from a regression on the four `COVARIATES`."""

    ntk: NTK
    last_layer: LastLayer
    regression: LogErrorRegression
    name = "error_model"

    @classmethod
    def fit(cls, workbench: Workbench) -> "ErrorModel":
        """Fit both scores, then the regression on the validation set."""
        ntk, last_layer = NTK.fit(workbench), LastLayer.fit(workbench)
        covariates, assessed = _covariates(ntk, last_layer, workbench.valid)
        errors = force_rmse(assessed.forces, reference_forces(workbench.valid))
        regression = LogErrorRegression.fit(covariates, errors, np.random.default_rng(workbench.seed))
        return cls(ntk, last_layer, regression)

    def assess(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Assessment:
        covariates, assessed = _covariates(self.ntk, self.last_layer, structures, batch_size, progress)
        return Assessment(self.regression.predict(covariates), "std", assessed.energies, assessed.forces)


def _covariates(
    ntk: NTK,
    last_layer: LastLayer,
    structures: Sequence[Atoms],
    batch_size: int = 16,
    progress: Progress = silent,
) -> tuple[Array, Assessment]:
    assessed = ntk.assess(structures, batch_size, progress)
    other = last_layer.assess(structures, batch_size)
    sizes = np.array([len(atoms) for atoms in structures])
    force = np.array([np.sqrt(np.mean(forces**2)) for forces in assessed.forces])
    columns = [_log(assessed.score), _log(other.score), assessed.energies / sizes, _log(force)]
    return np.column_stack(columns), assessed


def _log(values: Array) -> Array:
    """The logarithm, also where rounding has left nothing; of each structure by itself."""
    return np.log(np.maximum(values, 1e-30))
