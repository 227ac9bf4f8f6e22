import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptntk.core.posterior import DualPosterior, Posterior
from adaptntk.core.selection import greedy as acquisition
from adaptntk.core.selection.problem import Constraints, Problem
from adaptntk.core.selection.registry import SELECTORS
from adaptntk.errors import InputError
from tests.core.selection.rules import greedy, select, top_b


def naive_greedy(train, candidates, lam, count):
    """Refit from scratch after every pick."""
    picks, scores = [], []
    rows = train
    for _ in range(count):
        u = Posterior.fit(rows, lam).variance(candidates)
        u[picks] = -torch.inf
        picks.append(int(u.argmax()))
        scores.append(float(u.max()))
        rows = torch.cat([rows, candidates[picks[-1]][None]])
    return picks, scores


@pytest.mark.parametrize("form", [Posterior, DualPosterior])
def test_200_picks_equal_recomputation_from_scratch(features, form):
    train, candidates, lam = features
    selection = greedy(form.fit(train, lam), candidates, 200)
    picks, scores = naive_greedy(train, candidates, lam, 200)
    assert selection.indices == picks
    assert np.allclose(selection.scores, scores, rtol=1e-8, atol=0)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), lam=st.floats(1e-4, 1.0), count=st.integers(1, 10))
def test_random_problems_equal_recomputation(seed, lam, count):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(60, 12, generator=generator, dtype=torch.float64)
    selection = greedy(Posterior.fit(rows[:20], lam), rows[20:], count)
    picks, scores = naive_greedy(rows[:20], rows[20:], lam, count)
    assert selection.indices == picks
    assert np.allclose(selection.scores, scores, rtol=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), clusters=st.integers(1, 12), spread=st.sampled_from([1e-3, 0.1, 1.0]))
