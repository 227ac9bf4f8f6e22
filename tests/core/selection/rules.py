"""The rules as functions of plain rows, for tests."""

import torch

from adaptntk.core.selection.problem import Problem
from adaptntk.core.selection.registry import select as select_by_name


def select(name, posterior, training, candidates, count, constraints=None, seed=0):
    return select_by_name(name, Problem.of_features(posterior, training, candidates, count, constraints, seed))


def greedy(posterior, candidates, count, constraints=None):
    return select("adaptntk", posterior, torch.empty(0, candidates.shape[-1]), candidates, count, constraints)


def top_b(posterior, candidates, count):
    return select("topb", posterior, torch.empty(0, candidates.shape[-1]), candidates, count)
