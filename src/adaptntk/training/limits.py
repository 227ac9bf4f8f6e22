"""What limits a model: too few steps, too small a network, or too few labels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

# More than this share of the error, taken off by twice the steps, is worth the minutes they take. Less drowns in what
# another seed changes, and the next doubling will bring less again.
WORTHWHILE_GAIN = 0.05
# Errors add up in squares: below 1/sqrt(2), more than half of the squared error on new structures is absent from those
# that were learnt, so labels can take it away. Above, the larger half is there even where the label was shown.
LABELS_RATIO = 0.7
# A line through fewer moments says nothing.
FEWEST_MOMENTS = 3
# A trend is believed if an interval of this confidence excludes a flat one: of flat paths one in twenty looks falling.
TREND_CONFIDENCE = 0.9

# What is told of structures that the training never saw.
HOLDOUT = "the hold-out structures"

By = Literal["steps", "network", "labels", "network or steps"]


class Point(NamedTuple):
    """The validation error (eV/Å) after so many steps at the full learning rate."""

    steps: int
    force_rmse: float


@dataclass(frozen=True)
class Limit:
    """What keeps a model's error from falling, with the numbers that say so and what to do about it."""

    by: By
    evidence: str
    advice: str

    @property
    def verdict(self) -> str:
        """In a few words."""
        return f"limited by {'the ' * self.by.startswith('network')}{self.by}"

    def lines(self) -> list[str]:
        """For the terminal."""
        return [f"{self.verdict}: {self.evidence}", f"advice: {self.advice}"]


@dataclass(frozen=True)
class Learnt:
    """How far a model came: force RMSEs (eV/Å), and the share that twice the steps would take off.

    Args:
        train, valid: on the structures that it learnt from, and on those of the validation.
        structures: of the validation.
        gain: from `gain_of_doubling`; None if it is not known how the model was trained.
    """

    train: float
    valid: float
    structures: int
    gain: float | None = None

    def limit(self, apart: float | None = None, structures: int | None = None, name: str = HOLDOUT) -> Limit:
        """What limits the model; ``apart`` is its error on so many structures that the training never saw."""
        count = self.structures if apart is None else structures
        return what_limits(self.train, self.valid, self.gain, apart, count, name)


def gain_of_doubling(path: Sequence[Point]) -> float | None:
    """The share of the validation error that twice the steps would take off; None where the path cannot tell.

    ``path`` is the part of a training at a constant rate: a falling rate lowers the error by itself, once.
    """
    # Over a factor of two or so in steps t, errors of networks follow e = c t^-a: log e = log c - a log t. The later
    # half of the path spans one doubling, and the next will bring about as much or less: e(2t)/e(t) = 2^-a. The slope
    # is the median of those of all pairs of moments (Theil and Sen), which neither noise nor a spike moves much, and it
    # counts only if it stands out of the noise.
    from scipy import stats  # takes long to import, and most only read what was found

    if len(path) < FEWEST_MOMENTS:
        return None
    first = min(path[-1].steps / 2, path[-FEWEST_MOMENTS].steps)
    later = [point for point in path if point.steps >= first]
    errors = np.maximum([point.force_rmse for point in later], np.finfo(float).tiny)
    trend = stats.theilslopes(np.log(errors), np.log([point.steps for point in later]), alpha=TREND_CONFIDENCE)
    gain = 1 - 2.0 ** float(trend.slope)
    if trend.high_slope < 0:
        return gain
    return None if gain > WORTHWHILE_GAIN else 0.0


def gain_at_the_end(gain: float, train: float, valid: float) -> float:
    """What is left of a gain at constant rate once the rate has fallen, for a model of these errors.

    With the rate the noise of the steps goes, which more of them would have lowered, too. What more steps then still
    lower is the error on what was learnt. The rest of the squared error, ``valid^2 - train^2``, is that of structures
    that the network was never shown: labels lower it.
    """
    unseen = max(0.0, valid**2 - train**2)
    return 1 - math.sqrt(unseen + ((1 - gain) * min(train, valid)) ** 2) / valid if valid > 0 else 0.0


def still_falling(path: Sequence[Point], train: float) -> bool:
    """Whether twice the steps would pay, for a network with this error on what it learnt."""
    return gain_at_the_end(gain_of_doubling(path) or 0.0, train, path[-1].force_rmse) > WORTHWHILE_GAIN


def what_limits(
    train: float,
    valid: float,
    gain: float | None,
    holdout: float | None = None,
    structures: int | None = None,
    name: str = HOLDOUT,
) -> Limit:
    """What limits a model with these force RMSEs (eV/Å).

    Args:
        train, valid: on the structures that were learnt from, and on those of the validation.
        gain: from `gain_of_doubling`; None if it is not known how the model was trained.
        holdout: on structures that the training never saw; if given, it is compared instead of ``valid``.
        structures: how many of them (or of the validation) there are, to say what is within their noise.
        name: what these structures are called.
    """
    unseen = valid if holdout is None else holdout
    by_labels = train < LABELS_RATIO * unseen
    by: By
    if gain is not None and gain > WORTHWHILE_GAIN:
        by = "steps"
    elif by_labels:
        by = "labels"
    else:
        by = "network or steps" if gain is None else "network"
    evidence = f"force RMSE {_milli(train)} meV/Å on the training set, {_milli(valid)} on the validation set"
    evidence += "" if holdout is None else f", {_milli(holdout)} on {name}"
    evidence += f"; {_told(gain)}"
    if by != "steps" and structures is not None and _within_noise(train, unseen, structures):
        evidence += f"; {structures} structures tell labels from network only roughly"
    return Limit(by, evidence, _ADVICE["steps and labels" if by == "steps" and by_labels else by])


_NETWORK = "a larger network (--channels, --max-ell, --correlation), or one that sees farther (--cutoff)"
_ADVICE = {
    "steps": "train longer (--steps) before you buy labels",
    "steps and labels": "train longer (--steps) before you buy labels, which will help, too",
    "labels": "buy labels: choosing them well pays",
    "network": f"more labels will help little: train {_NETWORK}",
    "network or steps": f"more labels will help little: train longer (--steps), or train {_NETWORK}",
}


def _told(gain: float | None) -> str:
    if gain is None:
        return "what more steps would bring is not known"
    return f"twice the steps would take off {f'about {gain:.0%}' if gain >= 0.005 else 'nothing'}".replace("%", " %")


def _milli(error: float) -> str:
    return f"{1000 * error:.1f}"


def _within_noise(train: float, unseen: float, structures: int) -> bool:
    """Whether another draw of so many structures could well have given the other answer.

    The squared error of a structure scatters about as much as its mean, so a mean over n of them is known to 1/sqrt(n),
    and its root to half of that; twice this standard error is allowed for.
    """
    return abs(train - LABELS_RATIO * unseen) < LABELS_RATIO * unseen / math.sqrt(max(structures, 1))
