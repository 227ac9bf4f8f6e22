"""Methods whose score is a distance in a space of features: the NTK of the paper, and LLPR.

They are one class with different feature maps, so all rules of selection, all calibrations and the sequential update
work with both.
"""

import dataclasses
import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch

from adaptntk.core.blocks import TensorBlocks
from adaptntk.core.posterior import RidgePath, fit_posterior
from adaptntk.core.question import AUTO, BOTH, COMMITTEE, check_question
from adaptntk.core.ridge import JOINT_ALPHA, PRIOR_ALPHA, RidgeChoice, check_criterion, choose_ridge, fixed_ridge
from adaptntk.core.rows import compressed
from adaptntk.core.sketch.gaussian import Sketch
from adaptntk.core.sketch.quality import SketchAdvice, advice_from_exact, advice_from_halves
from adaptntk.core.sketch.registry import make_sketch
from adaptntk.data.structures import Structures, structure_sizes
from adaptntk.errors import InputError
from adaptntk.evaluation import ranked_errors
from adaptntk.features.dimension import choose_force_rows, choose_sketch
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
from adaptntk.uncertainty.committee import Committee, Drawn
from adaptntk.uncertainty.feature_model import FeatureModel
from adaptntk.uncertainty.method import Array, Assessment, MethodState
from adaptntk.uncertainty.stored import ENERGY_GRADIENTS, LAST_LAYER, of_features
from adaptntk.uncertainty.workbench import Extracted, Workbench

log = logging.getLogger(__name__)

OLD = "features of the total energy, of sizes that the file does not name: scores hold for those it was trained on"
FEATURES = ("energy", "joint")
# Of a committee, if nobody says how many.
MEMBERS = 16
# The criterion of a ridge that was given as lam itself.
ABSOLUTE = "absolute"


@dataclass(frozen=True)
class RidgeOptions:
    """How the ridge is chosen.

    Args:
        alpha: relative to the mean squared norm of the features, ``lam = alpha tr(F)/n``; when not given, `PRIOR_ALPHA`
            or, with force rows, `JOINT_ALPHA`.
        lam: the ridge itself; overrides ``alpha``.
        criterion: how validation may move it: ``spearman``, ``nll``, ``effective_dimension`` or ``fixed``; when not
            given, ``spearman`` for the prior, and ``fixed`` with force rows, or for an ``alpha`` or a ``lam`` of the
            user's.
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

    def choose(
        self, path: RidgePath, queries: TensorBlocks, errors: Array | None, rng: np.random.Generator
    ) -> RidgeChoice:
        """``errors`` are the true errors of the validation structures, NaN for some; None without validation."""
        if not path.mean_squared_norm > 0:
            raise InputError("training set: all features are zero, as those of atoms without neighbours are")
        given = self.alpha is not None or self.lam is not None
        if self.lam is not None:
            start = fixed_ridge(path, self.lam, ABSOLUTE)
        else:
            prior = JOINT_ALPHA if path.joint else PRIOR_ALPHA
            start = fixed_ridge(path, path.lam(self.alpha or prior), reason="given" if given else "the prior")
        criterion = self.criterion or ("fixed" if given or path.joint else "spearman")
        if criterion == "fixed" or (errors is None and criterion != "effective_dimension"):
            return start
        if errors is not None and not (known := np.isfinite(errors)).all():
            queries, errors = TensorBlocks(queries[torch.from_numpy(known)], queries.asked), errors[known]
        return choose_ridge(path, criterion, queries, errors, rng, start.alpha)


@short_repr
@dataclass(frozen=True)
class FeatureMethod:
    """The score is ``U``, the regularised distance from the training structures; predictions are the model's."""

    potential: Potential
    features: FeatureModel
    drawn: Drawn | None = None
    question: str = AUTO
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
        further = compressed(extracted.further)
        path = RidgePath(extracted.train, further)
        chosen = ridge.choose(path, extracted.valid, errors, rng)
        posterior, budget = path.posterior(chosen.lam), bench.memory_budget
        model = FeatureModel(feature_map, extracted.train, further, chosen, posterior, None, sizes, budget)
        check = _check_sketch(model, extracted) if bench.valid else None
        return cls(bench.member(0), dataclasses.replace(model, sketch_check=check))

    @cached_property
    def committee(self) -> Committee | None:
        """Directions drawn from the posterior; None where none were asked for. The same ones whenever it is made."""
        return None if self.drawn is None else self.drawn.committee(self.potential, self.features)

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
        if self.drawn is not None:
            settings["committee"] = vars(self.drawn)
        tensors = {"blocks": features.blocks.tensor}
        if len(features.further):
            tensors["further"] = features.further
        return MethodState((self.potential,), tensors, settings, features.memory_budget)

    @classmethod
    def restore(cls, state: MethodState) -> Self:
        potential, settings = state.networks[0], state.settings
        feature_map = restore_feature_map(settings["features"], state.memory_budget)
        blocks = TensorBlocks(state.tensors["blocks"].to(potential.device), feature_map.asked)
        made = feature_map.rows, feature_map.width(potential)
        if blocks.shape[1:] != made:
            raise InputError(f"its features are blocks of {blocks.shape[1:]} numbers, those of the model of {made}")
        ridge, check = RidgeChoice(**settings["ridge"]), settings["sketch_check"]
        further = state.tensors.get("further", blocks.tensor.new_empty(0, made[1])).to(potential.device)
        posterior = fit_posterior(blocks, ridge.lam, further)
        advice = None if check is None else SketchAdvice(**check)
        known = settings.get("train_sizes")
        if known is None and not feature_map.any_size:
            log.warning(OLD)
        sizes = None if known is None else frozenset(known)
        model = FeatureModel(feature_map, blocks, further, ridge, posterior, advice, sizes, state.memory_budget)
        drawn = settings.get("committee")
        return cls(potential, model, None if drawn is None else Drawn(**drawn))


