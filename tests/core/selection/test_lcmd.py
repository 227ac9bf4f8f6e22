import torch
from hypothesis import given, settings, strategies as st

from tests.core.selection.rules import by_distance, squared_distances


def naive_lcmd(train, pool, count):
    centres, picks = train, []
    for _ in range(count):
        nearest, which = squared_distances(pool, centres).min(1)
        nearest[picks] = 0.0
        sizes = torch.stack([nearest[which == c].sum() for c in range(len(centres))])
        inside = (which == int(sizes.argmax())) & ~torch.isin(torch.arange(len(pool)), torch.tensor(picks, dtype=int))
        picks.append(int(torch.where(inside, nearest, -1.0).argmax()))
        centres = torch.cat([centres, pool[picks[-1]][None]])
    return picks


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), count=st.integers(1, 8))
def test_recomputation_gives_the_same_picks(seed, count):
    rows = torch.randn(60, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assert by_distance("lcmd", rows[:10], rows[10:], count).indices == naive_lcmd(rows[:10], rows[10:], count)


def test_picks_of_bmdal(features, bmdal):
    """In its mode that looks at training structures as well."""
    selection, wrap = bmdal
    train, pool, _ = features
    oracle = selection.LargestClusterMaxDistSelectionMethod(wrap(pool), wrap(train), sel_with_train=True, verbosity=0)
    assert by_distance("lcmd", train, pool, 40).indices == oracle.select(40).tolist()


def test_many_that_are_far_count_more_than_the_farthest():
    train = torch.tensor([[0.0, 0.0], [100.0, 0.0]], dtype=torch.float64)
    crowd = torch.tensor([[0.0, 2.0]] * 5, dtype=torch.float64)
    loner = torch.tensor([[100.0, 4.0]], dtype=torch.float64)
    pool = torch.cat([crowd, loner])
    assert by_distance("lcmd", train, pool, 1).indices[0] < 5
    assert by_distance("maxdist", train, pool, 1).indices == [5]
