import numpy as np
import torch

from adaptntk.core.selection.problem import Problem
from adaptntk.core.selection.uniform import uniform


def draw(seed, count=9):
    return uniform(Problem.of_scores(torch.arange(500.0), count, seed=seed))


def test_the_seed_decides():
    assert draw(1).indices == draw(1).indices
    assert draw(1).indices != draw(2).indices
    assert draw(1).criteria == [float(index) for index in draw(1).indices]


def test_every_candidate_is_as_likely():
    drawn = np.bincount(np.concatenate([draw(seed, 50).indices for seed in range(200)]), minlength=500)
    assert drawn.sum() == 200 * 50
    assert abs(drawn[:250].sum() / drawn.sum() - 0.5) < 0.02
    assert drawn.min() > 5
