"""Which score speaks of forces."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from adaptntk.core.question import BOTH, COMMITTEE, ENERGY, QUESTIONS, choose_question, force_scores


def scores(rng, noise, count=200):
    """Errors, and scores that follow their squares with so much noise in the logarithm each."""
    errors = np.exp(rng.normal(size=count))
    return errors, *(errors**2 * np.exp(2 * level * rng.normal(size=count)) for level in noise)


def test_the_score_of_each_question():
    u, v = np.array([1.0, 4.0, -1e-20]), np.array([4.0, 9.0, 1.0])
    assert force_scores(ENERGY, u, None) is u
    assert force_scores(COMMITTEE, u, v) is v
    assert np.array_equal(force_scores(BOTH, u, v), [2.0, 6.0, 0.0])


def test_both_is_the_choice_where_each_has_a_noise_of_its_own():
    errors, u, v = scores(np.random.default_rng(0), (1.0, 1.0))
    found = choose_question(u, v, errors, np.random.default_rng(0))
    assert found.name == BOTH
    assert found.ranks[BOTH] > max(found.ranks[ENERGY], found.ranks[COMMITTEE])
    assert {name: spearmanr(force_scores(name, u, v), errors)[0] for name in QUESTIONS} == pytest.approx(found.ranks)
    assert str(found).startswith(f"both, rank correlation {found.ranks[BOTH]:.2f} (energy ")


@pytest.mark.parametrize(("noise", "expected"), [((3.0, 0.3), COMMITTEE), ((0.3, 3.0), ENERGY)])
def test_a_score_that_knows_nothing_is_left_out(noise, expected):
    errors, u, v = scores(np.random.default_rng(1), noise)
    found = choose_question(u, v, errors, np.random.default_rng(0))
    assert found.name == expected
    assert "better than both by" in found.reason


def test_noise_does_not_choose():
    """With scores that are alike, few structures do not move the choice but now and then."""
    moved = 0
    for seed in range(40):
        errors, u, v = scores(np.random.default_rng(seed), (0.8, 0.8), count=30)
        moved += choose_question(u, v, errors, np.random.default_rng(seed)).name != BOTH
    assert moved <= 8


def test_errors_that_are_all_the_same_choose_nothing():
    found = choose_question(np.arange(1.0, 21), np.arange(1.0, 21), np.ones(20), np.random.default_rng(0))
    assert found.name == BOTH
