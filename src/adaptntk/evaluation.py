"""Errors and metrics: the only place that computes them, so that one name means one quantity everywhere.

``force_error`` is the root mean square over the force components of one structure, ``force_rmse`` that over all force
components of a set. ``energy_error`` is predicted minus labelled total energy; a part of it is often an offset that all
structures share and that cancels in differences. NaN stands for what has no label. ``ence`` is the calibration error of
the sigma that is given, ``ence_cross_fitted`` that of a sigma fitted to the very structures it is judged on, in two
halves, as in the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from ase import units
from numpy.typing import NDArray

from adaptntk.core import metrics
from adaptntk.core.calibration import conformal_quantile, cross_fitted_sigma, grouped_quantile
from adaptntk.core.metrics import Array
from adaptntk.data.labels import reference_stresses
from adaptntk.data.structures import Structures, reference_energies, reference_forces, structure_sizes
from adaptntk.errors import InputError


class Predicted(Protocol):
    """Energies (eV) and forces (eV/Å) of structures, whoever says so."""

    @property
    def energies(self) -> Array: ...

    @property
    def forces(self) -> Sequence[Array]: ...


KCAL_PER_MOL = units.kcal / units.mol
BOOTSTRAPS = 2000
# What labels look like, in eV and Å, when they were written in another unit of energy or force.
_UNITS = {"kcal/mol": 23.0605, "kJ/mol": 96.4853, "Hartree": 1 / 27.2114, "Hartree/Bohr": 1 / 51.4221}


def force_errors(predicted: Sequence[Array], structures: Structures) -> Array:
    """Root mean square over atoms and directions, one number per structure, eV/Å; NaN without labels."""
    reference = reference_forces(structures)
    return np.array([np.sqrt(np.mean((p - r) ** 2)) for p, r in zip(predicted, reference, strict=True)])


def atom_errors(predicted: Sequence[Array], structures: Structures) -> list[Array]:
    """Root mean square over the three directions, one number per atom of each structure, eV/Å; NaN without labels."""
    reference = reference_forces(structures)
    return [np.sqrt(np.mean((p - r) ** 2, axis=1)) for p, r in zip(predicted, reference, strict=True)]


def energy_errors(predicted: Array, structures: Structures) -> Array:
    """Predicted minus labelled total energy, eV; NaN without labels."""
    return predicted - reference_energies(structures)


def ranked_errors(predicted: Predicted, structures: Structures) -> Array:
    """What scores are to rank: force errors, or where no forces are labelled energy errors per atom without the mean.

    NaN for structures without that label.
    """
    errors = force_errors(predicted.forces, structures)
    if np.isfinite(errors).any():
        return errors
    energies = energy_errors(predicted.energies, structures) / structure_sizes(structures)
    return np.abs(energies - np.nanmean(energies))


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
    with the highest energy per atom above what its elements account for. What no structure has labels for is NaN.
    """

    force_rmse: float
    force_rmse_p99: float
    hot_force_rmse: float
    energy_mae: float
    energy_mae_per_atom: float


def summarise_errors(predicted: Predicted, structures: Structures) -> ErrorSummary:
    """What is said of a model's errors on labelled structures."""
    sizes, errors = structure_sizes(structures).astype(float), force_errors(predicted.forces, structures)
    labels = reference_energies(structures)
    energies = np.abs(predicted.energies - labels)
    forces, energy = np.isfinite(errors), np.isfinite(energies)
    found = dict.fromkeys((field.name for field in fields(ErrorSummary)), float("nan"))
    if forces.any():
        found["force_rmse"] = force_rmse(errors[forces], sizes[forces])
        found["force_rmse_p99"] = float(np.quantile(errors[forces], 0.99))
    if (forces & energy).any():
        hot = _hottest_tenth(structures, np.where(forces, labels, np.nan))
        found["hot_force_rmse"] = force_rmse(errors[hot], sizes[hot])
    if energy.any():
        found["energy_mae"] = float(energies[energy].mean())
        found["energy_mae_per_atom"] = float((energies / sizes)[energy].mean())
    return ErrorSummary(**found)


def _hottest_tenth(structures: Structures, energies: Array) -> NDArray[np.bool_]:
    numbers = sorted({int(z) for atoms in structures for z in atoms.numbers})
    counts = np.array([[np.count_nonzero(atoms.numbers == z) for z in numbers] for atoms in structures], dtype=float)
    known = np.isfinite(energies)
    excess = (energies - counts @ np.linalg.lstsq(counts[known], energies[known], rcond=None)[0]) / counts.sum(axis=1)
    return excess >= np.quantile(excess[known], 0.9)


def size_correlation(variance: Array, structures: Structures) -> float | None:
    """How far scores follow the number of atoms (Spearman); None if all structures have the same."""
    found = metrics.spearman(variance, structure_sizes(structures).astype(float))
    return found if np.isfinite(found) else None


def check_label_units(predicted: Predicted, structures: Structures, name: str) -> None:
    """Compare labelled with predicted forces: a good fit with the slope of another unit gives it away.

    Where there are no forces, the differences of energies.
    """
    what, pair = "forces", (predicted.forces, reference_forces(structures))
    p, r = (np.concatenate([f.ravel() for f in part]) for part in pair)
    if not np.isfinite(r).any():
        what, p, r = "energies", predicted.energies, reference_energies(structures)
        p, r = p - np.nanmean(p), r - np.nanmean(r)
    known = np.isfinite(r)
    p, r = p[known], r[known]
    if len(p) < 3 or np.std(p) == 0 or np.std(r) == 0 or np.corrcoef(p, r)[0, 1] < 0.9:
        return
    slope = float(p @ r / (p @ p))
    for unit, factor in _UNITS.items():
        if abs(slope / factor - 1) < 0.15:
            why = f"the labelled {what} are {slope:.3g} times the predicted ones, so they look like {unit}"
            raise InputError(f"{name}: {why}; convert the labels to eV and eV/Å")


