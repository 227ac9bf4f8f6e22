import torch
from hypothesis import given, settings, strategies as st

from tests.core.selection.rules import by_distance, squared_distances


def naive_max_dist(train, pool, count):
    centres, picks = train, []
    for _ in range(count):
        nearest = squared_distances(pool, centres).min(1).values
        nearest[picks] = -1
        picks.append(int(nearest.argmax()))
        centres = torch.cat([centres, pool[picks[-1]][None]])
    return picks


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), count=st.integers(1, 8))
def test_recomputation_gives_the_same_picks(seed, count):
    rows = torch.randn(60, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assert by_distance("maxdist", rows[:10], rows[10:], count).indices == naive_max_dist(rows[:10], rows[10:], count)


def test_picks_of_bmdal(features, bmdal):
    """In its mode that looks at training structures as well."""
    selection, wrap = bmdal
    train, pool, _ = features
    oracle = selection.MaxDistSelectionMethod(wrap(pool), wrap(train), sel_with_train=True, verbosity=0)
    assert by_distance("maxdist", train, pool, 40).indices == oracle.select(40).tolist()


def test_the_criterion_is_the_squared_distance_to_what_is_known():
    train = torch.zeros(1, 2, dtype=torch.float64)
    pool = torch.tensor([[1.0, 0.0], [4.0, 0.0], [4.0, 1.0]], dtype=torch.float64)
    found = by_distance("maxdist", train, pool, 3)
    assert found.indices == [2, 0, 1]
    assert found.criteria == [17.0, 1.0, 1.0]
