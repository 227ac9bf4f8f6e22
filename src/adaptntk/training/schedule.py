"""How long a training goes on, and with which learning rate.

The schedule ``settle`` keeps the rate up as long as that pays: constant, or slowly falling. The error of averaged
weights then falls like a power of the steps, and the moment to stop need not be known beforehand: it has come when the
validation error has become flat. Steps that do not lower it any more are not idle: the network memorises its labels,
from which annealing does not bring it back. So a training that has become flat goes back to the last moment that
brought something.

Whatever was reached, the rate then falls to zero in a straight line, which takes off what the noise of the steps still
adds. So a training of any length is annealed, and one that was too short goes on as if it had been planned longer.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from adaptntk.training.limits import Point, still_falling
from adaptntk.training.recipe import Recipe

# Validations in the course of a training that is counted in steps: so many, but none before so many times the
# structures of the validation were learnt from. Learning takes three times as long, so validation costs 7 % at most.
LAPS, LEARNT_PER_VALIDATED = 50, 5
# Where it is open when a training ends, the laps of a long one begin with so many steps and grow with the steps done:
# to a 16th of them, so that each doubling has about 11 laps.
FIRST_LAP, LAPS_GROW = 100, 16
# Flat: the last doubling of the steps took less than this share off the validation error ...
FLAT_GAIN = 0.03
# ... and there are enough validations to tell: many networks rest for a while early on. With laps as above these are
# 30 % of a short training, and 1,500 steps of a long one.
FLAT_LAPS = 15


class Laps(NamedTuple):
    """Steps from one validation to the next."""

    shortest: int
    longest: int

    def after(self, done: int) -> int:
        """The length of the lap that follows so many steps."""
        return min(self.longest, max(self.shortest, done // LAPS_GROW))


class Plan(NamedTuple):
    """How long a training will be, as things stand, and from which step on its rate falls to zero."""

    steps: int
    anneal_from: int | None = None
    extensions: int = 0
    flat: bool = False

    @classmethod
    def first(cls, recipe: Recipe, batches: int) -> "Plan":
        """The plan before the first step, with so many batches in an epoch."""
        return cls(recipe.steps or (recipe.epochs or 0) * batches)

    def next_stop(self, recipe: Recipe, done: int, laps: Laps) -> int:
        """The step up to which the next lap goes."""
        border = self._last_constant(recipe) if recipe.schedule == "settle" and self.anneal_from is None else self.steps
        return min(done + laps.after(done), border)

    def stops(self, recipe: Recipe, laps: Laps) -> list[int]:
        """Where all laps of a training of known length end."""
        found = [0]
        while found[-1] < self.steps:
            found.append(self.next_stop(recipe, found[-1], laps))
        return found[1:]

    def _last_constant(self, recipe: Recipe) -> int:
        return max(1, round(self.steps * (1 - recipe.anneal)))

    def after(self, recipe: Recipe, done: int, path: Sequence[Point], train: Callable[[], float]) -> "Plan":
        """The plan after a lap, by the validation errors so far, and where it matters the error on what was learnt."""
        if recipe.schedule != "settle" or self.anneal_from is not None:
            return self
        if done >= recipe.patience and is_flat(path):
            last = last_gain(path).steps
            return Plan(last + max(1, round(last * recipe.anneal / (1 - recipe.anneal))), last, self.extensions, True)
        if done < self._last_constant(recipe):
            return self
        if self.extensions < recipe.extensions and still_falling(path, train()):
            return Plan(2 * self.steps, None, self.extensions + 1)
        return self._replace(anneal_from=done)

    def rate(self, recipe: Recipe, step: int) -> float:
        """The learning rate of a step, as a share of the recipe's."""
        if recipe.schedule == "cosine":
            return 0.5 * (1 + math.cos(math.pi * step / self.steps))
        if self.anneal_from is None or step < self.anneal_from:
            return _early_rate(recipe, step)
        return _early_rate(recipe, self.anneal_from) * (self.steps - step) / (self.steps - self.anneal_from)

    def energy_weight(self, recipe: Recipe) -> float:
        """Of the energies, in the stage that the plan is in."""
        last = recipe.last_energy_weight
        return recipe.energy_weight if last is None or self.anneal_from is None else last


def _early_rate(recipe: Recipe, step: int) -> float:
    """Before annealing, as a share: up while it warms up, and with the root of the steps down once it slows."""
    warm = min(1.0, (step + 1) / recipe.warm_up) if recipe.warm_up else 1.0
    return warm * (min(1.0, math.sqrt(recipe.slows_after / (step + 1))) if recipe.slows_after else 1.0)


def lap_lengths(recipe: Recipe, batches: int, batch_size: int, validated: int) -> Laps:
    """Steps from one validation, of so many structures, to the next; an epoch for recipes in epochs."""
    if recipe.steps is None:
        return Laps(batches, batches)
    affordable = max(1, round(LEARNT_PER_VALIDATED * validated / batch_size))
    longest = max(affordable, round(recipe.steps / LAPS))
    return Laps(min(longest, max(affordable, FIRST_LAP)) if recipe.schedule == "settle" else longest, longest)


def is_flat(path: Sequence[Point]) -> bool:
    """Whether the steps of late brought too little to go on."""
    if len(path) < FLAT_LAPS:
        return False
    before = min(point.force_rmse for point in path if 2 * point.steps <= path[-1].steps)
    return min(point.force_rmse for point in path) > (1 - FLAT_GAIN) * before


def last_gain(path: Sequence[Point]) -> Point:
    """The last moment that brought something: no later one is better than it by the flat share or more.

    Each such moment is better by that share than the one before it. The first is the end of the earlier half of the
    fewest laps that can be flat: a network that rests before has learnt nothing yet. If the last is in the first half
    of all steps, `is_flat` holds (given enough laps), so no training anneals long after it.
    """
    first = min(len(path), FLAT_LAPS // 2) - 1
    last = path[first]
    for point in path[first:]:
        if point.force_rmse <= (1 - FLAT_GAIN) * last.force_rmse:
            last = point
    return last
