"""Rules of distances and BAIT: against recomputation, against bmdal_reg, and on pools with planted duplicates."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptntk.core.posterior import DualPosterior, Posterior
from adaptntk.core.selection.problem import Constraints
from adaptntk.core.selection.registry import SELECTORS
from adaptntk.errors import InputError
from adaptntk.testing import check_acquisition
from tests.core.selection.rules import select

# Which of these have no business with copies of what is known or picked.
DIVERSE = [name for name in SELECTORS if name not in ("topb", "random")]


def bait(posterior, train, pool, count):
    return select("bait", posterior, train, pool, count)


def max_dist(train, pool, count):
    return select("maxdist", Posterior.fit(train, 1.0), train, pool, count)


def lcmd(train, pool, count):
    return select("lcmd", Posterior.fit(train, 1.0), train, pool, count)


def kmeans_pp(train, pool, count, seed):
    return select("kmeans++", Posterior.fit(train, 1.0), train, pool, count, seed=seed)


def bmdal(monkeypatch):
    """Their selection module, and features from rows."""
    monkeypatch.setattr(np, "Inf", np.inf, raising=False)  # the package was written for NumPy 1
    from bmdal_reg.bmdal import selection
    from bmdal_reg.bmdal.feature_data import TensorFeatureData
    from bmdal_reg.bmdal.feature_maps import IdentityFeatureMap
    from bmdal_reg.bmdal.features import Features

    def wrap(rows):
        return Features(IdentityFeatureMap(n_features=rows.shape[1]), TensorFeatureData(rows))

    return selection, wrap


def distances(rows, centres):
    return (rows[:, None] - centres[None]).square().sum(2)


def naive_max_dist(train, pool, count):
    centres, picks = train, []
    for _ in range(count):
        nearest = distances(pool, centres).min(1).values
        nearest[picks] = -1
        picks.append(int(nearest.argmax()))
        centres = torch.cat([centres, pool[picks[-1]][None]])
    return picks


def naive_lcmd(train, pool, count):
    centres, picks = train, []
    for _ in range(count):
        nearest, which = distances(pool, centres).min(1)
        nearest[picks] = 0.0
        sizes = torch.stack([nearest[which == c].sum() for c in range(len(centres))])
        inside = (which == int(sizes.argmax())) & ~torch.isin(torch.arange(len(pool)), torch.tensor(picks, dtype=int))
        picks.append(int(torch.where(inside, nearest, -1.0).argmax()))
        centres = torch.cat([centres, pool[picks[-1]][None]])
    return picks


def naive_bait(train, pool, lam, count):
    """Every gain from a refitted posterior."""
    everything = torch.cat([train, pool])

    def total(rows):
        return float(Posterior.fit(torch.cat([train, rows]), lam).variance(everything).sum())

    picks: list[int] = []
    for _ in range(2 * count):
        totals = [np.inf if i in picks else total(pool[[*picks, i]]) for i in range(len(pool))]
        picks.append(int(np.argmin(totals)))
    while len(picks) > count:
        totals = [total(pool[picks[:i] + picks[i + 1 :]]) for i in range(len(picks))]
        picks.pop(int(np.argmin(totals)))
    return picks


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), count=st.integers(1, 8))
def test_recomputation_gives_the_same_picks(seed, count):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(60, 6, generator=generator, dtype=torch.float64)
    train, pool = rows[:10], rows[10:]
    assert max_dist(train, pool, count).indices == naive_max_dist(train, pool, count)
    assert lcmd(train, pool, count).indices == naive_lcmd(train, pool, count)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 999), lam=st.sampled_from([1e-3, 0.1, 1.0]))
def test_bait_is_what_it_says(seed, lam):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(34, 5, generator=generator, dtype=torch.float64)
    train, pool = rows[:10], rows[10:]
    found = bait(Posterior.fit(train, lam), train, pool, 4)
    assert found.indices == naive_bait(train, pool, lam, 4)


@pytest.mark.parametrize("lam", [1e-4, 1e-6, 1e-7])
@pytest.mark.parametrize("seed", range(4))
def test_bait_drops_the_right_ones_with_a_small_ridge(seed, lam):
    """Directions that nothing has resolved, far outliers, and fewer dimensions than picks."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(50, 12, generator=generator, dtype=torch.float64)
    rows[10:18] *= 10
    train, pool = rows[:10], rows[10:]
    found = bait(Posterior.fit(train, lam), train, pool, 8)
    assert found.indices == naive_bait(train, pool, lam, 8)


def test_the_gain_of_bait_is_the_fall_of_the_summed_variance(features):
    train, pool, lam = features
    posterior = Posterior.fit(train, lam)
    everything = torch.cat([train, pool])
    found = bait(posterior, train, pool, 1)
    fall = posterior.variance(everything).sum() - posterior.condition(pool[found.indices]).variance(everything).sum()
    # Of two that were picked one was dropped: the gain of the first is known when it stayed.
    first = int(torch.stack([_gain(posterior, everything, row) for row in pool]).argmax())
    if found.indices == [first]:
        assert found.scores[0] == pytest.approx(float(fall))


