"""The NTK uncertainty of one trained potential."""

import dataclasses
import logging
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from ase import Atoms
from numpy.typing import NDArray
from torch import Tensor

from adaptntk.core.blocks import Rows
from adaptntk.core.calibration import (
    PRIOR_ALPHA,
    Calibration,
    RidgeChoice,
    check_calibration_size,
    choose_ridge,
    fixed_ridge,
)
from adaptntk.core.metrics import force_rmse
from adaptntk.core.posterior import DualPosterior, Posterior, RidgePath, fit_posterior
from adaptntk.core.selection import registry as selectors
from adaptntk.core.selection.greedy import greedy
from adaptntk.core.selection.problem import Constraints, Selection
from adaptntk.core.sketch import quality as theory
from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch, Sketch
from adaptntk.core.sketch.registry import sketch_spec
from adaptntk.data.structure_file import structure_hashes, structure_sizes
from adaptntk.data.structures import NO_LABELS, has_labels, reference_energies, reference_forces, structure_hash
from adaptntk.errors import InputError
from adaptntk.features.energy_gradients import NORMALISATIONS, extract_features
from adaptntk.features.store import FeatureStore, StoredRows
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.models.protocol import Potential, check_species, parameter_count, parameters_hash
from adaptntk.progress import Progress, silent
from adaptntk.uncertainty.method import Assessment

log = logging.getLogger(__name__)

# Structures whose features are computed before they are written to a store, or scored.
STORE_STEP = 256
SCORE_STEP = 8192

# The criterion of a ridge that was given as lam itself.
ABSOLUTE = "absolute"

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """One number per structure. Sigmas are standard deviations, present once calibrated.

    Args:
        variance: the raw score U.
        sigma: expected root mean square force error, eV/Å.
        energy_sigma: expected error of the total energy, eV.
    """

    variance: Array
    sigma: Array | None = None
    energy_sigma: Array | None = None


