import numpy as np
import pytest
import torch

from tests.core.selection.rules import by_distance

TRAIN = torch.zeros(1, 2, dtype=torch.float64)
POOL = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0], [0.0, 3.0]], dtype=torch.float64)


def test_draws_are_in_proportion_to_the_squared_distance():
    draws = [by_distance("kmeans++", TRAIN, POOL, 1, seed).indices[0] for seed in range(2000)]
    shares = np.bincount(draws, minlength=4) / 2000
    assert shares == pytest.approx(np.array([1, 4, 0, 9]) / 14, abs=0.03)


@pytest.mark.parametrize("seed", range(5))
def test_a_copy_of_what_is_known_comes_last(seed):
    everything = by_distance("kmeans++", TRAIN, POOL, 4, seed).indices
    assert sorted(everything) == [0, 1, 2, 3]
    assert everything[-1] == 2
