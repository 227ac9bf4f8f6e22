"""The selectors by name: one call for all of them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from adaptntk.core.blocks import Rows
from adaptntk.core.posterior import FeaturePosterior
from adaptntk.core.selection.bait import bait
from adaptntk.core.selection.distances import kmeans_pp, lcmd, max_dist
from adaptntk.core.selection.greedy import greedy, random, top_b
from adaptntk.core.selection.problem import Constraints, Selection
from adaptntk.errors import InputError

# Candidates on the shortlist of adaptntk+lcmd, for each one wanted.
SHORTLIST = 10


@dataclass(frozen=True)
class Problem:
    """What a batch is chosen from, and how large it shall be."""

    posterior: FeaturePosterior
    training: Tensor
    candidates: Rows
    count: int
    constraints: Constraints
    seed: int

    def generator(self) -> torch.Generator:
        """Of random numbers, on the CPU: the same picks on every device."""
        return torch.Generator().manual_seed(self.seed)


def shortlist_lcmd(problem: Problem) -> Selection:
    """LCMD among the most uncertain: ten times as many as wanted are shortlisted by U, then spread out.

    Where constraints leave too few on the shortlist, it is made twice as long, and so on.
    """
    constraints = problem.constraints
    constraints.check(problem.count, len(problem.candidates))
    scores = problem.posterior.variance(problem.candidates)
    if constraints.excluded is not None:
        scores = scores.masked_fill(torch.as_tensor(list(constraints.excluded), device=scores.device), -torch.inf)
    available = int(torch.isfinite(scores).sum())
    size = min(SHORTLIST * problem.count, available)
    while True:
        short = torch.sort(scores.topk(size).indices).values
        groups = None if constraints.groups is None else [constraints.groups[i] for i in short.tolist()]
        inner = Constraints(None, constraints.min_separation, groups, constraints.per_group_max)
        try:
            found = lcmd(problem.training, problem.candidates[short], problem.count, inner, problem.posterior)
        except InputError:
            if size == available:
                raise
            size = min(2 * size, available)
            continue
        return Selection([int(short[i]) for i in found.indices], found.scores)


SELECTORS: dict[str, Callable[[Problem], Selection]] = {
    "adaptntk": lambda p: greedy(p.posterior, p.candidates, p.count, p.constraints),
    "topb": lambda p: top_b(p.posterior, p.candidates, p.count, p.constraints),
    "lcmd": lambda p: lcmd(p.training, p.candidates, p.count, p.constraints, p.posterior),
    "adaptntk+lcmd": shortlist_lcmd,
    "maxdist": lambda p: max_dist(p.training, p.candidates, p.count, p.constraints, p.posterior),
    "kmeans++": lambda p: kmeans_pp(
        p.training, p.candidates, p.count, p.constraints, p.posterior, generator=p.generator()
    ),
    "bait": lambda p: bait(p.posterior, p.training, p.candidates, p.count, p.constraints),
    "random": lambda p: random(p.posterior, p.candidates, p.count, p.constraints, generator=p.generator()),
}


def check_selector(name: str) -> None:
    """Refuse an unknown name."""
    if name not in SELECTORS:
        raise InputError(f"unknown selection method {name!r}: choose one of {', '.join(SELECTORS)}")


def select(
    name: str,
    posterior: FeaturePosterior,
    training: Tensor,
    candidates: Rows,
    count: int,
    constraints: Constraints | None = None,
    seed: int = 0,
) -> Selection:
    """The batch that the selector of that name chooses; ``seed`` matters for the random ones only.

    Args:
        posterior: of the training rows, with its ridge.
        training: those rows.
        candidates: rows to choose from.
    """
    check_selector(name)
    return SELECTORS[name](Problem(posterior, training, candidates, count, constraints or Constraints(), seed))