@dataclass(frozen=True)
class NTKUncertainty:
    """A fitted uncertainty: training features, their posterior and, after `calibrate`, physical units.

    A value: `calibrate` and `condition` return a new object.
    """

    potential: Potential
    sketch: Sketch
    normalise: str
    features: Tensor
    ridge: RidgeChoice
    posterior: Posterior | DualPosterior
    train_hashes: tuple[str, ...]
    calibration_hashes: tuple[str, ...] = ()
    calibration: Calibration | None = None
    sketch_advice: theory.SketchAdvice | None = None
    memory_budget: int = DEFAULT_BUDGET
    name = "ntk"

    @classmethod
    def fit(
        cls,
        potential: Potential,
        train: Sequence[Atoms],
        sketch: Sketch | None = None,
        alpha: float = PRIOR_ALPHA,
        lam: float | None = None,
        normalise: str = "auto",
        memory_budget: int = DEFAULT_BUDGET,
        features: Tensor | None = None,
        progress: Progress = silent,
    ) -> "NTKUncertainty":
        """Compute the features of the training structures and factorise their covariance.

        Args:
            potential: the trained model.
            train: the structures it was trained on; labels are not used.
            sketch: `GaussianSketch(512)` when not given; `NoSketch()` for exact scores.
            alpha: the ridge relative to the mean squared norm of the features, ``lam = alpha tr(F)/n``.
            lam: the ridge itself; overrides ``alpha``.
            normalise: divide features by a power of the number of atoms: ``none``, ``sqrt_n``,
                ``per_atom``; ``auto`` takes ``per_atom`` when the training structures differ in size.
            features: rows of the training structures, if they were computed before.
        """
        if not train:
            raise InputError("the training set is empty")
        check_species(potential, train, "training set")
        sketch = sketch if sketch is not None else GaussianSketch(512, memory_budget=memory_budget // 2)
        normalise = choose_normalisation(normalise, train)
        if features is None:
            features = extract_features(potential, train, sketch, normalise, memory_budget, progress)
        check_finite(features, "training set")
        path = RidgePath(features)
        ridge = fixed_ridge(path, path.lam(alpha)) if lam is None else fixed_ridge(path, lam, ABSOLUTE)
        hashes = tuple(structure_hash(atoms) for atoms in train)
        posterior = fit_posterior(features, ridge.lam)
        return cls(potential, sketch, normalise, features, ridge, posterior, hashes, memory_budget=memory_budget)

    def calibrate(
        self,
        valid: Sequence[Atoms],
        criterion: str | None = None,
        calibration_set: Sequence[Atoms] | None = None,
        batch_size: int = 16,
        seed: int = 0,
        features: Tensor | None = None,
        progress: Progress = silent,
    ) -> "NTKUncertainty":
        """Choose the ridge on labelled structures, then fit sigma and the conformal bounds.

        Args:
            valid: labelled structures outside the training set.
            criterion: ``spearman``, ``nll``, ``effective_dimension`` or ``fixed`` (keep the ridge of `fit`). When
                not given: ``fixed`` if `fit` was given ``lam``, else ``spearman``.
            calibration_set: labelled structures for sigma and the bounds, when the validation set was used
                too much to be trusted with that; ``valid`` when not given.
            batch_size: structures predicted at a time.
            seed: of the bootstrap and the cross-fit.
            features: rows of ``valid``, if they were computed before.
        """
        for labelled in (valid, calibration_set):
            if labelled is not None:
                check_calibration_size(len(labelled))
        rng = np.random.default_rng(seed)
        queries, force_errors, energy_errors = self._labelled_queries(
            valid, "validation set", batch_size, progress, features
        )
        path = RidgePath(self.features)

        def variances(lams: list[float]) -> Array:
            return path.variances(queries, lams).cpu().numpy()

        if criterion is None:
            criterion = "fixed" if self.ridge.criterion == ABSOLUTE else "spearman"
        ridge = self.ridge
        if criterion != "fixed":
            ridge = choose_ridge(path, criterion, variances, force_errors, rng, self.ridge.alpha)
        posterior = fit_posterior(self.features, ridge.lam)
        used = [*valid, *(calibration_set or ())]
        if calibration_set is not None:
            queries, force_errors, energy_errors = self._labelled_queries(
                calibration_set, "calibration set", batch_size, progress
            )
        variance = posterior.variance(queries).cpu().numpy()
        calibration = Calibration.fit(variance, force_errors, energy_errors, rng)
        return dataclasses.replace(
            self,
            ridge=ridge,
            posterior=posterior,
            calibration=calibration,
            calibration_hashes=tuple(structure_hash(atoms) for atoms in used),
        )

    def features_of(
        self,
        structures: Sequence[Atoms],
        name: str = "structures",
        progress: Progress = silent,
        numbers: Sequence[int] | None = None,
    ) -> Tensor:
        """Feature rows of any structures, as the posterior expects them.

        ``name`` and ``numbers`` are what errors call the set and its frames.
        """
        if not structures:
            raise InputError(f"{name}: no structures")
        check_species(self.potential, structures, name)
        rows = extract_features(self.potential, structures, self.sketch, self.normalise, self.memory_budget, progress)
        check_finite(rows, name, numbers)
        return rows

    def _structures_at_once(self, most: int) -> int:
        """How many rows may be held beside everything else: an eighth of the budget."""
        row = 8 * self.sketch.dim(parameter_count(self.potential))
        return int(np.clip(self.memory_budget // 8 // row, 1, most))

    def open_store(self, folder: str | Path) -> FeatureStore:
        """A store of features on disk that fits this model, sketch and normalisation; made if it is not there."""
        parameters = parameter_count(self.potential)
        identity = {
            "model": self.potential.fingerprint,
            "precision": str(self.potential.dtype).removeprefix("torch."),
            "head": self.potential.head,
            "parameters": parameters_hash(self.potential),
            "sketch": sketch_spec(self.sketch, parameters),
            "normalise": self.normalise,
        }
        return FeatureStore(folder, identity, self.sketch.dim(parameters))

    def stored_features(
        self,
        structures: Sequence[Atoms],
        store: FeatureStore,
        name: str = "structures",
        progress: Progress = silent,
    ) -> StoredRows:
        """Feature rows in a store: those that it lacks are computed and added, a part at a time."""
        if not structures:
            raise InputError(f"{name}: no structures")
        hashes = structure_hashes(structures)
        numbers = store.find(hashes)
        store.check(numbers[numbers >= 0])
        # A structure that occurs twice is computed once.
        first = {hashes[index]: index for index in reversed(range(len(hashes))) if numbers[index] < 0}
        missing = sorted(first.values())
        log.info("%d of %d structures are in the feature store", len(hashes) - len(missing), len(hashes))
        step = self._structures_at_once(STORE_STEP)
        for start in progress(range(0, len(missing), step), "energy gradients", -(-len(missing) // step)):
            part = missing[start : start + step]
            frames = [structures[index] for index in part]
            store.append([hashes[index] for index in part], self.features_of(frames, name, numbers=part))
        return store.rows(store.find(hashes), self.potential.device)

    def score(self, structures: Sequence[Atoms], name: str = "structures", progress: Progress = silent) -> Scores:
        """The uncertainty of each structure; a part of the features at a time is held in memory."""
        if not structures:
            raise InputError(f"{name}: no structures")
        step = self._structures_at_once(SCORE_STEP)
        starts = range(0, len(structures), step)
        if len(starts) == 1:
            return self.score_features(self.features_of(structures, name, progress), structures)
        parts = [
            self.posterior.variance(
                self.features_of(structures[start : start + step], name, numbers=range(start, len(structures)))
            )
            for start in progress(starts, "energy gradients", len(starts))
        ]
        return self.scores_of_variance(torch.cat(parts).cpu().numpy(), structures)

    def score_features(self, rows: Rows, structures: Sequence[Atoms]) -> Scores:
        """The uncertainty of structures whose features are known."""
        return self.scores_of_variance(self.posterior.variance(rows).cpu().numpy(), structures)

    def scores_of_variance(self, variance: Array, structures: Sequence[Atoms]) -> Scores:
        """The raw scores U in physical units, once calibrated."""
        if self.calibration is None:
            return Scores(variance)
        sizes = self._energy_scale(structures)
        return Scores(
            variance,
            self.calibration.forces.sigma(variance),
            self.calibration.energy.sigma(variance) * sizes,
        )

    def assess(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Assessment:
        """Scores and predictions, as every method gives them."""
        variance = self.score(structures, progress=progress).variance
        predicted = self.potential.predict(structures, batch_size, progress)
        return Assessment(variance, "variance", predicted.energies, predicted.forces)

    def select(
        self,
        pool: Sequence[Atoms],
        count: int,
        method: str = "adaptntk",
        exclude: Iterable[Atoms | str] = (),
        min_separation: float = 0.0,
        groups: Sequence[Hashable] | None = None,
        per_group_max: int | None = None,
        seed: int = 0,
        progress: Progress = silent,
    ) -> Selection:
        """Choose the structures worth labelling next, in order.

        Structures of the training set are never picked.

        Args:
            pool: the candidates.
            count: how many.
            method: ``adaptntk`` (scores updated after each pick), ``topb``, ``lcmd``, ``adaptntk+lcmd``, ``maxdist``,
                ``kmeans++``, ``bait`` or ``random``.
            exclude: structures (or their hashes) that are labelled already.
            min_separation: see `Constraints`.
            groups, per_group_max: at most so many picks with the same label.
        """
        rows = self.features_of(pool, "pool", progress)
        constraints = Constraints(self.excluded(pool, exclude), min_separation, groups, per_group_max)
        return self.select_features(rows, count, method, constraints, seed)

    def select_features(
        self,
        rows: Rows,
        count: int,
        method: str = "adaptntk",
        constraints: Constraints | None = None,
        seed: int = 0,
    ) -> Selection:
        """The same from features that are known; what must not be picked is in the constraints."""
        return selectors.select(method, self.posterior, self.features, rows, count, constraints, seed)

    def excluded(self, pool: Sequence[Atoms], exclude: Iterable[Atoms | str] = ()) -> list[bool]:
        """Which candidates are in the training set or in ``exclude``."""
        known = set(self.train_hashes)
        known |= {item if isinstance(item, str) else structure_hash(item) for item in exclude}
        return [digest in known for digest in structure_hashes(pool)]

    def condition(self, structures: Sequence[Atoms]) -> "NTKUncertainty":
        """The uncertainty as if these structures had been in the training set; no labels, no retraining."""
        rows = self.features_of(structures)
        return dataclasses.replace(
            self,
            features=torch.cat([self.features, rows]),
            posterior=self.posterior.condition(rows),
            train_hashes=self.train_hashes + tuple(structure_hash(atoms) for atoms in structures),
        )

    def check_sketch(self, queries: Tensor, full_rows: tuple[Tensor, Tensor] | None = None) -> "NTKUncertainty":
        """Find out how far the sketched scores of ``queries`` are from the exact ones, and remember it.

        Args:
            queries: sketched rows.
            full_rows: full gradients of the training structures and of the queries; when None, two halves
                of the sketch are compared with each other.
        """
        if isinstance(self.sketch, NoSketch):
            return self
        lam = self.ridge.lam
        if full_rows is None:
            advice = theory.advice_from_halves(self.features, queries, lam)
        else:
            exact = fit_posterior(full_rows[0], lam).variance(full_rows[1])
            sketched = self.posterior.variance(queries)
            advice = theory.advice_from_exact(sketched, exact, lam, self.features.shape[1])
        return dataclasses.replace(self, sketch_advice=advice)

    def sketch_overlap(self, rows: Rows, count: int, constraints: Constraints) -> float | None:
        """How much the batch depends on the sketch: Jaccard overlap of the batches of its two halves."""
        if isinstance(self.sketch, NoSketch):
            return None
        # Distances differ between the halves: the same separation might leave too few candidates in one.
        constraints = dataclasses.replace(constraints, min_separation=0.0)
        batches = []
        for part in theory.sketch_halves(rows.shape[1]):
            posterior = fit_posterior(part.of(self.features), self.ridge.lam)
            batches.append(greedy(posterior, theory.HalfRows(rows, part), count, constraints).indices)
        return theory.jaccard(*batches)

    def _labelled_queries(
        self, structures: Sequence[Atoms], name: str, batch_size: int, progress: Progress, rows: Tensor | None = None
    ) -> tuple[Tensor, Array, Array]:
        known = set(self.train_hashes)
        for index, atoms in enumerate(structures):
            if not has_labels(atoms):
                raise InputError(f"{name}, frame {index}: {NO_LABELS}")
            if structure_hash(atoms) in known:
                raise InputError(f"{name}, frame {index}: is also in the training set; the sets must not overlap")
        if rows is None:
            rows = self.features_of(structures, name, progress)
        predicted = self.potential.predict(structures, batch_size, progress)
        check_label_units(predicted.forces, structures, name)
        force_errors = force_rmse(predicted.forces, reference_forces(structures))
        energy_errors = predicted.energies - reference_energies(structures)
        return rows, force_errors, energy_errors / self._energy_scale(structures)

    def _energy_scale(self, structures: Sequence[Atoms]) -> Array:
        return structure_sizes(structures).astype(float) ** NORMALISATIONS[self.normalise]


def choose_normalisation(normalise: str, train: Sequence[Atoms]) -> str:
    """Resolve ``auto``: sizes only matter when there are several."""
    if normalise != "auto":
        return normalise
    return "per_atom" if len({len(atoms) for atoms in train}) > 1 else "none"


def check_finite(rows: Tensor, name: str, numbers: Sequence[int] | None = None) -> None:
    """Refuse structures on which the model itself breaks down."""
    finite = torch.isfinite(rows).all(dim=1)
    if not bool(finite.all()):
        index = int((~finite).nonzero()[0])
        index = index if numbers is None else numbers[index]
        raise InputError(f"{name}, frame {index}: the model's gradient is NaN or infinite; remove the frame")


# What labels look like, in eV and Å, when they were written in another unit of energy or force.
_UNITS = {"kcal/mol": 23.0605, "kJ/mol": 96.4853, "Hartree": 1 / 27.2114, "Hartree/Bohr": 1 / 51.4221}


def check_label_units(forces: Sequence[Array], structures: Sequence[Atoms], name: str) -> None:
    """Compare labelled with predicted forces: a good fit with the slope of another unit gives it away."""
    p = np.concatenate([f.ravel() for f in forces])
    r = np.concatenate([f.ravel() for f in reference_forces(structures)])
    if len(p) < 3 or np.std(p) == 0 or np.std(r) == 0 or np.corrcoef(p, r)[0, 1] < 0.9:
        return
    slope = float(p @ r / (p @ p))
    for unit, factor in _UNITS.items():
        if abs(slope / factor - 1) < 0.15:
            raise InputError(
                f"{name}: the force labels are {slope:.3g} times the predicted forces, so they look like {unit}; "
                "convert the labels to eV and eV/Å"
            )


def full_gradients_fit(potential: Potential, structures: int, memory_budget: int) -> bool:
    """Whether full gradients of so many structures take at most a quarter of the budget."""
    return structures * parameter_count(potential) * potential.dtype.itemsize <= memory_budget // 4
