from dataclasses import replace

import torch

from adaptntk.core.posterior import Posterior
from adaptntk.core.selection.problem import Constraints, Problem
from adaptntk.core.selection.top_b import top_b
from tests.core.selection.rules import greedy, select


def test_the_highest_scores_in_order(features):
    train, candidates, lam = features
    posterior = Posterior.fit(train, lam)
    expected = posterior.variance(candidates).sort(descending=True)
    found = select("topb", posterior, train, candidates, 12)
    assert found.indices == expected.indices[:12].tolist()
    assert found.criteria == expected.values[:12].tolist()
    assert greedy(posterior, candidates, 1).indices == found.indices[:1]


def test_scores_are_enough():
    scores = torch.tensor([3.0, 1.0, 3.0, 2.0])
    assert top_b(Problem.of_scores(scores, 3)).indices == [0, 2, 3]
    assert top_b(Problem.of_scores(scores, 2, Constraints([True, False, False, False]))).indices == [2, 3]


def test_weights_count():
    scores, weights = torch.tensor([3.0, 1.0, 3.0, 2.0]), torch.tensor([1.0, 9.0, 2.0, 1.0])
    found = top_b(replace(Problem.of_scores(scores, 3), weights=weights))
    assert found.indices == [1, 2, 0]
    assert found.criteria == [9.0, 6.0, 3.0]
