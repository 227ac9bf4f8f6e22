"""LCMD among the most uncertain."""

import torch

from adaptntk.core.blocks import TensorBlocks
from adaptntk.core.selection.lcmd import lcmd
from adaptntk.core.selection.problem import Constraints, Problem, Selection
from adaptntk.errors import InputError

# Candidates on the shortlist, for each one wanted.
SHORTLIST = 10


def shortlist_lcmd(problem: Problem) -> Selection:
    """Ten times as many as wanted are shortlisted by U, then spread out.

    Where constraints leave too few on the shortlist, it is made twice as long, and so on.
    """
    constraints, space = problem.constraints, problem.features
    constraints.check(problem.count, len(problem))
    scores = problem.scores
    if constraints.excluded is not None:
        scores = scores.masked_fill(torch.as_tensor(list(constraints.excluded), device=scores.device), -torch.inf)
    available = int(torch.isfinite(scores).sum())
    size = min(SHORTLIST * problem.count, available)
    while True:
        short = torch.sort(scores.topk(size).indices).values
        groups = None if constraints.groups is None else [constraints.groups[i] for i in short.tolist()]
        inner = Constraints(None, constraints.min_separation, groups, constraints.per_group_max)
        listed = TensorBlocks(space.candidates[short], space.candidates.asked)
        try:
            found = lcmd(Problem.of_features(space.posterior, space.training, listed, problem.count, inner))
            return Selection([int(short[i]) for i in found.indices], found.criteria)
        except InputError:
            if size == available:
                raise
            size = min(2 * size, available)
