import dataclasses
from functools import partial

import numpy as np
import pytest

from adaptntk.training.limits import Point
from adaptntk.training.recipe import PRESETS
from adaptntk.training.schedule import FLAT_GAIN, FLAT_LAPS, LAPS, Laps, Plan, is_flat, lap_lengths, last_gain
from tests.conftest import TINY_RECIPE

SETTLE = dataclasses.replace(PRESETS["standard"], steps=1000, warm_up=0, slows_after=0, patience=0)
EVEN = Laps(20, 20)


def carry_out(recipe, error, laps=EVEN, learnt=1.0):
    """The laps and rates of a training whose validation error is a function of the steps."""
    plan, done, path, stops, rates = Plan.first(recipe, 10), 0, [], [], []
    while done < plan.steps:
        first, done = done, plan.next_stop(recipe, done, laps)
        rates += [plan.rate(recipe, step) for step in range(first, done)]
        stops.append(done)
        if plan.anneal_from is None:
            path.append(Point(done, error(done)))
            plan = plan.after(recipe, done, path, partial(lambda at: learnt * error(at), done))
            done = done if plan.anneal_from is None else plan.anneal_from
            del rates[done:]
    return plan, stops, np.array(rates)


def test_an_error_that_falls_uses_all_steps():
    plan, stops, rates = carry_out(SETTLE, lambda steps: steps**-0.5)
    assert (plan.steps, plan.anneal_from, plan.flat) == (1000, 600, False)
    assert len(stops) == LAPS
    assert (rates[:600] == 1).all()
    assert np.allclose(rates[600:], np.linspace(1, 0, 400, endpoint=False))


def test_an_error_that_is_flat_ends_the_training_where_it_became_so():
    plan, stops, rates = carry_out(SETTLE, lambda steps: min(steps, 200) ** -0.5)
    assert plan.flat
    # Flat from step 200 on, which shows once twice as many are done.
    assert 380 <= max(stops) <= 400
    assert plan.anneal_from == 200
    assert plan.steps == len(rates) == round(200 / 0.6)
    assert (rates[:200] == 1).all()
    assert np.allclose(rates[200:], np.linspace(1, 0, 133, endpoint=False))


def test_an_error_that_rises_is_flat_too():
    plan = carry_out(SETTLE, lambda steps: 1.0 + steps / 1000)[0]
    assert (plan.flat, plan.anneal_from) == (True, 20 * (FLAT_LAPS // 2))


@pytest.mark.parametrize("seed", range(200))
def test_no_training_goes_on_long_after_the_last_moment_that_brought_something(seed):
    """On random paths: nothing later is better by the flat share, and in the first half it means flat."""
    rng = np.random.default_rng(seed)
    steps = np.cumsum(rng.integers(1, 50, FLAT_LAPS + seed % 30))
    fall, noise = rng.choice([0.0, 0.02, 0.2]), rng.choice([0.0, 0.01, 0.1])
    errors = steps**-fall * np.exp(noise * rng.standard_normal(len(steps)))
    path = [Point(int(step), float(error)) for step, error in zip(steps, errors, strict=True)]
    last = last_gain(path)
    place = path.index(last)
    assert all(point.force_rmse > (1 - FLAT_GAIN) * last.force_rmse for point in path[place + 1 :])
    assert all(point.force_rmse > last.force_rmse for point in path[FLAT_LAPS // 2 - 1 : place])
    assert place >= FLAT_LAPS // 2 - 1
    assert is_flat(path) or 2 * last.steps > path[-1].steps


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
    assert lap_lengths(TINY_RECIPE, 8, 5, 30) == (8, 8)
    assert Plan.first(TINY_RECIPE, 8).stops(TINY_RECIPE, Laps(8, 8)) == list(range(8, 8 * 30 + 1, 8))


@pytest.mark.parametrize(
    ("steps", "validated", "shortest", "longest"),
    [(1000, 5, 20, 20), (1000, 40, 40, 40), (10_000, 40, 100, 200), (10_000, 150, 150, 200), (1, 1, 1, 1)],
)
def test_validations_cost_little(steps, validated, shortest, longest):
    recipe = SETTLE.lasting(steps=steps)
    assert lap_lengths(recipe, 16, 5, validated) == (shortest, longest)
    assert lap_lengths(dataclasses.replace(recipe, schedule="constant"), 16, 5, validated) == (longest, longest)
    assert lap_lengths(SETTLE.lasting(epochs=steps), 16, 5, validated) == (16, 16)


def test_laps_of_a_long_training_grow_so_that_flatness_is_seen_early():
    recipe = SETTLE.lasting(steps=20_000)
    laps = lap_lengths(recipe, 16, 5, 40)
    _, stops, _ = carry_out(recipe, lambda steps: steps**-0.5, laps)
    assert stops[FLAT_LAPS - 1] == 1500
    assert len([stop for stop in stops if 3000 < stop <= 6000]) in (10, 11, 12)
    assert max(np.diff(stops)) == 400
    for flat_from in (800, 1000, 3000):
        plan, stops, _ = carry_out(recipe, lambda steps, begins=flat_from: min(steps, begins) ** -0.5, laps)
        assert plan.anneal_from == pytest.approx(flat_from, rel=0.1)
        assert max(stops) == pytest.approx(max(1500, 2 * flat_from), rel=0.1)


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


def test_a_rate_that_slows_falls_with_the_root_of_the_steps():
    slow = dataclasses.replace(SETTLE, slows_after=100)
    rates = carry_out(slow, lambda steps: steps**-0.5)[2]
    assert (rates[:100] == 1).all()
    assert rates[399] == pytest.approx(0.5)
    # From where it was it goes down to zero, without a jump.
    assert rates[600] == pytest.approx(rates[599], rel=0.01)
    assert rates[-1] == pytest.approx(rates[600] / 400, rel=0.01)
    assert (np.diff(rates) <= 0).all()


def test_nobody_asks_before_patience_is_at_its_end():
    patient = dataclasses.replace(SETTLE, patience=500)
    plan, _, _ = carry_out(patient, lambda steps: min(steps, 200) ** -0.5)
    assert plan.flat
    impatient = carry_out(SETTLE, lambda steps: min(steps, 200) ** -0.5)[1]
    assert max(impatient) < 500 <= max(carry_out(patient, lambda steps: min(steps, 200) ** -0.5)[1])
    whole = carry_out(dataclasses.replace(SETTLE, patience=5000), lambda steps: min(steps, 200) ** -0.5)[0]
    assert (whole.flat, whole.steps) == (False, 1000)
