"""Learning curves beside one another: labels needed for the same error, areas, ratios of pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from adaptntk.campaign.layout import RunDirectory
from adaptntk.report.tables import aligned

Array = NDArray[np.float64]

MEASURED = ("force_rmse", "force_rmse_p99")


@dataclass(frozen=True)
class Curve:
    """Errors on test structures after each round of a campaign, against the labels spent by then."""

    labels: list[int]
    errors: dict[str, list[float]]

    @classmethod
    def of_run(cls, run: Path) -> "Curve":
        """From a run directory."""
        summaries = [summary for entry in RunDirectory(run).rounds() if (summary := entry.summary.read()) is not None]
        tested = [summary.test for summary in summaries if summary.test is not None]
        errors = {name: [getattr(record, name) for record in tested] for name in MEASURED}
        return cls([summary.labels_spent for summary in summaries], errors)

    def needed(self, target: float) -> float | None:
        """Labels until the force RMSE comes down to a target."""
        return labels_needed(np.array(self.labels, dtype=float), np.array(self.errors["force_rmse"]), target)

    def content(self) -> dict[str, Any]:
        """For JSON."""
        return {"labels": self.labels, **self.errors}

    def area(self, name: str) -> float:
        """The geometric mean of an error over the whole curve."""
        return curve_area(np.array(self.labels, dtype=float), np.array(self.errors[name]))


def labels_needed(labels: Array, errors: Array, target: float) -> float | None:
    """Where the curve first comes down to the target, straight lines between points on log axes; None if never."""
    below = np.nonzero(errors <= target)[0]
    if len(below) == 0:
        return None
    at = int(below[0])
    if at == 0:
        return float(labels[0])
    (before, after), (high, low) = np.log(labels[at - 1 : at + 1]), np.log(errors[at - 1 : at + 1])
    return float(np.exp(before + (high - np.log(target)) / (high - low) * (after - before)))


def curve_area(labels: Array, errors: Array) -> float:
    """The geometric mean of the error over the logarithm of the number of labels."""
    if len(labels) == 1:
        return float(errors[0])
    x = np.log(labels)
    return float(np.exp(np.trapezoid(np.log(errors), x) / (x[-1] - x[0])))


def ratio_interval(values: Array | Sequence[float], reference: Array | Sequence[float]) -> dict[str, float | None]:
    """The geometric mean of paired ratios and its 95 % t-interval over seeds (None with a single seed)."""
    logs = np.log(np.asarray(values) / np.asarray(reference))
    mean = logs.mean()
    if len(logs) < 2:
        return {"mean": float(np.exp(mean)), "low": None, "high": None}
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    return {"mean": float(np.exp(mean)), "low": float(np.exp(mean - half)), "high": float(np.exp(mean + half))}


def show_ratio(value: Mapping[str, float | None]) -> str:
    """A ratio with its interval, if it has one."""
    text = f"{value['mean']:.3f}"
    return text if value["low"] is None else f"{text} ({value['low']:.3f} .. {value['high']:.3f})"


def compare_curves(curves: Mapping[str, Sequence[Curve]]) -> dict[str, Any]:
    """What is said of each way to select; ``curves`` holds one per seed, and ``random`` is what all are measured by."""
    random = curves["random"]
    last = [curve.errors["force_rmse"][-1] for curve in random]

    def areas(found: Sequence[Curve], name: str) -> dict[str, float | None]:
        return ratio_interval([curve.area(name) for curve in found], [curve.area(name) for curve in random])

    return {
        method: {
            "labels_to_random": [curve.needed(target) for curve, target in zip(found, last, strict=True)],
            "final_over_random": ratio_interval([curve.errors["force_rmse"][-1] for curve in found], last),
            "area_over_random": areas(found, "force_rmse"),
            "p99_area_over_random": areas(found, "force_rmse_p99"),
        }
        for method, found in curves.items()
    }


def comparison_table(curves: Mapping[str, Sequence[Curve]], summary: Mapping[str, Any]) -> str:
    """Markdown: errors after each round, means over seeds, and the labels for random's last error."""
    ratios = {"area, over random": "area_over_random", "area of the 99th percentile": "p99_area_over_random"}
    labels = next(iter(curves.values()))[0].labels
    rows = [["selection", *(f"{n} labels" for n in labels), *ratios, "labels to random's last"]]
    for method, found in curves.items():
        errors = 1000 * np.mean([curve.errors["force_rmse"] for curve in found], axis=0)
        shown = ["1" if method == "random" else show_ratio(summary[method][name]) for name in ratios.values()]
        needed = ", ".join("never" if n is None else f"{n:.0f}" for n in summary[method]["labels_to_random"])
        rows.append([method, *(f"{e:.1f}" for e in errors), *shown, needed])
    count = len(curves["random"])
    head = f"Force RMSE (meV/Å) on common test structures, mean of {count} seed{'s' if count > 1 else ''}:"
    return "\n".join([head, "", *aligned(rows), ""])


def labels_sentence(random: Curve, needed: float | None) -> str:
    """How many labels AdaptNTK needed for the last error of random picks, in one line."""
    spent, reached = random.labels[-1], 1000 * random.errors["force_rmse"][-1]
    if needed is None:
        return f"{spent} labels did not bring AdaptNTK to what {spent} random ones reach ({reached:.0f} meV/Å)"
    return f"{needed:.0f} labels of AdaptNTK do what {spent} random ones do ({reached:.0f} meV/Å)"
