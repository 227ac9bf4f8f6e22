"""How long a training goes on, and with which learning rate.

The schedule ``settle`` keeps the rate constant as long as that pays. The error of averaged weights then falls like a
power of the steps, and the moment to stop need not be known beforehand: it has come when the validation error has
become flat. Whatever was reached, the rate then falls to zero in a straight line, which takes off what the noise of
the steps still adds. So a training of any length is annealed, and one that was too short goes on as if it had been
planned longer.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from adaptntk.training.limits import Point, still_falling
from adaptntk.training.recipe import Recipe

# Validations in the course of a training that is counted in steps: so many, but none before so many times the
# structures of the validation were learnt from. Learning takes three times as long, so validation costs 7 % at most.
LAPS, LEARNT_PER_VALIDATED = 50, 5
# Flat: the last doubling of the steps took less than this share off the validation error ...
FLAT_GAIN = 0.03
# ... and there are enough validations to tell: many networks rest for a while early on.
FLAT_LAPS = 15


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

    def next_stop(self, recipe: Recipe, done: int, lap: int) -> int:
        """The step up to which the next lap goes."""
        border = self._last_constant(recipe) if recipe.schedule == "settle" and self.anneal_from is None else self.steps
        return min(done + lap, border)

    def stops(self, recipe: Recipe, lap: int) -> list[int]:
        """Where all laps of a training of known length end."""
        found = [0]
        while found[-1] < self.steps:
            found.append(self.next_stop(recipe, found[-1], lap))
        return found[1:]

    def _last_constant(self, recipe: Recipe) -> int:
        return max(1, round(self.steps * (1 - recipe.anneal)))

    def after(self, recipe: Recipe, done: int, path: Sequence[Point], train: Callable[[], float]) -> "Plan":
        """The plan after a lap, by the validation errors so far, and where it matters the error on what was learnt."""
        if recipe.schedule != "settle" or self.anneal_from is not None:
            return self
        if is_flat(path):
            return Plan(done + max(1, round(done * recipe.anneal / (1 - recipe.anneal))), done, self.extensions, True)
        if done < self._last_constant(recipe):
            return self
        if self.extensions < recipe.extensions and still_falling(path, train()):
            return Plan(2 * self.steps, None, self.extensions + 1)
        return self._replace(anneal_from=done)

    def rate(self, recipe: Recipe, step: int) -> float:
        """The learning rate of a step, as a share of the recipe's."""
        if recipe.schedule == "cosine":
            return 0.5 * (1 + math.cos(math.pi * step / self.steps))
        warm = min(1.0, (step + 1) / recipe.warm_up) if recipe.warm_up else 1.0
        if self.anneal_from is None:
            return warm
        return warm * (self.steps - step) / (self.steps - self.anneal_from)

    def energy_weight(self, recipe: Recipe) -> float:
        """Of the energies, in the stage that the plan is in."""
        last = recipe.last_energy_weight
        return recipe.energy_weight if last is None or self.anneal_from is None else last


def lap_length(recipe: Recipe, batches: int, batch_size: int, validated: int) -> int:
    """Steps from one validation, of so many structures, to the next; an epoch for recipes in epochs."""
    if recipe.steps is None:
        return batches
    return max(1, round(recipe.steps / LAPS), round(LEARNT_PER_VALIDATED * validated / batch_size))


def is_flat(path: Sequence[Point]) -> bool:
    """Whether the steps of late brought too little to go on."""
    if len(path) < FLAT_LAPS:
        return False
    before = min(point.force_rmse for point in path if 2 * point.steps <= path[-1].steps)
    return min(point.force_rmse for point in path) > (1 - FLAT_GAIN) * before
