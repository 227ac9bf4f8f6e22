"""The NTK uncertainty behind the interface that all methods share."""

from collections.abc import Sequence
from dataclasses import dataclass

from ase import Atoms

from adaptntk.core.calibration import PRIOR_ALPHA
from adaptntk.core.sketches import make_sketch
from adaptntk.methods.method import Assessment, Workbench
from adaptntk.methods.ntk import NTKUncertainty
from adaptntk.progress import Progress, silent


@dataclass(frozen=True)
class NTK:
    """The score is U; predictions are the model's."""

    uncertainty: NTKUncertainty
    name = "ntk"

    @classmethod
    def fit(
        cls,
        workbench: Workbench,
        sketch: str = "gaussian",
        dim: int = 512,
        alpha: float = PRIOR_ALPHA,
        criterion: str | None = None,
    ) -> "NTK":
        """Features of the training set, ridge from the validation set."""
        projection = make_sketch(sketch, dim, workbench.seed)
        fitted = NTKUncertainty.fit(workbench.member(0), workbench.train, projection, alpha)
        return cls(fitted.calibrate(workbench.valid, criterion, seed=workbench.seed))

    def assess(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Assessment:
        scores = self.uncertainty.score(structures, progress=progress)
        predicted = self.uncertainty.potential.predict(structures, batch_size)
        return Assessment(scores.variance, "variance", predicted.energies, predicted.forces)