def check_predicted(predicted: Predicted, name: str) -> None:
    """Refuse what a network broke down on: an error that is no number must not pass for a missing label."""
    for index, (energy, forces) in enumerate(zip(predicted.energies, predicted.forces, strict=True)):
        if not (np.isfinite(energy) and np.isfinite(forces).all()):
            raise InputError(f"{name}, frame {index}: the model predicts no finite energy and forces; remove the frame")


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


def observed_coverage(ratios: Array, sigma: Array, errors: Array, coverage: float) -> dict[str, Any]:
    """How often the conformal bound holds, and how far from the stated coverage that may be by chance.

    ``ratios`` are the errors over sigma of the calibration.
    """
    factor = conformal_quantile(ratios, coverage)
    if not np.isfinite(factor):
        return {"stated": coverage, "observed": None, "error_over_sigma": None}
    observed = float(np.mean(errors <= sigma * factor))
    # Calibration set and test set are both finite: the coverage seen scatters around the one stated.
    spread = np.sqrt(coverage * (1 - coverage) * (1 / len(ratios) + 1 / len(errors)))
    return {"stated": coverage, "observed": observed, "standard_error": float(spread), "error_over_sigma": factor}


def atom_coverage(
    ratios: Array, worst: Array, sigma: Sequence[Array], errors: Sequence[Array], coverage: float
) -> dict[str, Any]:
    """How often the bound of an atom holds, and that of all atoms of a structure together.

    ``ratios`` are the errors over sigma of the atoms of the calibration, ``worst`` the largest of each structure. Atoms
    of a structure are alike, so chance is counted in structures.
    """
    found = observed_coverage(worst, np.ones(len(errors)), _largest_ratios(sigma, errors), coverage)
    factor = grouped_quantile(ratios, coverage, len(worst))
    every = {"all_" + key: value for key, value in found.items() if key in ("observed", "error_over_sigma")}
    if not np.isfinite(factor):
        return {"stated": coverage, "observed": None, "error_over_sigma": None} | every
    observed = float(np.mean(np.concatenate(errors) <= np.concatenate(sigma) * factor))
    spread = np.sqrt(coverage * (1 - coverage) * (1 / len(worst) + 1 / len(errors)))
    mean = {"stated": coverage, "observed": observed, "standard_error": float(spread), "error_over_sigma": factor}
    return mean | every


def _largest_ratios(sigma: Sequence[Array], errors: Sequence[Array]) -> Array:
    return np.array([np.max(e / s) for s, e in zip(sigma, errors, strict=True)])


def atom_ranking(scores: Sequence[Array], errors: Sequence[Array]) -> dict[str, float | None]:
    """How well scores rank the errors of atoms: within a structure, averaged over all, and over the atoms of all."""
    found = [metrics.spearman(score, error) for score, error in zip(scores, errors, strict=True) if len(error) > 2]
    defined = [value for value in found if value is not None and np.isfinite(value)]
    within = float(np.mean(defined)) if defined else None
    return {"within": within, "over_all": metrics.spearman(np.concatenate(scores), np.concatenate(errors))}


def energy_summary(errors: Array, sizes: Array, offsets: Array) -> dict[str, float]:
    """Bias, MAE and RMSE of energies (eV), in all and per atom, with and without the ``offsets`` of a calibration."""
    found = {"offset": float(errors.mean()), "offset_per_atom": float((errors / sizes).mean())}
    found |= {"offset_removed": float(offsets.mean()), "offset_removed_per_atom": float((offsets / sizes).mean())}
    for which, values in (("", errors), ("_without_offset", errors - offsets)):
        for unit, scaled in (("", values), ("_per_atom", values / sizes)):
            found[f"mae{which}{unit}"] = float(np.abs(scaled).mean())
            found[f"rmse{which}{unit}"] = float(np.sqrt((scaled**2).mean()))
    return found


def stress_summary(predicted: Sequence[Array | None], structures: Structures) -> dict[str, float] | None:
    """MAE and RMSE of the components of the stress, eV/Å^3, and of how many structures; None without labels."""
    pairs = zip(predicted, reference_stresses(structures), strict=True)
    errors = [p - r for p, r in pairs if p is not None and r is not None]
    if not errors:
        return None
    found = np.array(errors)
    mae, rmse = float(np.abs(found).mean()), float(np.sqrt(np.mean(found**2)))
    return {"structures": len(errors), "mae": mae, "rmse": rmse}


def energy_sigma_quality(variance: Array, sigma: Array, remaining: Array, rng: np.random.Generator) -> dict[str, Any]:
    """Ranking and calibration of energy sigmas, and how many errors without the offset are within one and two."""
    errors = np.abs(remaining)
    return {
        "spearman": metrics.spearman(sigma, errors),
        "spearman_interval": metrics.bootstrap_interval(metrics.spearman, (sigma, errors), rng),
        "spearman_attainable": metrics.attainable_spearman(sigma, rng),
        **calibration_quality(variance, sigma, errors, rng),
        "within_1_sigma": float(np.mean(errors <= sigma)),
        "within_2_sigma": float(np.mean(errors <= 2 * sigma)),
    }
