"""Errors and metrics: the only place that computes them, so that one name means one quantity everywhere.

``force_error`` is the root mean square over the force components of one structure, ``force_rmse`` that over all force
components of a set. ``ence`` is the calibration error of the sigma that is given, ``ence_cross_fitted`` that of a sigma
fitted to the very structures it is judged on, in two halves, as in the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ase import units
from numpy.typing import NDArray

from adaptntk.core import metrics
from adaptntk.core.calibration import Calibration, conformal_quantile, cross_fitted_sigma
from adaptntk.core.metrics import Array
from adaptntk.data.structures import Structures, reference_energies, reference_forces, structure_sizes
from adaptntk.errors import InputError
from adaptntk.models.protocol import Predictions

KCAL_PER_MOL = units.kcal / units.mol
BOOTSTRAPS = 2000
# What labels look like, in eV and Å, when they were written in another unit of energy or force.
_UNITS = {"kcal/mol": 23.0605, "kJ/mol": 96.4853, "Hartree": 1 / 27.2114, "Hartree/Bohr": 1 / 51.4221}


def force_errors(predicted: Sequence[Array], structures: Structures) -> Array:
    """Root mean square over atoms and directions, one number per structure, eV/Å."""
    reference = reference_forces(structures)
    return np.array([np.sqrt(np.mean((p - r) ** 2)) for p, r in zip(predicted, reference, strict=True)])


def energy_errors(predicted: Array, structures: Structures) -> Array:
    """Predicted minus labelled total energy, eV."""
    return predicted - reference_energies(structures)


def force_rmse(errors: Array, sizes: Array) -> float:
    """Root mean square over all force components of a set, from the `force_errors` of structures of these sizes."""
    return float(np.sqrt(np.average(errors**2, weights=sizes)))


def force_rmse_interval(errors: Array, sizes: Array, confidence: float, seed: int) -> tuple[float, float]:
    """One-sided bounds of `force_rmse`, by resampling structures; each is passed with probability 1 - confidence."""
    samples = np.random.default_rng(seed).integers(0, len(errors), (BOOTSTRAPS, len(errors)))
    squares, weights = (errors**2 * sizes)[samples].sum(1), sizes[samples].sum(1)
    low, high = np.quantile(np.sqrt(squares / weights), [1 - confidence, confidence])
    return float(low), float(high)


@dataclass(frozen=True)
class ErrorSummary:
    """Errors on a set, eV and eV/Å; the tail as well as the mean.

    ``force_rmse_p99`` is the 99th percentile of the force errors of structures, ``hot_force_rmse`` that of the tenth
    with the highest energy per atom above what its elements account for.
    """

    force_rmse: float
    force_rmse_p99: float
    hot_force_rmse: float
    energy_mae: float
    energy_mae_per_atom: float


def summarise_errors(predicted: Predictions, structures: Structures) -> ErrorSummary:
    """What is said of a model's errors on labelled structures."""
    sizes = structure_sizes(structures).astype(float)
    errors = force_errors(predicted.forces, structures)
    energies = np.abs(energy_errors(predicted.energies, structures))
    hot = _hottest_tenth(structures, sizes)
    return ErrorSummary(
        force_rmse(errors, sizes),
        float(np.quantile(errors, 0.99)),
        force_rmse(errors[hot], sizes[hot]),
        float(energies.mean()),
        float((energies / sizes).mean()),
    )


def _hottest_tenth(structures: Structures, sizes: Array) -> NDArray[np.bool_]:
    energies = reference_energies(structures)
    numbers = sorted({int(z) for atoms in structures for z in atoms.numbers})
    counts = np.array([[np.count_nonzero(atoms.numbers == z) for z in numbers] for atoms in structures], dtype=float)
    excess = (energies - counts @ np.linalg.lstsq(counts, energies, rcond=None)[0]) / sizes
    return excess >= np.quantile(excess, 0.9)


def size_correlation(variance: Array, structures: Structures) -> float | None:
    """How far scores follow the number of atoms (Spearman); None if all structures have the same."""
    found = metrics.spearman(variance, structure_sizes(structures).astype(float))
    return found if np.isfinite(found) else None


def check_label_units(forces: Sequence[Array], structures: Structures, name: str) -> None:
    """Compare labelled with predicted forces: a good fit with the slope of another unit gives it away."""
    p, r = (np.concatenate([f.ravel() for f in part]) for part in (forces, reference_forces(structures)))
    if len(p) < 3 or np.std(p) == 0 or np.std(r) == 0 or np.corrcoef(p, r)[0, 1] < 0.9:
        return
    slope = float(p @ r / (p @ p))
    for unit, factor in _UNITS.items():
        if abs(slope / factor - 1) < 0.15:
            why = f"the force labels are {slope:.3g} times the predicted forces, so they look like {unit}"
            raise InputError(f"{name}: {why}; convert the labels to eV and eV/Å")


def ranking(variance: Array, errors: Array, rng: np.random.Generator) -> dict[str, Any]:
    """Spearman, Pearson (of the square root, a standard deviation, and of U itself as in the paper), AURC_n."""
    std, pair = np.sqrt(np.maximum(variance, 0.0)), (variance, errors)

    def retention(u: Array, e: Array) -> float:
        return metrics.normalised_aurc(u, e, np.random.default_rng(0))

    return {
        "spearman": metrics.spearman(variance, errors),
        "spearman_interval": metrics.bootstrap_interval(metrics.spearman, pair, rng),
        "pearson": metrics.pearson(std, errors),
        "pearson_interval": metrics.bootstrap_interval(metrics.pearson, (std, errors), rng),
        "pearson_of_variance": metrics.pearson(variance, errors),
        "aurc_n": metrics.normalised_aurc(variance, errors, rng),
        "aurc_n_interval": metrics.bootstrap_interval(retention, pair, rng, draws=200),
    }


def calibration_quality(variance: Array, sigma: Array, errors: Array, rng: np.random.Generator) -> dict[str, Any]:
    """ENCE of the given sigma, of one cross-fitted on these structures (paper), and their context."""
    cross_fitted = cross_fitted_sigma(variance, errors, rng)
    freedom = metrics.error_degrees_of_freedom(sigma, errors)
    constant = cross_fitted_sigma(np.ones_like(errors), errors, rng)

    def interval(s: Array) -> tuple[float, float]:
        return metrics.bootstrap_interval(metrics.ence, (s, errors), rng, draws=200)

    return {
        "ence": metrics.ence(sigma, errors),
        "ence_interval": interval(sigma),
        "ence_cross_fitted": metrics.ence(cross_fitted, errors),
        "ence_cross_fitted_interval": interval(cross_fitted),
        "ence_floor": metrics.ence_floor(sigma, freedom, rng),
        "ence_constant_sigma": metrics.ence(constant, errors),
    }


def observed_coverage(calibration: Calibration, variance: Array, errors: Array, coverage: float) -> dict[str, Any]:
    """How often the conformal bound holds, and how far from the stated coverage that may be by chance."""
    factor = conformal_quantile(calibration.ratios, coverage)
    if not np.isfinite(factor):
        return {"stated": coverage, "observed": None, "error_over_sigma": None}
    observed = float(np.mean(errors <= calibration.error_bound(variance, coverage)))
    # Calibration set and test set are both finite: the coverage seen scatters around the one stated.
    spread = np.sqrt(coverage * (1 - coverage) * (1 / len(calibration.ratios) + 1 / len(errors)))
    return {"stated": coverage, "observed": observed, "standard_error": float(spread), "error_over_sigma": factor}
