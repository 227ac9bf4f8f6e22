"""Rules that look closely, among the most promising candidates only."""

from collections.abc import Callable

import torch
from torch import Tensor

from adaptntk.core.blocks import TensorBlocks
from adaptntk.core.selection.lcmd import lcmd
from adaptntk.core.selection.problem import Constraints, Problem, Selection
from adaptntk.errors import InputError

# Candidates on the shortlist, for each one wanted.
SHORTLIST = 10


def shortlist_lcmd(problem: Problem) -> Selection:
    """Ten times as many as wanted are shortlisted by U, then spread out."""
    space = problem.features

    def choose(short: list[int], constraints: Constraints) -> Selection:
        listed = TensorBlocks(space.candidates[torch.tensor(short)], space.candidates.asked)
        return lcmd(Problem.of_features(space.posterior, space.training, listed, problem.count, constraints))

    return on_shortlist(problem, problem.scores, choose)


def on_shortlist(problem: Problem, promise: Tensor, choose: Callable[[list[int], Constraints], Selection]) -> Selection:
    """What is chosen among the candidates that promise most, whose numbers are on the shortlist in rising order.

    ``choose`` numbers its picks by their places on it. Where constraints leave too few, the shortlist is made twice as
    long, and so on.
    """
    constraints = problem.constraints
    constraints.check(problem.count, len(problem))
    if constraints.excluded is not None:
        promise = promise.masked_fill(torch.as_tensor(list(constraints.excluded), device=promise.device), -torch.inf)
    available = int(torch.isfinite(promise).sum())
    size = min(SHORTLIST * problem.count, available)
    while True:
        short = torch.sort(promise.topk(size).indices).values.tolist()
        groups = None if constraints.groups is None else [constraints.groups[i] for i in short]
        try:
            found = choose(short, Constraints(None, constraints.min_separation, groups, constraints.per_group_max))
            return Selection([short[i] for i in found.indices], found.criteria)
        except InputError:
            if size == available:
                raise
            size = min(2 * size, available)
