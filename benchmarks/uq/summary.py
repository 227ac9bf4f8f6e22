"""Metrics of several methods on the same structures, with intervals, from the arrays that were left on disk."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptntk.core import metrics
from adaptntk.core.calibration import REPORTED_COVERAGES, Calibration, cross_fitted_sigma, fit_variance
from adaptntk.evaluation import force_rmse

Array = NDArray[np.float64]

DRAWS = 300
# Whose error a score is compared with: that of the method's own model (paper), or that of one model for all.
ERRORS = ("own", "common")
Statistic = Callable[[Array, Array, Array], float]

# Of (variance, cross-fitted sigma, error); resampled together.
STATISTICS: dict[str, Statistic] = {
    "spearman": lambda variance, sigma, error: metrics.spearman(variance, error),
    "pearson": lambda variance, sigma, error: metrics.pearson(np.sqrt(variance), error),
    "aurc_n": lambda variance, sigma, error: metrics.normalised_aurc(variance, error, np.random.default_rng(0)),
    "ence_cross_fitted": lambda variance, sigma, error: metrics.ence(sigma, error),
}


def summarise(loaded: Sequence[dict[str, dict[str, Any]]], methods: Sequence[str]) -> dict[str, Any]:
    """Metrics of one molecule. ``loaded`` holds, for each seed, the arrays of each method and of ``common``.

    Every number is the mean over seeds, with the numbers of the seeds beside it; intervals (95 %) come from resampling
    the structures of each seed, the same ones for all methods, so that differences to ``ntk`` are paired.
    """
    result: dict[str, Any] = {
        "force_rmse": _over_seeds([_common_rmse(seed["common"], "evaluation") for seed in loaded]),
        "train_force_rmse": _over_seeds([_common_rmse(seed["common"], "train") for seed in loaded]),
        "constant_sigma": {"ence_cross_fitted": _over_seeds([_constant_ence(seed["common"]) for seed in loaded])},
        "methods": {name: {"kind": str(loaded[0][name]["evaluation_kind"])} for name in methods},
    }
    for name in methods:
        if "evaluation_atoms_score_within" in loaded[0][name]:
            result["methods"][name]["atoms"] = _atoms(loaded, name)
    for which in ERRORS:
        draws: dict[str, dict[str, Array]] = {}
        for name in methods:
            columns = [_columns(seed, name, which) for seed in loaded]
            points = [_points(seed) for seed in columns]
            entry = {key: _over_seeds([seed[key] for seed in points]) for key in points[0]}
            draws[name] = {key: _resampled(columns, statistic) for key, statistic in STATISTICS.items()}
            for key, values in draws[name].items():
                entry[key] |= _interval(entry[key]["mean"], values)
            result["methods"][name][which] = entry
        for name in methods:
            result["methods"][name][which]["difference_to_ntk"] = {
                key: _difference(result, name, which, key, draws[name][key] - draws["ntk"][key])
                for key in ("spearman", "aurc_n")
            }
    return result


def evaluation_columns(seed: dict[str, dict[str, Any]], methods: Sequence[str]) -> dict[str, Sequence[Any]]:
    """What figures need of one seed: scores, cross-fitted sigmas and errors of each evaluation structure."""
    columns: dict[str, Sequence[Any]] = {
        "structure": seed["common"]["evaluation_structures"].tolist(),
        "common_error": seed["common"]["evaluation_error"].tolist(),
    }
    for name in methods:
        arrays = _columns(seed, name, "own")
        columns |= {f"{name}_{key}": arrays[key].tolist() for key in ("variance", "sigma", "error")}
    return columns


def _columns(seed: dict[str, dict[str, Any]], name: str, which: str) -> dict[str, Array]:
    """The arrays of one method against one kind of error."""
    arrays, common = seed[name], seed["common"]
    errors = {
        part: (arrays if which == "own" else common)[f"{part}_error"].astype(float)
        for part in ("calibration", "evaluation")
    }
    variance = arrays["evaluation_variance"]
    rng = np.random.default_rng(0)
    return {
        "variance": variance,
        "score": arrays["evaluation_score"],
        "error": errors["evaluation"],
        "sigma": cross_fitted_sigma(variance, errors["evaluation"], rng),
        "calibration_variance": arrays["calibration_variance"],
        "calibration_error": errors["calibration"],
        "calibration_energy_error": arrays["calibration_energy_error"],
        "evaluation_atoms": common["evaluation_atoms"],
    }


def _points(columns: dict[str, Array]) -> dict[str, float | None]:
    """Every metric of one seed."""
    rng = np.random.default_rng(0)
    variance, sigma, error = columns["variance"], columns["sigma"], columns["error"]
    fitted_on = columns["calibration_variance"], columns["calibration_error"]
    calibration = Calibration.fit(*fitted_on, columns["calibration_energy_error"], rng)
    found = {key: statistic(variance, sigma, error) for key, statistic in STATISTICS.items()}
    found |= {
        "force_rmse": force_rmse(error, columns["evaluation_atoms"]),
        "pearson_of_score": metrics.pearson(columns["score"], error),
        "ence_cross_fitted_of_score": metrics.ence(cross_fitted_sigma(columns["score"], error, rng), error),
        "ence": metrics.ence(fit_variance(*fitted_on).sigma(variance), error),
        "ence_cross_fitted_floor": metrics.ence_floor(sigma, metrics.error_degrees_of_freedom(sigma, error), rng),
    }
    for coverage in REPORTED_COVERAGES:
        found[f"coverage_{coverage:g}"] = float(np.mean(error <= calibration.error_bound(variance, coverage)))
    return {key: value if np.isfinite(value) else None for key, value in found.items()}


def _resampled(columns: Sequence[dict[str, Array]], statistic: Statistic) -> Array:
    """The mean over seeds of a statistic, for each resampling of the structures."""
    total = np.zeros(DRAWS)
    for number, seed in enumerate(columns):
        size = len(seed["error"])
        samples = np.random.default_rng([number, size]).integers(0, size, (DRAWS, size))
        total += [statistic(seed["variance"][s], seed["sigma"][s], seed["error"][s]) for s in samples]
    return total / len(columns)


def _over_seeds(values: Sequence[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    return {"mean": float(np.mean(known)) if len(known) == len(values) else None, "by_seed": list(values)}


def _interval(mean: float | None, values: Array) -> dict[str, float | None]:
    if mean is None or not np.isfinite(values).all():
        return {"low": None, "high": None}
    low, high = metrics.centred_interval(mean, values)
    return {"low": low, "high": high}


def _difference(result: dict[str, Any], name: str, which: str, key: str, values: Array) -> dict[str, float | None]:
    own, ntk = (result["methods"][method][which][key]["mean"] for method in (name, "ntk"))
    mean = None if own is None or ntk is None else own - ntk
    return {"mean": mean} | _interval(mean, values)


def _constant_ence(common: dict[str, Any]) -> float:
    error = common["evaluation_error"]
    return metrics.ence(cross_fitted_sigma(np.ones_like(error), error, np.random.default_rng(0)), error)


def _common_rmse(common: dict[str, Any], part: str) -> float | None:
    if f"{part}_error" not in common:  # in what was written before it was asked for
        return None
    return force_rmse(common[f"{part}_error"], common[f"{part}_atoms"])


def _atoms(loaded: Sequence[dict[str, dict[str, Any]]], name: str) -> dict[str, Any]:
    """How well the score of atoms ranks their errors, and an error model of it, and the size of the predicted force."""
    return {
        key: {
            which: _over_seeds([float(seed[name][f"evaluation_atoms_{key}_{which}"]) for seed in loaded])
            for which in ("within", "over_all")
        }
        for key in ("score", "model", "force_size")
        if all(f"evaluation_atoms_{key}_within" in seed[name] for seed in loaded)
    }
