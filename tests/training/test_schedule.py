import dataclasses
from functools import partial

import numpy as np
import pytest

from adaptntk.training.limits import Point
from adaptntk.training.recipe import PRESETS
from adaptntk.training.schedule import LAPS, Plan, is_flat, lap_length
from tests.conftest import TINY_RECIPE

SETTLE = dataclasses.replace(PRESETS["standard"], steps=1000, warm_up=0)


def carry_out(recipe, error, lap=20, learnt=1.0):
    """The laps and rates of a training whose validation error is a function of the steps."""
    plan, done, path, stops, rates = Plan.first(recipe, 10), 0, [], [], []
    while done < plan.steps:
        first, done = done, plan.next_stop(recipe, done, lap)
        rates += [plan.rate(recipe, step) for step in range(first, done)]
        stops.append(done)
        if plan.anneal_from is None:
            path.append(Point(done, error(done)))
        plan = plan.after(recipe, done, path, partial(lambda at: learnt * error(at), done))
    return plan, stops, np.array(rates)


def test_an_error_that_falls_uses_all_steps():
    plan, stops, rates = carry_out(SETTLE, lambda steps: steps**-0.5)
    assert (plan.steps, plan.anneal_from, plan.flat) == (1000, 600, False)
    assert len(stops) == LAPS
    assert (rates[:600] == 1).all()
    assert np.allclose(rates[600:], np.linspace(1, 0, 400, endpoint=False))


def test_an_error_that_is_flat_ends_the_training_and_anneals():
    plan, _, rates = carry_out(SETTLE, lambda steps: min(steps, 200) ** -0.5)
    assert plan.flat
    # Flat from step 200 on, which shows once twice as many are done.
    assert 380 <= plan.anneal_from <= 400
    assert plan.steps == len(rates) == pytest.approx(plan.anneal_from / 0.6, abs=1)
    assert rates[-1] < 0.01


def test_an_error_that_rises_is_flat_too():
    assert carry_out(SETTLE, lambda steps: 1.0 + steps / 1000)[0].flat


@pytest.mark.parametrize(("extensions", "steps"), [(0, 1000), (1, 2000), (2, 4000)])
def test_steps_are_doubled_while_they_pay(extensions, steps):
    recipe = dataclasses.replace(SETTLE, extensions=extensions)
    plan, _, rates = carry_out(recipe, lambda done: done**-0.5)
    assert (plan.steps, plan.anneal_from, plan.extensions) == (steps, 0.6 * steps, extensions)
    assert (rates[: round(0.6 * steps)] == 1).all()


def test_steps_are_not_doubled_in_vain():
    recipe = dataclasses.replace(SETTLE, extensions=3)
    plan, _, _ = carry_out(recipe, lambda done: done**-0.06)  # 4 % for a doubling: falls, but does not pay
    assert (plan.steps, plan.extensions) == (1000, 0)


def test_steps_are_not_doubled_where_labels_are_missing():
    recipe = dataclasses.replace(SETTLE, extensions=3)
    assert carry_out(recipe, lambda done: done**-0.5, learnt=0.2)[0].extensions == 0


def test_a_single_bad_lap_is_not_the_end():
    path = [Point(20 * lap, (20.0 * lap) ** -0.5 * (1.3 if lap % 5 == 0 else 1)) for lap in range(1, 31)]
    assert not any(is_flat(path[:end]) for end in range(1, 31))


def test_laps_of_a_training_in_epochs_are_epochs():
    assert Plan.first(TINY_RECIPE, 8).stops(TINY_RECIPE, 8) == list(range(8, 8 * 30 + 1, 8))


@pytest.mark.parametrize(("steps", "validated", "lap"), [(1000, 5, 20), (1000, 40, 40), (10_000, 40, 200), (1, 1, 1)])
def test_validations_cost_little(steps, validated, lap):
    assert lap_length(SETTLE.lasting(steps=steps), 16, 5, validated) == lap
    assert lap_length(SETTLE.lasting(epochs=steps), 16, 5, validated) == 16


def test_the_rate_rises_first():
    rates = carry_out(dataclasses.replace(SETTLE, warm_up=50), lambda steps: steps**-0.5)[2]
    assert np.allclose(rates[:50], np.arange(1, 51) / 50)


def test_a_cosine_goes_from_one_to_zero():
    plan = Plan(100)
    assert [plan.rate(TINY_RECIPE, step) for step in (0, 50, 100)] == pytest.approx([1, 0.5, 0])


def test_the_second_stage_is_about_energies():
    assert Plan(1000).energy_weight(SETTLE) == SETTLE.energy_weight
    assert Plan(1000, 600).energy_weight(SETTLE) == SETTLE.last_energy_weight
    assert Plan(1000, 600).energy_weight(TINY_RECIPE) == TINY_RECIPE.energy_weight
