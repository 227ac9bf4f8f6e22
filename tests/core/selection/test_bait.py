"""BAIT against the definition, every gain from a refitted posterior, and against bmdal_reg."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from adaptntk.core.blocks import TensorBlocks, as_blocks
from adaptntk.core.posterior import DualPosterior, Posterior
from adaptntk.core.selection import bait as module
from adaptntk.core.selection.problem import FeatureSpace, Labels, Problem
from adaptntk.core.selection.registry import select as select_by_name
from adaptntk.errors import InputError
from tests.core.selection.rules import blocks, naive_variance, select


def bait(posterior, train, pool, count):
    return select("bait", posterior, train, pool, count)


def naive_bait(train, pool, lam, count):
    train, pool = as_blocks(train), as_blocks(pool)
    everything = TensorBlocks(torch.cat([train[:], pool[:]]), pool.asked)

    def total(picks):
        known = torch.cat([train[:], pool[torch.tensor(picks, dtype=torch.int64)]])
        return float(naive_variance(known, everything, lam).sum())

    picks = []
    for _ in range(2 * count):
        totals = [np.inf if i in picks else total([*picks, i]) for i in range(len(pool))]
        picks.append(int(np.argmin(totals)))
    while len(picks) > count:
        picks.pop(int(np.argmin([total(picks[:i] + picks[i + 1 :]) for i in range(len(picks))])))
    return picks


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 999), lam=st.sampled_from([1e-3, 0.1, 1.0]))
def test_it_is_what_it_says(seed, lam):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(34, 5, generator=generator, dtype=torch.float64)
    train, pool = rows[:10], rows[10:]
    assert bait(Posterior.fit(train, lam), train, pool, 4).indices == naive_bait(train, pool, lam, 4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("asked", [1, 2])
def test_whole_blocks_count(seed, asked):
    train, pool = blocks(seed, 4, 2, asked, width=8), blocks(seed + 50, 16, 2, asked, width=8)
    assert bait(Posterior.fit(train, 0.1), train, pool, 3).indices == naive_bait(train, pool, 0.1, 3)


def naive_for_forces(train, pool, further, aims, lam, count):
    def total(picks):
        taught = [torch.cat([pool[i][None], further[i]]) for i in picks]
        return float(naive_variance(torch.cat([train, *taught])[:, None], aims[:, None], lam).sum())

    picks = []
    for _ in range(2 * count):
        picks.append(int(np.argmin([np.inf if i in picks else total([*picks, i]) for i in range(len(pool))])))
    while len(picks) > count:
        picks.pop(int(np.argmin([total(picks[:i] + picks[i + 1 :]) for i in range(len(picks))])))
    return picks


def for_forces(seed, lam, pool_size):
    """A problem, what it is made of, and the candidates of which rows of forces were made."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(22 + pool_size, 9, generator=generator, dtype=torch.float64)
    train, aims, pool = rows[:10], rows[10:22], rows[22:]
    further, made = torch.randn(pool_size, 2, 9, generator=generator, dtype=torch.float64), []
    labels = Labels(2, lambda indices: made.extend(indices) or further[indices])
    space = FeatureSpace(Posterior.fit(train, lam), as_blocks(train), as_blocks(pool), labels, lambda: aims)
    return Problem(space, 3), (train, pool, further, aims), made


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 999), lam=st.sampled_from([1e-2, 0.1, 1.0]))
def test_for_forces_it_is_what_it_says(seed, lam):
    problem, parts, made = for_forces(seed, lam, 20)
    assert select_by_name("bait+forces", problem).indices == naive_for_forces(*parts, lam, 3)
    assert sorted(made) == list(range(20))


def test_rows_of_forces_are_made_of_a_shortlist():
    """Of those whose energies alone would lower the aims most."""
    problem, (train, pool, _, aims), made = for_forces(0, 0.1, 200)
    found = select_by_name("bait+forces", problem).indices
    alone = [naive_variance(torch.cat([train, row[None]])[:, None], aims[:, None], 0.1).sum() for row in pool]
    assert sorted(made) == sorted(np.argsort(alone)[:30].tolist())
    assert set(found) <= set(made)


@pytest.mark.parametrize("lam", [1e-4, 1e-6, 1e-7])
@pytest.mark.parametrize("seed", range(4))
def test_the_right_ones_are_dropped_with_a_small_ridge(seed, lam):
    """Directions that nothing has resolved, far outliers, and fewer dimensions than picks."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(50, 12, generator=generator, dtype=torch.float64)
    rows[10:18] *= 10
    train, pool = rows[:10], rows[10:]
    assert bait(Posterior.fit(train, lam), train, pool, 8).indices == naive_bait(train, pool, lam, 8)


def test_the_gain_is_the_fall_of_the_summed_variance(features, monkeypatch):
    monkeypatch.setattr(module, "OVERSELECTION", 1)  # so that nothing is dropped
    train, pool, lam = features
    posterior = Posterior.fit(train, lam)
    everything = torch.cat([train, pool])
    found = bait(posterior, train, pool, 3)
    for place in range(3):
        before, after = (posterior.condition(pool[found.indices[:n]]) for n in (place, place + 1))
        fall = before.variance(everything).sum() - after.variance(everything).sum()
        assert found.criteria[place] == pytest.approx(float(fall), rel=1e-6)


def test_picks_of_bmdal(features, bmdal):
    """On posterior features."""
    selection, wrap = bmdal
    train, pool, lam = features
    posterior = Posterior.fit(train, lam)
    oracle = selection.BaitFeatureSpaceSelectionMethod(
        wrap(posterior.whiten(pool)),
        wrap(posterior.whiten(train)),
        noise_sigma=lam**0.5,
        verbosity=0,
        overselection_factor=2.0,
    )
    assert set(bait(posterior, train, pool, 20).indices) == set(oracle.select(20).tolist())


def test_either_form_of_the_posterior_will_do(features):
    train, pool, lam = features
    for rows in (train, train[:10]):
        dual, primal = (bait(form.fit(rows, lam), rows, pool, 3) for form in (DualPosterior, Posterior))
        assert dual.indices == primal.indices


def test_it_needs_a_sketch():
    train, pool = torch.ones(2, 8193), torch.ones(5, 8193)
    with pytest.raises(InputError, match="needs sketched features"):
        bait(DualPosterior.fit(train, 0.1), train, pool, 3)
