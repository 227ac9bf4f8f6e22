"""Several rows per structure: everything against refitting with plain rows, in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptntk.core.blocks import TensorBlocks, as_blocks, join
from adaptntk.core.posterior import DualPosterior, Posterior, RidgePath, sequential_variances
from adaptntk.core.selection.problem import Constraints
from adaptntk.core.selection.registry import SELECTORS
from adaptntk.errors import InputError
from tests.core.selection.rules import select

FORMS = [Posterior, DualPosterior]


def blocks(seed, structures, rows=3, asked=1, width=10):
    generator = torch.Generator().manual_seed(seed)
    tensor = torch.randn(structures, rows, width, generator=generator, dtype=torch.float64)
    return TensorBlocks(tensor * torch.logspace(0, -1, width, dtype=torch.float64), asked)


def naive_variance(training, queries, lam):
    """Eq. 5 for each row that is asked about, and their sum."""
    rows = training.flatten(0, 1)
    inverse = torch.linalg.inv(rows.T @ rows + lam * torch.eye(rows.shape[1], dtype=torch.float64))
    asked = queries.tensor[:, : queries.asked]
    return lam * torch.einsum("nap,pq,naq->n", asked, inverse, asked)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("asked", [1, 2, 3])
def test_the_score_of_a_structure_is_the_sum_over_the_rows_asked_about(form, asked):
    train, queries = blocks(0, 8), blocks(1, 30, asked=asked)
    expected = naive_variance(train.tensor, queries, 0.1)
    assert torch.allclose(form.fit(train, 0.1).variance(queries), expected, rtol=1e-10)
    assert torch.allclose(RidgePath(train).variances(queries, [0.1, 1.0])[0], expected, rtol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_conditioning_on_blocks_is_refitting_with_them(form):
    train, new, queries = blocks(0, 8), blocks(1, 4), blocks(2, 30, asked=2)
    before = form.fit(train, 0.1)
    together = form.fit(join(train, new.tensor), 0.1).variance(queries)
    assert torch.allclose(before.condition(new).variance(queries), together, rtol=1e-10)
    assert (together <= before.variance(queries) + 1e-12).all()
    # In whatever order they come.
    one_by_one = before.condition(new.tensor[2:]).condition(new.tensor[:2])
    assert torch.allclose(one_by_one.variance(queries), together, rtol=1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("asked", [1, 3])
def test_sequential_variances_are_those_of_refitting_after_each(form, asked):
    train, picks = blocks(0, 8), blocks(1, 6, asked=asked)
    posterior = form.fit(train, 0.05)
    expected = []
    for index in range(len(picks)):
        now = posterior.condition(picks.tensor[:index]) if index else posterior
        expected.append(float(now.variance(TensorBlocks(picks.tensor[index : index + 1], asked))))
    assert sequential_variances(posterior, picks).tolist() == pytest.approx(expected, rel=1e-9)


def naive_greedy(train, pool, lam, count):
    picks, scores = [], []
    for _ in range(count):
        rows = torch.cat([train.tensor, pool.tensor[picks]])
        u = naive_variance(rows, pool, lam)
        u[picks] = -torch.inf
        picks.append(int(u.argmax()))
        scores.append(float(u.max()))
    return picks, scores


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), rows=st.integers(1, 4), lam=st.sampled_from([1e-3, 0.1]), count=st.integers(1, 8))
def test_the_sequential_rule_learns_whole_blocks(seed, rows, lam, count):
    asked = 1 + seed % rows
    train, pool = blocks(seed, 5, rows, asked), blocks(seed + 1, 40, rows, asked)
    found = select("adaptntk", Posterior.fit(train, lam), train, pool, count)
    picks, scores = naive_greedy(train, pool, lam, count)
    assert found.indices == picks
    assert np.allclose(found.scores, scores, rtol=1e-8)


def naive_bait(train, pool, lam, count):
    """Every gain from a refitted posterior."""
    everything = TensorBlocks(torch.cat([train.tensor, pool.tensor]), pool.asked)

    def total(picks):
        return float(naive_variance(torch.cat([train.tensor, pool.tensor[picks]]), everything, lam).sum())

    picks = []
    for _ in range(2 * count):
        totals = [np.inf if i in picks else total([*picks, i]) for i in range(len(pool))]
        picks.append(int(np.argmin(totals)))
    while len(picks) > count:
        picks.pop(int(np.argmin([total(picks[:i] + picks[i + 1 :]) for i in range(len(picks))])))
    return picks


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("asked", [1, 2])
def test_bait_counts_whole_blocks(seed, asked):
    train, pool = blocks(seed, 4, 2, asked, width=8), blocks(seed + 50, 16, 2, asked, width=8)
    found = select("bait", Posterior.fit(train, 0.1), train, pool, 3)
    assert found.indices == naive_bait(train, pool, 0.1, 3)


@pytest.mark.parametrize("name", SELECTORS)
def test_every_rule_takes_blocks_and_respects_constraints(name):
    train, pool = blocks(0, 6, asked=2), blocks(1, 40, asked=2)
    posterior = Posterior.fit(train, 0.1)
    constraints = Constraints([i % 2 == 0 for i in range(40)], 0.2, [i % 5 for i in range(40)], 2)
    found = select(name, posterior, train, pool, 6, constraints, seed=1).indices
    assert len(set(found)) == 6
    assert all(i % 2 for i in found)
    flat = pool.tensor[found][:, :2]
    cross = torch.einsum("iap,pq,jaq->ij", flat, _kernel(posterior), flat)
    total = cross.diagonal()[:, None] + cross.diagonal()
    assert ((total - 2 * cross) / total)[~torch.eye(6, dtype=torch.bool)].min() >= 0.2 - 1e-9


def _kernel(posterior):
    return posterior.lam * torch.linalg.inv(posterior.covariance_matrix)


@pytest.mark.parametrize("name", SELECTORS)
def test_one_row_per_structure_is_a_matrix(name, features):
    train, pool, lam = features
    posterior = Posterior.fit(train, lam)
    plain = select(name, posterior, train, pool, 10, seed=2).indices
    assert select(name, posterior, as_blocks(train), TensorBlocks(pool[:, None]), 10, seed=2).indices == plain


def test_what_is_no_block_is_refused():
    with pytest.raises(InputError, match="blocks of at least 4 rows"):
        TensorBlocks(torch.zeros(5, 3, 2), asked=4)
    with pytest.raises(InputError, match="array of shape"):
        as_blocks(torch.zeros(5))
