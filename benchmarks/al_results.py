"""From learning curves to statements: labels saved, area, paired differences."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]
Curve = list[dict[str, Any]]

METRICS = ("force_rmse", "force_rmse_p99", "hot_force_rmse", "energy_mae", "energy_mae_per_atom")


def summarise(curves: dict[str, list[Curve]], validation: int) -> dict[str, Any]:
    """Of each test set, metric and method: the mean curve, its area, and the labels that random's last error takes.

    ``curves`` holds a curve per seed for each method, over labels of the training set; those of the validation set
    count as well. Seeds are pairs: the same split and first model for all methods, so that ratios to random, and to
    AdaptNTK if it is there, are taken seed by seed and then averaged (geometrically), with a t-interval over seeds.
    """
    first = next(iter(curves.values()))[0]
    labels = np.array([point["labels"] + validation for point in first], dtype=float)
    result: dict[str, Any] = {"labels": [int(n) for n in labels]}
    for name in first[0]["errors"]:
        for metric in METRICS:
            values = {
                method: np.array([[point["errors"][name][metric] for point in curve] for curve in seeds])
                for method, seeds in curves.items()
            }
            result.setdefault(name, {})[metric] = {
                method: _statements(labels, errors, values["random"], values.get("adaptntk"))
                for method, errors in values.items()
            }
    return result


def _statements(labels: Array, errors: Array, random: Array, adaptntk: Array | None) -> dict[str, Any]:
    """What is said of one method; rows are seeds, columns checkpoints."""
    needed = [labels_needed(labels, curve, target) for curve, target in zip(errors, random[:, -1], strict=True)]
    known = [n for n in needed if n is not None]
    areas = _areas(labels, errors)
    return {
        "mean": errors.mean(axis=0).tolist(),
        "std": (errors.std(axis=0, ddof=1) if len(errors) > 1 else np.zeros(errors.shape[1])).tolist(),
        "area": float(np.exp(np.log(areas).mean())),
        "labels_to_random": {
            "mean": float(np.mean(known)) if len(known) == len(needed) else None,
            "by_seed": needed,
            "reached": len(known),
        },
        "final_over_random": ratio_interval(errors[:, -1], random[:, -1]),
        "area_over_random": ratio_interval(areas, _areas(labels, random)),
        "area_over_adaptntk": None if adaptntk is None else ratio_interval(areas, _areas(labels, adaptntk)),
    }


def _areas(labels: Array, curves: Array) -> Array:
    """Of each seed."""
    return np.exp([log_area(labels, curve) for curve in curves])


def labels_needed(labels: Array, errors: Array, target: float) -> float | None:
    """Where the curve first comes down to the target, straight lines between checkpoints on log axes; None if never."""
    below = np.nonzero(errors <= target)[0]
    if len(below) == 0:
        return None
    at = int(below[0])
    if at == 0:
        return float(labels[0])
    span = np.log(errors[at - 1]) - np.log(errors[at])
    share = (np.log(errors[at - 1]) - np.log(target)) / span
    return float(np.exp(np.log(labels[at - 1]) + share * (np.log(labels[at]) - np.log(labels[at - 1]))))


def log_area(labels: Array, errors: Array) -> float:
    """The mean of the logarithm of the error over the logarithm of the number of labels."""
    if len(labels) == 1:
        return float(np.log(errors[0]))
    x = np.log(labels)
    return float(np.trapezoid(np.log(errors), x) / (x[-1] - x[0]))


def ratio_interval(values: Array | Sequence[float], reference: Array | Sequence[float]) -> dict[str, float | None]:
    """The geometric mean of paired ratios and its 95 % t-interval over seeds (None with a single seed)."""
    logs = np.log(np.asarray(values) / np.asarray(reference))
    mean = float(logs.mean())
    if len(logs) < 2:
        return {"mean": float(np.exp(mean)), "low": None, "high": None}
    half = float(stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs)))
    return {"mean": float(np.exp(mean)), "low": float(np.exp(mean - half)), "high": float(np.exp(mean + half))}
