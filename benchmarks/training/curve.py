"""A training seen from outside: the errors of the network that it would hand over, against the time it took."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from adaptntk.evaluation import summarise_errors
from adaptntk.models.protocol import Potential

Array = NDArray[np.float64]
Frames = dict[str, list[Atoms]]
MOMENTS = 40
METRICS = ("force_rmse", "energy_mae_per_atom")


@dataclass(frozen=True)
class Point:
    """The network held after so many seconds of the processor and of the clock; test errors in meV/Å and meV."""

    seconds: float
    wall: float
    force_rmse: float
    energy_mae_per_atom: float


@dataclass(frozen=True)
class Run:
    """One training, and what came of it; the last point is the network that was handed over in the end.

    Args:
        train: errors of that network on its training set.
        details: of the program that trained it.
    """

    points: list[Point]
    train: dict[str, float]
    steps: int
    parameters: int
    details: dict[str, Any]

    def record(self) -> dict[str, Any]:
        """Plain values, in few digits."""
        return asdict(self) | {"points": [{k: round(v, 4) for k, v in asdict(p).items()} for p in self.points]}


def moments(seconds: float | None) -> Array:
    """When a training of that length is looked at: evenly in the logarithm, from a fiftieth of it on.

    One whose length is not known may take anything up to hours.
    """
    return np.geomspace(1.0, 10_000.0, 2 * MOMENTS) if seconds is None else np.geomspace(seconds / 50, seconds, MOMENTS)


def measure(potential: Potential, frames: Sequence[Atoms]) -> dict[str, float]:
    """Errors on labelled structures as a user gets them, in meV/Å and meV."""
    found = asdict(summarise_errors(potential.predict(frames, batch_size=20), frames))
    return {metric: 1e3 * found[metric] for metric in METRICS}


def at(times: Array, points: Sequence[dict[str, float]], metric: str) -> Array:
    """Errors at these times, between points on a line of the logarithms.

    NaN before the first point. After the last, the network is there and does not change any more.
    """
    seconds = np.log([point["seconds"] for point in points])
    errors = np.log([point[metric] for point in points])
    return np.exp(np.interp(np.log(times), seconds, errors, left=np.nan))


def median_curve(times: Array, runs: Sequence[dict[str, Any]], metric: str) -> Array:
    """The median over seeds; NaN until all of them have begun."""
    return np.median([at(times, run["points"], metric) for run in runs], axis=0)


def final(runs: Sequence[dict[str, Any]], metric: str) -> float:
    """The median error of what was handed over."""
    return float(np.median([run["points"][-1][metric] for run in runs]))