def test_redundant_pools_equal_recomputation(seed, clusters, spread):
    """Clusters of near-duplicates make most old scores useless: the worst case of lazy evaluation."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(clusters, 12, generator=generator, dtype=torch.float64)
    rows = centres[torch.randint(clusters, (140,), generator=generator)]
    rows = rows + spread * torch.randn(140, 12, generator=generator, dtype=torch.float64)
    before = acquisition._FIRST_BLOCK
    acquisition._FIRST_BLOCK = 2
    try:
        selection = greedy(Posterior.fit(rows[:20], 0.1), rows[20:], 30)
    finally:
        acquisition._FIRST_BLOCK = before
    picks, scores = naive_greedy(rows[:20], rows[20:], 0.1, 30)
    assert selection.indices == picks
    assert np.allclose(selection.scores, scores, rtol=1e-9)


def test_few_candidates_are_touched_on_a_varied_pool(features):
    train, _, lam = features
    generator = torch.Generator().manual_seed(1)
    candidates = torch.randn(5000, 40, generator=generator, dtype=torch.float64) * train.std(0)
    scores = acquisition.FallingScores(Problem.of_features(Posterior.fit(train, lam), train, candidates, 10))
    everyone = torch.ones(len(candidates), dtype=torch.bool)
    for _ in range(10):
        index, _ = scores.best(everyone)
        everyone[index] = False
        scores.pick(index)
    assert scores.touched < len(candidates) / 2


def test_large_pool_gives_the_picks_of_recomputation():
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(20_300, 128, generator=generator, dtype=torch.float64)
    rows *= torch.logspace(0, -2, 128, dtype=torch.float64)
    selection = greedy(Posterior.fit(rows[:300], 1e-2), rows[300:], 50)
    assert selection.indices == naive_greedy(rows[:300], rows[300:], 1e-2, 50)[0]


def test_picks_of_bmdal_maxdet(features, monkeypatch):
    """MaxDet with the training posterior in the reference implementation of Holzmüller et al. (2023)."""
    monkeypatch.setattr(np, "Inf", np.inf, raising=False)  # the package was written for NumPy 1
    from bmdal_reg.bmdal.feature_data import TensorFeatureData
    from bmdal_reg.bmdal.feature_maps import IdentityFeatureMap
    from bmdal_reg.bmdal.features import Features
    from bmdal_reg.bmdal.selection import MaxDetSelectionMethod

    train, candidates, lam = features
    wrap = lambda rows: Features(IdentityFeatureMap(n_features=rows.shape[1]), TensorFeatureData(rows))  # noqa: E731
    posterior = Posterior.fit(train, lam)
    whitened = posterior.whiten(candidates)
    # Their posterior kernel, here as whitened features, and lam as the noise on the diagonal.
    oracle = MaxDetSelectionMethod(wrap(whitened), wrap(whitened[:1]), noise_sigma=lam**0.5, verbosity=0)
    assert greedy(posterior, candidates, 60).indices == oracle.select(60).tolist()
    # The same from raw features: their kernel conditions on the training rows one after the other.
    joint = MaxDetSelectionMethod(wrap(candidates), wrap(train), sel_with_train=True, noise_sigma=lam**0.5, verbosity=0)
    assert greedy(posterior, candidates, 60).indices == joint.select(60).tolist()


def test_one_pick_is_the_top_score(features):
    train, candidates, lam = features
    posterior = Posterior.fit(train, lam)
    best = int(posterior.variance(candidates).argmax())
    assert greedy(posterior, candidates, 1).indices == top_b(posterior, candidates, 1).indices == [best]


def test_a_planted_duplicate_is_worth_less_after_its_twin(features):
    train, candidates, lam = features
    posterior = Posterior.fit(train, lam)
    best = int(posterior.variance(candidates).argmax())
    pool = torch.cat([candidates[best][None].repeat(5, 1), candidates])
    assert len({tuple(pool[i].tolist()) for i in greedy(posterior, pool, 5).indices}) == 5
    assert len({tuple(pool[i].tolist()) for i in top_b(posterior, pool, 5).indices}) == 1


def test_scores_at_the_time_of_picking_never_rise(features):
    train, candidates, lam = features
    scores = greedy(Posterior.fit(train, lam), candidates, 100).scores
    assert all(a >= b for a, b in itertools.pairwise(scores))


def test_gaps_are_the_margin_of_the_corollary(features):
    train, candidates, lam = features
    posterior = Posterior.fit(train, lam)
    first, second = posterior.variance(candidates).sort(descending=True).values[:2].tolist()
    gap = greedy(posterior, candidates, 3).gaps[0]
    assert gap == pytest.approx((first - second) / (2 * lam + first + second))


def test_all_candidates_can_be_taken(features):
    train, candidates, lam = features
    selection = greedy(Posterior.fit(train, lam), candidates[:10], 10)
    assert sorted(selection.indices) == list(range(10))
    assert selection.gaps[-1] == float("inf")


@pytest.mark.parametrize("method", SELECTORS)
def test_constraints_hold_for_every_method(features, method):
    train, candidates, lam = features
    posterior = Posterior.fit(train, lam)
    excluded = [index % 2 == 0 for index in range(len(candidates))]
    groups = [index % 11 for index in range(len(candidates))]
    chosen = select(method, posterior, train, candidates, 20, Constraints(excluded, 0.0, groups, 2), seed=4).indices
    assert len(set(chosen)) == 20
    assert all(index % 2 for index in chosen)
    assert max(np.bincount([groups[index] for index in chosen])) <= 2


@pytest.mark.parametrize("method", SELECTORS)
def test_min_separation_holds_between_all_picks(features, method):
    train, candidates, lam = features
    posterior = Posterior.fit(train, lam)
    chosen = select(method, posterior, train, candidates, 12, Constraints(min_separation=0.7), seed=4).indices
    cross = posterior.covariance(candidates[chosen], candidates[chosen])
    total = cross.diagonal()[:, None] + cross.diagonal()[None]
    separation = (total - 2 * cross) / total
    assert (separation[~torch.eye(12, dtype=torch.bool)] >= 0.7).all()


def test_random_is_seeded(features):
    train, candidates, lam = features
    posterior = Posterior.fit(train, lam)
    draw = lambda seed: select("random", posterior, train, candidates, 9, seed=seed).indices  # noqa: E731
    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


@pytest.mark.parametrize("method", SELECTORS)
def test_too_few_candidates(features, method):
    train, candidates, lam = features
    posterior = Posterior.fit(train, lam)
    with pytest.raises(InputError, match="only 5 candidates"):
        select(method, posterior, train, candidates[:5], 6)
    with pytest.raises(InputError, match="only 1 of the 3 structures"):
        select(method, posterior, train, candidates, 3, Constraints(min_separation=3.0))
    for count in (0, -3):
        with pytest.raises(InputError, match="at least one"):
            select(method, posterior, train, candidates, count)
    with pytest.raises(InputError, match="allow at least one"):
        select(method, posterior, train, candidates, 3, Constraints(groups=[0] * len(candidates), per_group_max=0))


def test_unknown_method(features):
    train, candidates, lam = features
    with pytest.raises(InputError, match="choose one of adaptntk, topb, lcmd"):
        select("best", Posterior.fit(train, lam), train, candidates, 3)
