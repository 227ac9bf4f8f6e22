"""From learning curves to statements: labels saved, area, paired differences."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptntk.report.comparison import curve_area, labels_needed, ratio_interval

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
    return np.array([curve_area(labels, curve) for curve in curves])
