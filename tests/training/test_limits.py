import numpy as np
import pytest

from adaptntk.training.limits import (
    LABELS_RATIO,
    WORTHWHILE_GAIN,
    Point,
    gain_at_the_end,
    gain_of_doubling,
    still_falling,
    what_limits,
)


def a_path(exponent, moments=20, noise=0.0, seed=0, flat_from=None, steps=8000):
    """Errors that fall as a power of the steps, until they are flat."""
    rng = np.random.default_rng(seed)
    at = np.linspace(steps / moments, steps, moments).astype(int)
    fallen = at if flat_from is None else np.minimum(at, flat_from)
    errors = 0.1 * (fallen / steps) ** -exponent * np.exp(noise * rng.normal(size=moments))
    return [Point(int(step), float(error)) for step, error in zip(at, errors, strict=True)]


@pytest.mark.parametrize("exponent", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("moments", [3, 10, 50])
def test_the_gain_is_that_of_the_power_law(exponent, moments):
    assert gain_of_doubling(a_path(exponent, moments)) == pytest.approx(1 - 2**-exponent)


@pytest.mark.parametrize("path", [a_path(0.0), a_path(-0.3), a_path(0.5, flat_from=2000)])
def test_what_is_flat_or_rises_gains_nothing(path):
    assert gain_of_doubling(path) == 0
    assert not still_falling(path, path[-1].force_rmse)


def test_too_short_a_path_says_nothing():
    assert gain_of_doubling([]) is None
    assert gain_of_doubling(a_path(0.5, moments=2)) is None


def test_an_error_of_zero_is_no_trouble():
    assert gain_of_doubling([Point(step, 0.0) for step in range(1, 9)]) == 0


@pytest.mark.parametrize("moments", [10, 20, 50])
def test_noise_makes_few_mistakes(moments):
    """With 3 % of noise a flat path seldom looks falling, and one that falls steeply nearly always does."""
    flat = [still_falling(a_path(0.0, moments, 0.03, seed), 1.0) for seed in range(200)]
    steep = [still_falling(a_path(0.5, moments, 0.03, seed), 1.0) for seed in range(200)]
    assert np.mean(flat) < 0.08
    assert np.mean(steep) > 0.92


def test_a_spike_moves_nothing():
    path = a_path(0.3)
    path[-3] = Point(path[-3].steps, 10 * path[-3].force_rmse)
    assert gain_of_doubling(path) == pytest.approx(1 - 2**-0.3, abs=0.02)


def test_each_limit_is_told_with_its_numbers_and_what_to_do():
    steps = what_limits(0.0503, 0.0525, 0.31)
    assert steps.by == "steps"
    assert steps.evidence == (
        "force RMSE 50.3 meV/Å on the training set, 52.5 on the validation set; "
        "twice the steps would take off about 31 %"
    )
    assert "--steps" in steps.advice
    labels = what_limits(0.0146, 0.0256, 0.02)
    assert labels.by == "labels"
    assert "buy labels" in labels.advice
    assert "about 2 %" in labels.evidence
    network = what_limits(0.0503, 0.0525, 0.0)
    assert network.by == "network"
    assert "--channels" in network.advice
    assert "take off nothing" in network.evidence
    assert network.lines()[0].startswith("limited by the network: force RMSE 50.3 meV/Å")
    assert labels.lines()[0].startswith("limited by labels: ")
    assert labels.lines()[1].startswith("advice: ")


def test_steps_come_first_for_they_cost_least():
    both = what_limits(0.0146, 0.0256, 0.1)
    assert both.by == "steps"
    assert both.advice == "train longer (--steps) before you buy labels, which will help, too"


def test_where_the_training_is_not_known_only_labels_can_be_told():
    assert what_limits(0.01, 0.03, None).by == "labels"
    unknown = what_limits(0.03, 0.03, None)
    assert unknown.by == "network or steps"
    assert "not known" in unknown.evidence
    assert "--steps" in unknown.advice
    assert "--channels" in unknown.advice


def test_thresholds_are_where_they_are_said_to_be():
    assert what_limits(0.02, 0.02, WORTHWHILE_GAIN).by == "network"
    assert what_limits(0.02, 0.02, WORTHWHILE_GAIN + 1e-6).by == "steps"
    assert what_limits(LABELS_RATIO, 1.0, 0.0).by == "network"
    assert what_limits(LABELS_RATIO - 1e-6, 1.0, 0.0).by == "labels"


def test_structures_kept_apart_decide_where_there_are_any():
    """They are where the model will be used: what it was not shown of them it lacks."""
    limit = what_limits(0.02, 0.022, 0.0, holdout=0.08)
    assert limit.by == "labels"
    errors = "force RMSE 20.0 meV/Å on the training set, 22.0 on the validation set, 80.0 on the hold-out structures"
    assert limit.evidence.startswith(errors)
    assert what_limits(0.02, 0.06, 0.0, holdout=0.021).by == "network"


def test_few_structures_are_not_trusted_with_a_close_decision():
    assert "4 structures" in what_limits(0.015, 0.025, 0.0, structures=4).evidence
    assert "structures tell" not in what_limits(0.015, 0.025, 0.0, structures=400).evidence
    assert "structures tell" not in what_limits(0.001, 0.025, 0.0, structures=4).evidence
    assert "structures tell" not in what_limits(0.015, 0.025, 0.5, structures=4).evidence  # another question


@pytest.mark.parametrize(
    ("train", "valid", "expected"), [(1.0, 1.0, 0.3), (0.0, 1.0, 0.0), (1.2, 1.0, 0.3), (0.0, 0.0, 0.0)]
)
def test_more_steps_lower_what_was_learnt(train, valid, expected):
    assert gain_at_the_end(0.3, train, valid) == pytest.approx(expected)


def test_a_gain_shrinks_with_the_share_that_was_learnt():
    gains = [gain_at_the_end(0.3, train, 1.0) for train in (0.1, 0.3, 0.5, 0.7, 0.9)]
    assert gains == sorted(gains)
    # In squares: half of the error is learnt, and falls to 0.49 of it.
    assert gain_at_the_end(0.3, 0.5**0.5, 1.0) == pytest.approx(1 - (0.5 + 0.5 * 0.49) ** 0.5)
