"""Axes that can be read: few ticks, none on top of another, numbers as people write them, no point cut off."""

import math
from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, MaxNLocator, NullLocator
from numpy.typing import NDArray

Array = NDArray[np.float64]

POINTS = "#4477AA"
ACCENT = "#CC3311"
NEUTRAL = "#777777"

# Of each decade, from many ticks to few.
_STEPS = ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 4, 5, 7), (1, 2, 5), (1, 3), (1,))
# Width of a letter as a share of the narrowest axis that we draw.
_LETTER = 0.038
# An error this much smaller than the smallest uncertainty is drawn at the edge: the forces of perfect crystals vanish.
_RANGE = 30.0


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two positive ones on a logarithmic axis: two or more, with room for their digits."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    choices = [(decades, steps) for steps in _STEPS] + [(decades[::stride], (1,)) for stride in (2, 3, 4, 6)]
    for powers, steps in choices:
        ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        if len(ticks) < 2:
            break
        gap = min(np.diff(np.log(ticks))) / math.log(high / low)
        if len(ticks) <= most and gap > _LETTER * max(len(f"{tick:g}") for tick in ticks):
            return ticks
    return [float(tick) for tick in MaxNLocator(3).tick_values(low, high) if low <= tick <= high]


def plain_log_ticks(*axes: Axis) -> None:
    """0.05 rather than 5 x 10^-2 on logarithmic axes."""
    for axis in axes:
        plain_ticks(axis, FixedLocator(log_ticks(*axis.get_view_interval())))


def round_ticks(*axes: Axis) -> None:
    """A few round numbers on linear axes."""
    for axis in axes:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))


def whole_ticks(axis: Axis) -> None:
    """Whole numbers only, be it one."""
    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def plain_ticks(axis: Axis, locator: Locator) -> None:
    """Ticks there only, with numbers as people write them."""
    axis.set_major_locator(locator)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def error_limits(sigmas: Iterable[Array], errors: Iterable[Array]) -> tuple[float, float]:
    """Limits of logarithmic axes on which all uncertainties and errors have a place."""
    sigma, error = np.concatenate(list(sigmas)), np.concatenate(list(errors))
    low = max(min(sigma.min(), error.min()), sigma.min() / _RANGE)
    return float(low / 1.3), float(1.2 * max(sigma.max(), error.max()))


def scatter_errors(axes: Axes, sigma: Array, error: Array, limits: tuple[float, float], size: float) -> int:
    """True error against uncertainty; errors below the axis as triangles at its edge. How many these are."""
    below = error < limits[0]
    edge = np.full_like(error, 1.1 * limits[0])
    for which, height, marker, area in ((~below, error, "o", size), (below, edge, "v", 2 * size)):
        axes.scatter(
            sigma[which], height[which], s=area, marker=marker, alpha=0.5, color=POINTS, linewidths=0, zorder=2
        )
    return int(below.sum())
