"""What all rules have in common."""

import pytest
import torch

from adaptntk.core import blocks as core_blocks
from adaptntk.core.blocks import TensorBlocks, as_blocks
from adaptntk.core.posterior import Posterior
from adaptntk.core.selection.registry import SCORES_SUFFICE, SELECTORS, register_selector
from adaptntk.errors import InputError
from adaptntk.testing import check_rule
from tests.core.selection.rules import select

RANDOM = ("random", "kmeans++")
# Those that have no business with copies of what is known or picked.
DIVERSE = [name for name in SELECTORS if name not in ("topb", "random")]


@pytest.mark.parametrize("name", SELECTORS)
def test_every_rule_keeps_the_public_contract(name):
    check_rule(SELECTORS[name])


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


@pytest.mark.parametrize("name", [name for name in SELECTORS if name not in RANDOM])
def test_the_order_of_the_candidates_does_not_matter(features, name):
    train, pool, lam = features
    posterior = Posterior.fit(train, lam)
    order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(5))
    straight = select(name, posterior, train, pool, 15).indices
    shuffled = select(name, posterior, train, pool[order], 15).indices
    assert [int(order[i]) for i in shuffled] == straight


@pytest.mark.parametrize("name", SELECTORS)
def test_float32_rows_from_parts(features, name, monkeypatch):
    """Rows in float32, read a few at a time, as from a store."""
    train, pool, lam = features
    posterior = Posterior.fit(train, lam)
    whole = select(name, posterior, train, pool.float(), 15, seed=1).indices
    monkeypatch.setattr(core_blocks, "_CHUNK_BYTES", 8 * pool.shape[1] * 7)
    assert select(name, posterior, train, pool.float(), 15, seed=1).indices == whole


@pytest.mark.parametrize("name", SELECTORS)
def test_one_row_per_structure_is_a_matrix(name, features):
    train, pool, lam = features
    posterior = Posterior.fit(train, lam)
    plain = select(name, posterior, train, pool, 10, seed=2).indices
    assert select(name, posterior, as_blocks(train), TensorBlocks(pool[:, None]), 10, seed=2).indices == plain


def test_a_rule_of_ones_own(features, monkeypatch):
    monkeypatch.setattr("adaptntk.core.selection.registry.SELECTORS", registered := dict(SELECTORS))
    monkeypatch.setattr("adaptntk.core.selection.registry.SCORES_SUFFICE", suffice := set(SCORES_SUFFICE))
    train, pool, lam = features
    register_selector("mine", registered["topb"], scores_suffice=True)
    assert suffice == SCORES_SUFFICE | {"mine"}
    posterior = Posterior.fit(train, lam)
    assert select("mine", posterior, train, pool, 3) == select("topb", posterior, train, pool, 3)
    with pytest.raises(InputError, match="there is a selection method 'mine' already"):
        register_selector("mine", registered["topb"])


def test_an_unknown_rule(features):
    train, candidates, lam = features
    with pytest.raises(InputError, match="choose one of adaptntk, adaptntk\\+forces, topb, lcmd"):
        select("best", Posterior.fit(train, lam), train, candidates, 3)
