"""The NTK uncertainty behind the interface that all methods share."""

from collections.abc import Sequence
from dataclasses import dataclass

from ase import Atoms

from adaptntk.core.calibration import PRIOR_ALPHA, RidgeChoice
from adaptntk.core.posterior import fit_posterior
from adaptntk.core.sketch.registry import make_sketch, sketch_spec
from adaptntk.models.protocol import parameter_count
from adaptntk.progress import Progress, silent
from adaptntk.uncertainty.method import Assessment, MethodState, Workbench
from adaptntk.uncertainty.ntk import NTKUncertainty


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
        return self.uncertainty.assess(structures, batch_size, progress)

    def state(self) -> MethodState:
        fitted = self.uncertainty
        settings = {
            "sketch": sketch_spec(fitted.sketch, parameter_count(fitted.potential)),
            "normalise": fitted.normalise,
            "ridge": vars(fitted.ridge),
            "train_hashes": list(fitted.train_hashes),
        }
        return MethodState((fitted.potential,), {"features": fitted.features}, settings)

    @classmethod
    def restore(cls, state: MethodState) -> "NTK":
        settings, potential = state.settings, state.networks[0]
        spec, ridge = settings["sketch"], RidgeChoice(**settings["ridge"])
        features = state.tensors["features"].to(potential.device)
        restored = NTKUncertainty(
            potential=potential,
            sketch=make_sketch(spec["kind"], spec["dim"], spec["seed"]),
            normalise=settings["normalise"],
            features=features,
            ridge=ridge,
            posterior=fit_posterior(features, ridge.lam),
            train_hashes=tuple(settings["train_hashes"]),
        )
        return cls(restored)
