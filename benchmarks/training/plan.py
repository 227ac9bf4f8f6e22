"""Who trains, on what and for how long."""

from dataclasses import dataclass, replace
from typing import Any

from adaptntk.models.mace.family import TINY, MACEArchitecture
from adaptntk.training.recipe import PRESETS, Recipe
from benchmarks.training.frames import DataSet

OURS, QUICK, THEIRS, BEFORE = "standard", "fast", "mace_run_train", "small"


@dataclass(frozen=True)
class Entrant:
    """A recipe, and whose program follows it.

    Args:
        stock: let ``mace_run_train`` train this network, in batches of this size; the rest of the recipe is its own.
        own_length: train as long as the recipe says, not as long as the others.
        times_before: train so many times as long as the preset of before took with the same seed.
    """

    recipe: Recipe
    stock: bool = False
    own_length: bool = False
    times_before: int | None = None

    @property
    def fills_budget(self) -> bool:
        """Whether it trains as long as the study says."""
        return not self.own_length and self.times_before is None


@dataclass(frozen=True)
class Plan:
    """Data sets and entrants by name; ``variants`` are the other recipes that the choice was made among."""

    data: dict[str, DataSet]
    entrants: dict[str, Entrant]
    variants: dict[str, Entrant]

    def entered(self, study: str, data: str) -> list[str]:
        """Who trains on that data set if nobody is named."""
        if study == "recipes":
            return [OURS, *self.variants]
        return [BEFORE, OURS, THEIRS, *self.data[data].beside]

    def find(self, entrant: str) -> Entrant | None:
        """The entrant of that name."""
        return (self.entrants | self.variants).get(entrant)


def entrants(standard: Recipe, before: Recipe, fast: Recipe) -> dict[str, Entrant]:
    """Those of the race. The README of ``mace_run_train`` has batches of 10; ours, which are smaller, suit it too."""
    return {
        BEFORE: Entrant(before, own_length=True),
        OURS: Entrant(standard),
        THEIRS: Entrant(standard, stock=True),
        f"{THEIRS}-10": Entrant(replace(standard, batch_size=10), stock=True),
        QUICK: Entrant(fast, own_length=True),
        f"{QUICK}-1x": Entrant(fast, times_before=1),
        f"{OURS}-10x": Entrant(standard, times_before=10),
    }


def variants(standard: Recipe) -> dict[str, Entrant]:
    """Recipes around the chosen one: widths, orders, batch sizes, rates, schedules."""
    network, rate, atoms = standard.architecture, standard.learning_rate, standard.batch_atoms
    assert isinstance(network, MACEArchitecture)
    changes: dict[str, dict[str, Any]] = {
        "8-channels": {"architecture": network.resized(channels=8)},
        "32-channels": {"architecture": network.resized(channels=32)},
        "features-l1": {"architecture": network.resized(hidden_ell=1)},
        "32-channels-l1": {"architecture": network.resized(channels=32, hidden_ell=1)},
        "harmonics-l2": {"architecture": network.resized(max_ell=2)},
        "correlation-2": {"architecture": network.resized(correlation=2)},
        "cutoff-4": {"architecture": network.resized(cutoff=4.0)},
        "batch-half": {"batch_atoms": max(1, atoms // 2)},
        "batch-double": {"batch_atoms": 2 * atoms},
        "rate-third": {"learning_rate": rate / 3},
        "rate-double": {"learning_rate": 2 * rate},
        "cosine": {"schedule": "cosine"},
        "constant": {"schedule": "constant"},
        "anneal-less": {"anneal": standard.anneal / 2},
        "no-average": {"average": 0.0},
        "one-stage": {"last_energy_weight": None},
        "memory-0.999": {"memory": 0.999},
    }
    return {name: Entrant(replace(standard, **change)) for name, change in changes.items()}


def _plan(data: dict[str, DataSet], standard: Recipe, before: Recipe, fast: Recipe) -> Plan:
    return Plan(data, entrants(standard, before, fast), variants(standard))


_TOY = replace(PRESETS[OURS], architecture=TINY)
PLANS = {
    "full": _plan(
        {
            "ethanol": DataSet(80, 40, 500, 200, seconds=300, choice=60, beside=(f"{QUICK}-1x", f"{OURS}-10x")),
            "naphthalene": DataSet(50, 30, 400, 100, seconds=900, choice=200),
            "aspirin": DataSet(200, 40, 300, 300, seconds=900),
            # All that is published as training set; what is published as test set follows.
            "silicon": DataSet(200, 14, 25, 214, seconds=900),
        },
        PRESETS[OURS],
        PRESETS[BEFORE],
        PRESETS["fast"],
    ),
    "smoke": _plan(
        {"ethanol": DataSet(16, 8, 12, 24, seconds=4, choice=1, made=36, beside=(f"{QUICK}-1x",))},
        _TOY,
        replace(PRESETS["tiny"], epochs=10),
        _TOY.lasting(steps=20),
    ),
}