def _gain(posterior, everything, row):
    column = posterior.covariance(everything, row[None])[:, 0]
    return column.square().sum() / (posterior.lam + posterior.variance(row[None])[0])


def test_picks_of_bmdal(features, monkeypatch):
    """The reference implementation of Holzmüller et al. (2023), in its TP mode; for BAIT on posterior features."""
    selection, wrap = bmdal(monkeypatch)
    train, pool, lam = features
    for ours, theirs in (
        (max_dist, selection.MaxDistSelectionMethod),
        (lcmd, selection.LargestClusterMaxDistSelectionMethod),
    ):
        oracle = theirs(wrap(pool), wrap(train), sel_with_train=True, verbosity=0)
        assert ours(train, pool, 40).indices == oracle.select(40).tolist()
    posterior = Posterior.fit(train, lam)
    whitened = wrap(posterior.whiten(pool)), wrap(posterior.whiten(train))
    oracle = selection.BaitFeatureSpaceSelectionMethod(
        *whitened, noise_sigma=lam**0.5, verbosity=0, overselection_factor=2.0
    )
    assert set(bait(posterior, train, pool, 20).indices) == set(oracle.select(20).tolist())


@pytest.mark.parametrize("name", DIVERSE)
def test_planted_duplicates_are_taken_once(features, name):
    """Copies of the best candidates and of training structures: no batch holds two of a kind, or a known one."""
    train, pool, lam = features
    posterior = Posterior.fit(train, lam)
    best = posterior.variance(pool).topk(5).indices
    planted = torch.cat([pool, pool[best].repeat(6, 1), train])
    kinds = [*range(len(pool)), *(best.tolist() * 6), *(["known"] * len(train))]
    picked = [kinds[i] for i in select(name, posterior, train, planted, 20, seed=3).indices]
    assert len(set(picked)) == 20
    assert "known" not in picked


@pytest.mark.parametrize("name", SELECTORS)
def test_the_order_of_the_candidates_does_not_matter(features, name):
    if name in ("random", "kmeans++"):
        pytest.skip("draws by position")
    train, pool, lam = features
    posterior = Posterior.fit(train, lam)
    order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(5))
    straight = select(name, posterior, train, pool, 15).indices
    shuffled = select(name, posterior, train, pool[order], 15).indices
    assert [int(order[i]) for i in shuffled] == straight


@pytest.mark.parametrize("name", SELECTORS)
def test_float32_rows_from_parts(features, name, monkeypatch):
    """Rows in float32, read a few at a time, as from a store."""
    from adaptntk.core import blocks

    train, pool, lam = features
    posterior = Posterior.fit(train, lam)
    whole = select(name, posterior, train, pool.float(), 15, seed=1).indices
    monkeypatch.setattr(blocks, "_CHUNK_BYTES", 8 * pool.shape[1] * 7)
    assert select(name, posterior, train, pool.float(), 15, seed=1).indices == whole


def test_kmeans_pp_draws_in_proportion_to_the_squared_distance():
    train = torch.zeros(1, 2, dtype=torch.float64)
    pool = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0], [0.0, 3.0]], dtype=torch.float64)
    draws = [kmeans_pp(train, pool, 1, seed).indices[0] for seed in range(4000)]
    shares = np.bincount(draws, minlength=4) / 4000
    assert shares == pytest.approx(np.array([1, 4, 0, 9]) / 14, abs=0.03)
    everything = kmeans_pp(train, pool, 4, 0).indices
    assert sorted(everything) == [0, 1, 2, 3]
    assert everything[-1] == 2  # the copy of what is known, only when nothing else is left


def test_the_shortlist_holds_the_most_uncertain(features):
    train, pool, lam = features
    posterior = Posterior.fit(train, lam)
    chosen = select("adaptntk+lcmd", posterior, train, pool, 5).indices
    assert set(chosen) <= set(posterior.variance(pool).topk(50).indices.tolist())
    # Groups that leave too few on the shortlist make it longer.
    ranked = posterior.variance(pool).argsort(descending=True).tolist()
    groups = [0 if ranked.index(i) < 200 else i for i in range(len(pool))]
    longer = select("adaptntk+lcmd", posterior, train, pool, 5, Constraints(groups=groups, per_group_max=1)).indices
    assert sum(groups[i] == 0 for i in longer) <= 1


def test_bait_needs_a_sketch(features):
    train, pool, lam = features
    with pytest.raises(InputError, match="needs sketched features"):
        bait(DualPosterior.fit(train, lam), train, pool, 3)


def test_distances_survive_a_large_offset(features):
    """What all features have in common says nothing, but it can drown the differences."""
    train, pool, _ = features
    offset = 1e6
    assert lcmd(train + offset, pool + offset, 20).indices == lcmd(train, pool, 20).indices


@pytest.mark.parametrize("name", SELECTORS)
def test_every_rule_keeps_the_public_contract(name):
    check_acquisition(SELECTORS[name])


def test_the_contract_notices_a_rule_that_forgets_what_is_excluded():
    def careless(problem):
        return SELECTORS["topb"](replace(problem, constraints=Constraints()))

    with pytest.raises(AssertionError, match="excluded"):
        check_acquisition(careless)
