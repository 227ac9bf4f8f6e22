import torch

from adaptntk.core.blocks import TensorBlocks
from adaptntk.core.selection.nearest_centres import NearestCentres
from tests.core.selection.rules import blocks, by_distance, squared_distances


def test_distances_are_those_of_the_rows_asked_about():
    train, pool = blocks(0, 6, rows=3, asked=2), blocks(1, 20, rows=3, asked=2)
    centres = NearestCentres(train, pool)
    flat = [part.tensor[:, :2].flatten(1) for part in (train, pool)]
    found, which = squared_distances(flat[1], flat[0]).min(1)
    assert torch.allclose(centres.distances, found)
    assert torch.equal(centres.nearest, which)
    centres.add_candidate(4)
    found, which = squared_distances(flat[1], torch.cat([flat[0], flat[1][4:5]])).min(1)
    assert torch.allclose(centres.distances, found)
    assert torch.equal(centres.nearest, which)


def test_they_survive_a_large_offset(features):
    """What all features have in common says nothing, but it can drown the differences."""
    train, pool, _ = features
    plain, shifted = (NearestCentres(TensorBlocks(a[:, None]), TensorBlocks(b[:, None])) for a, b in
                      ((train, pool), (train + 1e6, pool + 1e6)))  # fmt: skip
    assert torch.allclose(plain.distances, shifted.distances, rtol=1e-6)
    assert by_distance("lcmd", train + 1e6, pool + 1e6, 20).indices == by_distance("lcmd", train, pool, 20).indices
