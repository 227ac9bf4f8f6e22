"""Methods whose score is a distance in a space of features: the NTK of the paper, and LLPR.

They are one class with different feature maps, so all rules of selection, all calibrations and the sequential update
work with both.
"""

import dataclasses
import logging
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from adaptntk.core.blocks import TensorBlocks
from adaptntk.core.posterior import RidgePath, fit_posterior
from adaptntk.core.ridge import PRIOR_ALPHA, RidgeChoice, check_criterion, choose_ridge, fixed_ridge
from adaptntk.core.sketch.quality import SketchAdvice, advice_from_exact, advice_from_halves
from adaptntk.core.sketch.registry import make_sketch
from adaptntk.data.structures import Structures, structure_sizes
from adaptntk.errors import InputError
from adaptntk.evaluation import ranked_errors
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.features.feature_map import (
    NORMALISATIONS,
    FeatureMap,
    check_normalisation,
    choose_normalisation,
)
from adaptntk.features.last_layer import LastLayerFeatures
from adaptntk.features.registry import restore_feature_map
from adaptntk.models.protocol import Potential, parameter_count
from adaptntk.progress import Progress, silent
from adaptntk.representation import short_repr
from adaptntk.uncertainty.feature_model import FeatureModel
from adaptntk.uncertainty.method import Array, Assessment, MethodState
from adaptntk.uncertainty.stored import ENERGY_GRADIENTS, LAST_LAYER, of_features
from adaptntk.uncertainty.workbench import Extracted, Workbench

log = logging.getLogger(__name__)

OLD = "features of the total energy, of sizes that the file does not name: scores hold for those it was trained on"
# The criterion of a ridge that was given as lam itself.
ABSOLUTE = "absolute"


@dataclass(frozen=True)
class RidgeOptions:
    """How the ridge is chosen.

    Args:
        alpha: relative to the mean squared norm of the features, ``lam = alpha tr(F)/n``; `PRIOR_ALPHA` when not given.
        lam: the ridge itself; overrides ``alpha``.
        criterion: how validation may move it: ``spearman``, ``nll``, ``effective_dimension`` or ``fixed``; when not
            given, ``spearman`` for the prior, and ``fixed`` for an ``alpha`` or a ``lam`` of the user's.
    """

    alpha: float | None = None
    lam: float | None = None
    criterion: str | None = None

    def __post_init__(self) -> None:
        if self.criterion is not None:
            check_criterion(self.criterion)
        for name, value in (("alpha", self.alpha), ("lam", self.lam)):
            if value is not None and not 1e-30 < value < 1e30:
                raise InputError(f"{name} must be positive, and between 1e-30 and 1e30, not {value}")

    def choose(self, blocks: Extracted, errors: Array | None, rng: np.random.Generator) -> RidgeChoice:
        """``errors`` are the true errors of the validation structures, NaN for some; None without validation."""
        path = RidgePath(blocks.train)
        if not path.mean_squared_norm > 0:
            raise InputError("training set: all features are zero, as those of atoms without neighbours are")
        given = self.alpha is not None or self.lam is not None
        if self.lam is not None:
            start = fixed_ridge(path, self.lam, ABSOLUTE)
        else:
            start = fixed_ridge(path, path.lam(self.alpha or PRIOR_ALPHA), reason="given" if given else "the prior")
        criterion = self.criterion or ("fixed" if given else "spearman")
        if criterion == "fixed" or (errors is None and criterion != "effective_dimension"):
            return start
        queries = blocks.valid
        if errors is not None and not (known := np.isfinite(errors)).all():
            queries, errors = TensorBlocks(queries[torch.from_numpy(known)], queries.asked), errors[known]
        return choose_ridge(path, criterion, queries, errors, rng, start.alpha)


