import dataclasses

import pytest
import torch

from adaptntk.training import steps
from adaptntk.training.labelled import LabelledSet, untrained_network
from adaptntk.training.recipe import PRESETS
from adaptntk.training.schedule import Plan
from adaptntk.training.steps import Stepper
from adaptntk.training.weights import Weights
from tests.conftest import TINY_RECIPE

RECIPE = dataclasses.replace(
    PRESETS["fast"], architecture=TINY_RECIPE.architecture, steps=60, warm_up=5, batch_atoms=None, batch_size=3
)


def stepper(frames, recipe=RECIPE):
    potential = untrained_network(frames, recipe, torch.float64, 0)
    return Stepper(potential, Weights(potential, recipe), LabelledSet.make(potential, frames, recipe), recipe, 0)


def vector(taken):
    return torch.cat([parameter.detach().flatten() for parameter in taken.potential.module.parameters()])


def test_recorded_steps_lead_where_steps_lead(parts, monkeypatch):
    """Through clipped gradients, the optimiser and the average; the last batch of an epoch is smaller."""
    frames = parts["train"][:8]
    whole = stepper(frames)
    plan = Plan.first(RECIPE, whole.batches)
    expected = [whole.run(plan, first, first + 4) for first in range(0, 40, 4)]
    assert whole._captured is None
    monkeypatch.setattr(steps, "_STEPS_TO_CAPTURE", 50)
    recorded = stepper(frames)
    assert recorded._captured is not None
    assert [recorded.run(plan, first, first + 4) for first in range(0, 40, 4)] == pytest.approx(expected, rel=1e-9)
    moved = vector(whole) - vector(stepper(frames))
    assert torch.allclose(vector(recorded), vector(whole), rtol=0, atol=1e-9 * float(moved.abs().max()))
    for mine, theirs in zip(recorded.weights.average, whole.weights.average, strict=True):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("change", [{"steps": 40}, {"batch_size": 20}, {"dropout": 0.1}])
def test_when_nothing_is_recorded(change, parts, monkeypatch):
    """Trainings that are too short, have too few structures, or draw masks."""
    monkeypatch.setattr(steps, "_STEPS_TO_CAPTURE", 50)
    assert stepper(parts["train"][:8], dataclasses.replace(RECIPE, **change))._captured is None
