"""What the curves say: errors at given times, ours against theirs, and whether what was promised is reached."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.training.curve import final, median_curve, moments
from benchmarks.training.plan import BEFORE, OURS, PLANS, QUICK, THEIRS

# Seconds of a training that are not looked at when two are compared: both sides are still finding their feet.
FIRST_MINUTE = 60.0
FORCES = "force_rmse"
Runs = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Comparison:
    """Ours over theirs, of medians over the seeds that both have: the largest ratio, when it was, and that at the end.

    ``worst`` is None if nobody trained for longer than the first minute.
    """

    worst: float | None
    worst_at: float | None
    end: float


@dataclass(frozen=True)
class Goal:
    """Something that must be reached: at most ``limit``; None if it was not measured. The note is what it rests on."""

    name: str
    value: float | None
    limit: float
    unit: str = ""
    note: str = ""

    @property
    def met(self) -> bool:
        return self.value is not None and self.value <= self.limit

    def line(self) -> str:
        """Rounded up, for less is better."""
        if self.value is None:
            return f"{self.name}: not measured (at most {self.limit:g}{self.unit})"
        shown = math.ceil(1000 * self.value) / 1000
        verdict = "met" if self.met else "NOT met"
        note = f" ({self.note})" if self.note else ""
        return f"{self.name}: {shown:.3f}{self.unit}, must be at most {self.limit:g}{self.unit}: {verdict}{note}"


def budget(runs: Runs) -> float:
    """Seconds that entrants of the study had."""
    known = [run["identity"]["seconds"] for several in runs.values() for run in several]
    longest = max(run["points"][-1]["seconds"] for several in runs.values() for run in several)
    return float(next((seconds for seconds in known if seconds is not None), longest))


def shared(runs: Runs, *names: str) -> list[list[dict[str, Any]]] | None:
    """The runs of each of them with the seeds that all have; None if there are none."""
    seeds = set.intersection(*({run["seed"] for run in runs.get(name, [])} for name in names))
    found = [[run for run in runs.get(name, []) if run["seed"] in seeds] for name in names]
    return found if seeds else None


def compare(runs: Runs, metric: str, ours: str = OURS, theirs: str = THEIRS) -> Comparison | None:
    """Ours against theirs at all times after the first minute, and in the end."""
    pair = shared(runs, ours, theirs)
    if pair is None:
        return None
    times = np.array([time for time in moments(budget(runs)) if time >= FIRST_MINUTE])
    ratios = median_curve(times, pair[0], metric) / median_curve(times, pair[1], metric)
    end = final(pair[0], metric) / final(pair[1], metric)
    if not np.isfinite(ratios).any():
        return Comparison(None, None, end)
    place = int(np.nanargmax(ratios))
    return Comparison(float(ratios[place]), float(times[place]), end)


def goals(data: dict[str, Any]) -> list[Goal]:
    """All that must be reached, of the race on the four data sets; shorter races than planned do not count."""
    runs: dict[str, Runs] = {name: data[name]["runs"] if name in data else {} for name in PLANS["full"].data}
    found = [_over_before(runs["ethanol"], *goal) for goal in ((QUICK, 1, 0.65), (OURS, 10, 0.35))]
    found.append(_within(runs["naphthalene"], 900.0, 25.0))
    for name, several in runs.items():
        pair = shared(several, OURS, THEIRS)
        long_enough = pair is not None and budget(several) >= PLANS["full"].data[name].seconds
        seen = compare(several, FORCES) if long_enough else None
        note = _times(*pair) if pair else ""
        found += [
            Goal(
                f"{name}, largest ratio to {THEIRS} after the first minute",
                seen.worst if seen else None,
                1.0,
                note=note,
            ),
            Goal(f"{name}, ratio to {THEIRS} at the end", seen.end if seen else None, 0.9, note=note),
        ]
    return found


def _times(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> str:
    """What each took: the pace is estimated beforehand, and one may get a little more than the other."""
    ends = [float(np.median([run["points"][-1]["seconds"] for run in runs])) for runs in (ours, theirs)]
    return f"in {ends[0]:.1f} s against {ends[1]:.1f} s, {len(ours)} seed{'s' * (len(ours) > 1)}"


def _over_before(runs: Runs, who: str, times: int, limit: float) -> Goal:
    name = f"ethanol, {who} in {times} x the time of {BEFORE}, over its error"
    pair = shared(runs, f"{who}-{times}x", BEFORE)
    if pair is None:
        return Goal(name, None, limit)
    return Goal(name, final(pair[0], FORCES) / final(pair[1], FORCES), limit, note=_times(*pair))


def _within(runs: Runs, seconds: float, limit: float) -> Goal:
    """The error of what ours held or had handed over by then."""
    several = runs.get(OURS, [])
    value = float(median_curve(np.array([seconds]), several, FORCES)[0]) if several else math.nan
    note = f"{len(several)} seed{'s' * (len(several) > 1)}"
    known = value if math.isfinite(value) else None
    return Goal("naphthalene, test force RMSE after 15 minutes", known, limit, " meV/Å", note)


def columns(seconds: float) -> list[float]:
    """Times at which errors are listed."""
    return [time for time in (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0) if time < seconds]


def listed_errors(runs: Sequence[dict[str, Any]], times: Sequence[float], metric: str) -> list[float]:
    """Medians over seeds at these times, while the training lasted, and in the end; NaN before and after."""
    if not times:
        return [final(runs, metric)]
    values = median_curve(np.array(times), runs, metric)
    last = float(np.median([run["points"][-1]["seconds"] for run in runs]))
    return [*np.where(np.array(times) < last, values, np.nan).tolist(), final(runs, metric)]
