"""How good a fitted uncertainty is on labelled structures it has not seen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ase import Atoms, units
from numpy.typing import NDArray

from adaptntk.core import metrics
from adaptntk.core.calibration import REPORTED_COVERAGES, conformal_quantile, cross_fitted_sigma
from adaptntk.data.structures import NO_LABELS, has_labels, reference_energies, reference_forces, structure_hash
from adaptntk.errors import InputError
from adaptntk.progress import Progress, silent
from adaptntk.uncertainty.load import Fitted
from adaptntk.uncertainty.ntk import check_label_units

Array = NDArray[np.float64]

KCAL_PER_MOL = units.kcal / units.mol


@dataclass(frozen=True)
class Evaluation:
    """Metrics by name, and the per-structure columns they were computed from."""

    metrics: dict[str, Any]
    columns: dict[str, list[Any]]


def evaluate(
    uncertainty: Fitted,
    test: Sequence[Atoms],
    name: str = "test set",
    batch_size: int = 16,
    seed: int = 0,
    progress: Progress = silent,
) -> Evaluation:
    """Score labelled structures and compare with the true errors of the model.

    Structures of the training set are refused: their errors say nothing about new ones.
    """
    if uncertainty.calibration is None:
        raise InputError("the uncertainty is not calibrated: fit it with a validation set")
    if len(test) < 20:
        raise InputError(f"{name}: {len(test)} structures are too few to evaluate on; give at least 20")
    known, used = set(uncertainty.train_hashes), set(uncertainty.calibration_hashes)
    hashes = [structure_hash(atoms) for atoms in test]
    for index, (atoms, identity) in enumerate(zip(test, hashes, strict=True)):
        if not has_labels(atoms):
            raise InputError(f"{name}, frame {index}: {NO_LABELS}")
        if identity in known:
            raise InputError(f"{name}, frame {index}: is also in the training set; remove it")
        if identity in used:
            raise InputError(f"{name}, frame {index}: was used to calibrate this uncertainty; remove it")
    predicted = uncertainty.assess(test, batch_size, progress)
    scores = uncertainty.scores_of_variance(predicted.variance, test)
    check_label_units(predicted.forces, test, name)
    force_errors = metrics.force_rmse(predicted.forces, reference_forces(test))
    energy_errors = np.abs(predicted.energies - reference_energies(test))
    assert scores.sigma is not None
    assert scores.energy_sigma is not None
    sizes = np.array([len(atoms) for atoms in test], dtype=float)
    rng = np.random.default_rng(seed)
    result: dict[str, Any] = {
        "method": uncertainty.name,
        "structures": len(test),
        "force_rmse": float(np.sqrt(np.average(force_errors**2, weights=sizes))),
        "energy_mae": float(energy_errors.mean()),
        "energy_mae_per_atom": float((energy_errors / sizes).mean()),
    }
    result |= ranking(scores.variance, force_errors, rng)
    result |= calibration_quality(scores.variance, scores.sigma, force_errors, rng)
    result["conformal"] = {
        str(coverage): _coverage(uncertainty, scores.variance, force_errors, coverage)
        for coverage in REPORTED_COVERAGES
    }
    # The trivial rival: high-energy frames are both rarer and harder. A score should beat it.
    result["control_predicted_energy_spearman"] = metrics.spearman(predicted.energies / sizes, force_errors)
    result["correlation_with_size"] = metrics.spearman(scores.variance, sizes)
    columns = {
        "frame": list(range(len(test))),
        "structure": hashes,
        f"{uncertainty.name}_variance": scores.variance.tolist(),
        "forces_uncertainty": scores.sigma.tolist(),
        "energy_uncertainty": scores.energy_sigma.tolist(),
        "force_rmse": force_errors.tolist(),
        "energy_error": energy_errors.tolist(),
        "predicted_energy": predicted.energies.tolist(),
        "atoms": [len(atoms) for atoms in test],
    }
    return Evaluation({key: _json_value(value) for key, value in result.items()}, columns)


def ranking(variance: Array, errors: Array, rng: np.random.Generator) -> dict[str, Any]:
    """Spearman, Pearson (of the square root, a standard deviation, and of U itself as in the paper), AURC_n."""
    std = np.sqrt(np.maximum(variance, 0.0))
    rank_arrays = (variance, errors)

    def retention(u: Array, e: Array) -> float:
        return metrics.normalised_aurc(u, e, np.random.default_rng(0))

    return {
        "spearman": metrics.spearman(variance, errors),
        "spearman_interval": metrics.bootstrap_interval(metrics.spearman, rank_arrays, rng),
        "pearson": metrics.pearson(std, errors),
        "pearson_interval": metrics.bootstrap_interval(metrics.pearson, (std, errors), rng),
        "pearson_of_variance": metrics.pearson(variance, errors),
        "aurc_n": metrics.normalised_aurc(variance, errors, rng),
        "aurc_n_interval": metrics.bootstrap_interval(retention, rank_arrays, rng, draws=200),
    }


def calibration_quality(variance: Array, sigma: Array, errors: Array, rng: np.random.Generator) -> dict[str, Any]:
    """ENCE of the stored sigma, of a sigma cross-fitted on these structures (paper), and its context."""
    cross_fitted = cross_fitted_sigma(variance, errors, rng)
    freedom = metrics.error_degrees_of_freedom(sigma, errors)
    constant = cross_fitted_sigma(np.ones_like(errors), errors, rng)
    interval: Callable[[Array], tuple[float, float]] = lambda s: metrics.bootstrap_interval(  # noqa: E731
        metrics.ence, (s, errors), rng, draws=200
    )
    return {
        "ence": metrics.ence(sigma, errors),
        "ence_interval": interval(sigma),
        "ence_cross_fitted": metrics.ence(cross_fitted, errors),
        "ence_cross_fitted_interval": interval(cross_fitted),
        "ence_floor": metrics.ence_floor(sigma, freedom, rng),
        "ence_constant_sigma": metrics.ence(constant, errors),
    }


def _json_value(value: Any) -> Any:
    """JSON has no NaN: a correlation with a constant is null."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _coverage(uncertainty: Fitted, variance: Array, errors: Array, coverage: float) -> dict[str, Any]:
    assert uncertainty.calibration is not None
    factor = conformal_quantile(uncertainty.calibration.ratios, coverage)
    if not np.isfinite(factor):
        return {"stated": coverage, "observed": None, "error_over_sigma": None}
    observed = float(np.mean(errors <= uncertainty.calibration.error_bound(variance, coverage)))
    # Calibration set and test set are both finite: the coverage seen scatters around the one stated.
    spread = np.sqrt(coverage * (1 - coverage) * (1 / len(uncertainty.calibration.ratios) + 1 / len(errors)))
    return {
        "stated": coverage,
        "observed": observed,
        "standard_error": float(spread),
        "error_over_sigma": factor,
    }