@dataclass(frozen=True)
class NTKOptions(RidgeOptions):
    """Of the method ``ntk``.

    Args:
        features: what a label teaches: energy and forces, ``joint``, or its ``energy`` alone (the paper).
        force_rows: K, random directions of the forces that are learnt from each label, with ``joint``; when not given,
            what `choose_force_rows` says.
        strain_rows: random strains of the cell that are learnt from each label with a cell in all directions, with
            ``joint``; for models that were trained on stress too.
        committee: how many directions are drawn from the posterior, for the forces of structures and of atoms; none
            for 0. When not given, `MEMBERS` with ``joint`` features, if the network allows it, and none with others.
        forces_by: which score speaks of the forces of a structure, see ``core/question.py``; ``auto`` is the one that
            ranks the errors of the validation set best, of those there are.
        sketch, dim: kind and dimension of the projection; ``none`` for exact scores. ``auto`` is ``gaussian`` of 512
            dimensions for energies, and ``sparse`` of as many as `joint_dimension` says for joint features.
        sketch_seed: which projection; the seed of the workbench when not given.
        normalise: divide features by a power of the number of atoms: ``none``, ``sqrt_n``, ``per_atom``; ``auto``
            is ``per_atom``, with which scores hold for structures of any size.
    """

    features: str = "joint"
    force_rows: int | None = None
    strain_rows: int = 0
    committee: int | None = None
    forces_by: str = AUTO
    sketch: str = "auto"
    dim: int | None = None
    sketch_seed: int | None = None
    normalise: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features not in FEATURES:
            raise InputError(f"unknown features {self.features!r}: choose one of {', '.join(FEATURES)}")
        if self.force_rows is not None and not 1 <= self.force_rows <= 1000:
            raise InputError(f"force rows must be 1 to 1000 of each label, not {self.force_rows}")
        if not 0 <= self.strain_rows <= 1000:
            raise InputError(f"strain rows must be 0 to 1000 of each label, not {self.strain_rows}")
        if self.strain_rows and self.features != "joint":
            raise InputError(f"strain rows are of joint features, not of {self.features} ones")
        if self.committee and not 2 <= self.committee <= 1000:
            raise InputError(f"a committee has 2 to 1000 members (or 0 for none), not {self.committee}")
        check_question(self.forces_by)
        if self.forces_by in (COMMITTEE, BOTH) and not self.members:
            raise InputError(f"forces cannot be judged by {self.forces_by} without a committee: draw one (--committee)")
        make_sketch("gaussian" if self.sketch == "auto" else self.sketch, 512 if self.dim is None else self.dim, 0)
        check_normalisation(self.normalise, automatic=True)

    @property
    def members(self) -> int:
        """Of the committee."""
        by_default = MEMBERS if self.features == "joint" else 0
        return by_default if self.committee is None else self.committee

    def rows_of_forces(self, labels: int) -> int:
        """Of each, where there are so many."""
        return choose_force_rows(self.force_rows, labels) if self.features == "joint" else 0

    def make_sketch(self, labels: int, parameters: int, seed: int, memory_budget: int) -> Sketch:
        """The projection that was asked for, or the one that suits so many labels."""
        further = self.rows_of_forces(labels) + self.strain_rows
        kind, dim = choose_sketch(self.sketch, self.dim, labels, further, parameters)
        if kind != "none" and dim > parameters:
            exceeds = f"a sketch of {dim:,} dimensions exceeds the {parameters:,} parameters of the model"
            raise InputError(f"{exceeds}: use a smaller --sketch-dim, or --sketch none for exact scores")
        return make_sketch(kind, dim, seed, memory_budget)


class NTK(FeatureMethod):
    """The paper's method: gradients of the energy over all parameters."""

    name = "ntk"
    Options = NTKOptions
    stored = ENERGY_GRADIENTS

    @classmethod
    def fit(cls, bench: Workbench, rng: np.random.Generator, options: NTKOptions) -> "NTK":
        seed = bench.seed if options.sketch_seed is None else options.sketch_seed
        potential = bench.member(0)
        sketch = options.make_sketch(len(bench.train), parameter_count(potential), seed, bench.memory_budget // 2)
        normalise = choose_normalisation(options.normalise)
        force_rows = options.rows_of_forces(len(bench.train))
        found = cls.fit_map(bench, rng, EnergyGradients(sketch, normalise, force_rows, options.strain_rows), options)
        if not options.members:
            return found
        try:
            drawn = Drawn.choose(options.members, seed, potential, found.features, bench.valid or bench.train)
        except InputError as error:
            if options.committee is not None or options.forces_by in (COMMITTEE, BOTH):
                raise
            log.warning("no committee was drawn, so atoms have no uncertainty and forces are judged by U: %s", error)
            return found
        return dataclasses.replace(found, drawn=drawn, question=options.forces_by)


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
        return advice_from_halves(extracted.train, extracted.valid, lam, model.further)
    full = extracted.exact
    exact = fit_posterior(full.train, lam, full.further).variance(full.valid)
    return advice_from_exact(model.posterior.variance(extracted.valid), exact, lam, model.blocks.shape[2])
