"""The sequential rule against refitting from scratch after every pick, and against bmdal_reg."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from adaptntk.core.posterior import DualPosterior, Posterior
from adaptntk.core.selection import greedy as module
from adaptntk.core.selection.problem import FeatureSpace, Labels, Problem
from adaptntk.core.selection.registry import select as select_by_name
from tests.core.selection.rules import blocks, greedy, naive_variance, select, top_b


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
    before = module._FIRST_BLOCK
    module._FIRST_BLOCK = 2
    try:
        selection = greedy(Posterior.fit(rows[:20], 0.1), rows[20:], 30)
    finally:
        module._FIRST_BLOCK = before
    picks, scores = naive_greedy(rows[:20], rows[20:], 0.1, 30)
    assert selection.indices == picks
    assert np.allclose(selection.scores, scores, rtol=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), rows=st.integers(1, 4), lam=st.sampled_from([1e-3, 0.1]), count=st.integers(1, 8))
def test_whole_blocks_are_learnt(seed, rows, lam, count):
    asked = 1 + seed % rows
    train, pool = blocks(seed, 5, rows, asked), blocks(seed + 1, 40, rows, asked)
    found = select("adaptntk", Posterior.fit(train, lam), train, pool, count)
    picks, scores = [], []
    for _ in range(count):
        u = naive_variance(torch.cat([train.tensor, pool.tensor[picks]]), pool, lam)
        u[picks] = -torch.inf
        picks.append(int(u.argmax()))
        scores.append(float(u.max()))
    assert found.indices == picks
    assert np.allclose(found.scores, scores, rtol=1e-8)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), rows=st.integers(1, 6), lam=st.sampled_from([1e-3, 0.1]), count=st.integers(1, 8))
def test_picks_teach_what_their_labels_will(seed, rows, lam, count):
    """Against refitting with the block and the further rows of each pick; rows of no other candidate are made."""
    train, pool = blocks(seed, 5, 2), blocks(seed + 1, 40, 2)
    further, made = blocks(seed + 2, 40, rows).tensor, []

    def make(indices):
        made.extend(indices)
        return further[indices]

    space = FeatureSpace(Posterior.fit(train, lam), train, pool, Labels(rows, make))
    found = select_by_name("adaptntk+forces", Problem(space, count))
    picks, scores = [], []
    for _ in range(count):
        known = [*train.tensor, *pool.tensor[picks], *further[picks]]
        u = naive_variance(torch.cat(known)[:, None], pool, lam)
        u[picks] = -torch.inf
        picks.append(int(u.argmax()))
        scores.append(float(u.max()))
    assert found.indices == picks == made
    assert np.allclose(found.scores, scores, rtol=1e-7)
    assert np.allclose(found.criteria, scores, rtol=1e-7)


def test_without_rows_of_labels_it_is_the_rule_of_the_paper(features):
    train, candidates, lam = features
    posterior = Posterior.fit(train, lam)
    both = [select(name, posterior, train, candidates, 20) for name in ("adaptntk", "adaptntk+forces")]
    assert both[0].indices == both[1].indices
    assert both[0].scores == both[1].scores


def test_few_candidates_are_touched_on_a_varied_pool(features):
    train, _, lam = features
    generator = torch.Generator().manual_seed(1)
    candidates = torch.randn(5000, 40, generator=generator, dtype=torch.float64) * train.std(0)
    scores = module.FallingScores(Problem.of_features(Posterior.fit(train, lam), train, candidates, 10))
    everyone = torch.ones(len(candidates), dtype=torch.bool)
    for _ in range(10):
        index, _ = scores.best(everyone)
        everyone[index] = False
        scores.pick(index)
    assert scores.touched < len(candidates) / 2


def test_large_pool_gives_the_picks_of_recomputation():
    """Larger than a part that is worked on at a time."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(10_300, 96, generator=generator, dtype=torch.float64)
    rows *= torch.logspace(0, -2, 96, dtype=torch.float64)
    selection = greedy(Posterior.fit(rows[:300], 1e-2), rows[300:], 25)
    assert selection.indices == naive_greedy(rows[:300], rows[300:], 1e-2, 25)[0]


def test_picks_of_bmdal_maxdet(features, bmdal):
    """MaxDet with the training posterior."""
    selection, wrap = bmdal
    train, candidates, lam = features
    posterior = Posterior.fit(train, lam)
    whitened = posterior.whiten(candidates)
    # Their posterior kernel, here as whitened features, and lam as the noise on the diagonal.
    ridge = {"noise_sigma": lam**0.5, "verbosity": 0}
    oracle = selection.MaxDetSelectionMethod(wrap(whitened), wrap(whitened[:1]), **ridge)
    assert greedy(posterior, candidates, 60).indices == oracle.select(60).tolist()
    # The same from raw features: their kernel conditions on the training rows one after the other.
    joint = selection.MaxDetSelectionMethod(wrap(candidates), wrap(train), sel_with_train=True, **ridge)
    assert greedy(posterior, candidates, 60).indices == joint.select(60).tolist()


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


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), lam=st.floats(1e-4, 1.0), count=st.integers(1, 10))
def test_weighted_scores_equal_recomputation(seed, lam, count):
    """The highest weight times score after every pick, each time refitted from scratch."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(60, 12, generator=generator, dtype=torch.float64)
    weights = torch.rand(40, generator=generator, dtype=torch.float64) + 0.01
    posterior, candidates = Posterior.fit(rows[:20], lam), rows[20:]
    problem = replace(Problem.of_features(posterior, rows[:20], candidates, count), weights=weights)
    found = select_by_name("adaptntk", problem)
    learnt, picks, criteria = rows[:20], [], []
    for _ in range(count):
        weighted = weights * Posterior.fit(learnt, lam).variance(candidates)
        weighted[picks] = -torch.inf
        picks.append(int(weighted.argmax()))
        criteria.append(float(weighted.max()))
        learnt = torch.cat([learnt, candidates[picks[-1]][None]])
    assert found.indices == picks
    assert np.allclose(found.criteria, criteria, rtol=1e-8)
    assert found.gaps == []