@short_repr
@dataclass(frozen=True)
class FeatureMethod:
    """The score is ``U``, the regularised distance from the training structures; predictions are the model's."""

    potential: Potential
    features: FeatureModel
    name = "features"
    uses_training_labels = False
    stored = of_features()

    @classmethod
    def fit_map(cls, bench: Workbench, rng: np.random.Generator, feature_map: FeatureMap, ridge: RidgeOptions) -> Self:
        """Blocks of both sets, ridge, posterior, and a check of the sketch where there is one."""
        sizes = frozenset(structure_sizes(bench.train).tolist())
        feature_map.check_sizes(sizes, bench.valid, "validation set")
        extracted = bench.extracted(feature_map)
        errors = ranked_errors(bench.predicted_valid(), bench.valid) if bench.valid else None
        chosen = ridge.choose(extracted, errors, rng)
        posterior = fit_posterior(extracted.train, chosen.lam)
        model = FeatureModel(feature_map, extracted.train, chosen, posterior, None, sizes, bench.memory_budget)
        check = _check_sketch(model, extracted) if bench.valid else None
        return cls(bench.member(0), dataclasses.replace(model, sketch_check=check))

    @property
    def energy_power(self) -> float:
        """Where the features do not grow with the number of atoms, neither does the error that they speak of."""
        return NORMALISATIONS[self.features.feature_map.normalise]

    def assess(self, structures: Structures, batch_size: int = 16, progress: Progress = silent) -> Assessment:
        return self.features.assess(self.potential, structures, batch_size, progress)

    def state(self) -> MethodState:
        features = self.features
        check = None if features.sketch_check is None else vars(features.sketch_check)
        spec = features.feature_map.spec(self.potential)
        sizes = None if features.sizes is None else sorted(features.sizes)
        settings = {"features": spec, "ridge": vars(features.ridge), "sketch_check": check, "train_sizes": sizes}
        return MethodState((self.potential,), {"blocks": features.blocks.tensor}, settings, features.memory_budget)

    @classmethod
    def restore(cls, state: MethodState) -> Self:
        potential, settings = state.networks[0], state.settings
        feature_map = restore_feature_map(settings["features"], state.memory_budget)
        blocks = TensorBlocks(state.tensors["blocks"].to(potential.device), feature_map.asked)
        made = feature_map.rows, feature_map.width(potential)
        if blocks.shape[1:] != made:
            raise InputError(f"its features are blocks of {blocks.shape[1:]} numbers, those of the model of {made}")
        ridge, check = RidgeChoice(**settings["ridge"]), settings["sketch_check"]
        posterior = fit_posterior(blocks, ridge.lam)
        advice = None if check is None else SketchAdvice(**check)
        known = settings.get("train_sizes")
        if known is None and not feature_map.any_size:
            log.warning(OLD)
        sizes = None if known is None else frozenset(known)
        return cls(potential, FeatureModel(feature_map, blocks, ridge, posterior, advice, sizes, state.memory_budget))


@dataclass(frozen=True)
class NTKOptions(RidgeOptions):
    """Of the method ``ntk``.

    Args:
        sketch, dim: kind and dimension of the projection; ``none`` for exact scores.
        sketch_seed: which projection; the seed of the workbench when not given.
        normalise: divide features by a power of the number of atoms: ``none``, ``sqrt_n``, ``per_atom``; ``auto``
            is ``per_atom``, with which scores hold for structures of any size.
    """

    sketch: str = "gaussian"
    dim: int = 512
    sketch_seed: int | None = None
    normalise: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        make_sketch(self.sketch, self.dim, 0)
        check_normalisation(self.normalise, automatic=True)


class NTK(FeatureMethod):
    """The paper's method: gradients of the energy over all parameters."""

    name = "ntk"
    Options = NTKOptions
    stored = ENERGY_GRADIENTS

    @classmethod
    def fit(cls, bench: Workbench, rng: np.random.Generator, options: NTKOptions) -> "NTK":
        seed = bench.seed if options.sketch_seed is None else options.sketch_seed
        sketch = make_sketch(options.sketch, options.dim, seed, bench.memory_budget // 2)
        parameters = parameter_count(bench.member(0))
        if sketch.dim(parameters) > parameters:
            exceeds = f"a sketch of {options.dim:,} dimensions exceeds the {parameters:,} parameters of the model"
            raise InputError(f"{exceeds}: use a smaller --sketch-dim, or --sketch none for exact scores")
        return cls.fit_map(bench, rng, EnergyGradients(sketch, choose_normalisation(options.normalise)), options)


@dataclass(frozen=True)
class LastLayerOptions(RidgeOptions):
    """Of the method ``last_layer``; see `NTKOptions`."""

    normalise: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_normalisation(self.normalise, automatic=True)


class LastLayer(FeatureMethod):
    """LLPR: the same distance, of the features that enter the readouts."""

    name = "last_layer"
    Options = LastLayerOptions
    stored = LAST_LAYER

    @classmethod
    def fit(cls, bench: Workbench, rng: np.random.Generator, options: LastLayerOptions) -> "LastLayer":
        # A generator of its own: the calibration must not depend on how the ridge was chosen.
        own = np.random.default_rng(bench.seed)
        return cls.fit_map(bench, own, LastLayerFeatures(choose_normalisation(options.normalise)), options)


def _check_sketch(model: FeatureModel, extracted: Extracted) -> SketchAdvice | None:
    """How far the sketched scores of the validation structures are from the exact ones."""
    if model.feature_map.unsketched() is None:
        return None
    lam = model.ridge.lam
    if extracted.exact is None:
        return advice_from_halves(extracted.train, extracted.valid, lam)
    train, valid = extracted.exact
    exact = fit_posterior(train, lam).variance(valid)
    return advice_from_exact(model.posterior.variance(extracted.valid), exact, lam, model.blocks.shape[2])
