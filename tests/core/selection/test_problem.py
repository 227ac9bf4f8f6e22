"""What every rule is given and must respect."""

import numpy as np
import pytest
import torch

from adaptntk.core.blocks import TensorBlocks
from adaptntk.core.posterior import DualPosterior, Posterior
from adaptntk.core.selection.problem import Constraints, Problem
from adaptntk.core.selection.registry import SCORES_SUFFICE, SELECTORS, select as select_by_name
from adaptntk.errors import InputError
from tests.core.selection.rules import blocks, naive_variance, select


@pytest.mark.parametrize("rule", SELECTORS)
def test_constraints_hold(features, rule):
    train, candidates, lam = features
    posterior = Posterior.fit(train, lam)
    excluded = [index % 2 == 0 for index in range(len(candidates))]
    groups = [index % 11 for index in range(len(candidates))]
    chosen = select(rule, posterior, train, candidates, 20, Constraints(excluded, 0.0, groups, 2), seed=4).indices
    assert len(set(chosen)) == 20
    assert all(index % 2 for index in chosen)
    assert max(np.bincount([groups[index] for index in chosen])) <= 2


@pytest.mark.parametrize("rule", SELECTORS)
@pytest.mark.parametrize("asked", [1, 2])
def test_min_separation_holds_between_all_picks(rule, asked):
    train, pool = blocks(0, 8, asked=asked), blocks(1, 60, asked=asked)
    posterior = Posterior.fit(train, 0.1)
    found = select(rule, posterior, train, pool, 6, Constraints(min_separation=0.4), seed=1).indices
    rows = pool.tensor[found][:, :asked]
    kernel = posterior.lam * torch.linalg.inv(posterior.covariance_matrix)
    cross = torch.einsum("iap,pq,jaq->ij", rows, kernel, rows)
    total = cross.diagonal()[:, None] + cross.diagonal()
    assert ((total - 2 * cross) / total)[~torch.eye(6, dtype=torch.bool)].min() >= 0.4 - 1e-9


@pytest.mark.parametrize("rule", SELECTORS)
def test_what_cannot_be_satisfied_is_refused(features, rule):
    train, candidates, lam = features
    posterior = Posterior.fit(train, lam)
    with pytest.raises(InputError, match="only 5 candidates"):
        select(rule, posterior, train, candidates[:5], 6)
    with pytest.raises(InputError, match="only 1 of the 3 structures"):
        select(rule, posterior, train, candidates[:1].expand(9, -1), 3, Constraints(min_separation=0.5))
    for separation in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match="between 0 "):
            select(rule, posterior, train, candidates, 3, Constraints(min_separation=separation))
    for count in (0, -3):
        with pytest.raises(InputError, match="at least one"):
            select(rule, posterior, train, candidates, count)
    with pytest.raises(InputError, match="allow at least one"):
        select(rule, posterior, train, candidates, 3, Constraints(groups=[0] * len(candidates), per_group_max=0))


@pytest.mark.parametrize("rule", SELECTORS)
@pytest.mark.parametrize("asked", [1, 2])
def test_scores_are_those_of_a_refit_with_the_picks_before(rule, asked):
    """By every rule, whatever it looks at; the refit with an explicit inverse."""
    train, pool, lam = blocks(0, 8, asked=asked), blocks(1, 60, asked=asked), 1e-2
    found = select(rule, Posterior.fit(train, lam), train, pool, 7, seed=2)
    for turn, index in enumerate(found.indices):
        known = TensorBlocks(torch.cat([train.tensor, pool.tensor[found.indices[:turn]]]), asked)
        expected = naive_variance(known, TensorBlocks(pool.tensor[[index]], asked), lam)
        assert found.scores[turn] == pytest.approx(float(expected), rel=1e-8)


def test_scores_without_features_are_those_before_the_batch():
    scores = torch.tensor([3.0, 1.0, 4.0, 2.0])
    assert select_by_name("topb", Problem.of_scores(scores, 2)).scores == [4.0, 3.0]


@pytest.mark.parametrize("form", [Posterior, DualPosterior])
def test_the_scores_are_the_variances_before_the_batch(form):
    train, pool = blocks(0, 8, asked=2), blocks(1, 20, asked=2)
    posterior = form.fit(train, 0.1)
    problem = Problem.of_features(posterior, train, pool, 3)
    assert len(problem) == 20
    assert torch.equal(problem.scores, posterior.variance(pool))


@pytest.mark.parametrize("rule", SELECTORS)
def test_scores_without_features(rule):
    problem = Problem.of_scores(torch.arange(10.0), 3)
    if rule in SCORES_SUFFICE:
        assert len(SELECTORS[rule](problem).indices) == 3
    else:
        with pytest.raises(InputError, match="needs features, and there are only scores"):
            SELECTORS[rule](problem)
