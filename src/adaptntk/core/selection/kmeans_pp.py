"""The seeding of k-means (k-means++, as in BADGE): picks are drawn, the farther the likelier."""

import torch
from torch import Tensor

from adaptntk.core.selection.nearest_centres import NearestCentres, pick_by_distance
from adaptntk.core.selection.problem import Problem, Selection


def kmeans_pp(problem: Problem) -> Selection:
    """A random candidate, with probability proportional to its squared distance, again and again."""
    generator = problem.generator()

    def choose(centres: NearestCentres, allowed: Tensor) -> int:
        weights = torch.where(allowed, centres.distances, 0.0).cpu()
        if float(weights.sum()) <= 0:  # only copies of what is known are left: all are equally useless
            weights = allowed.double().cpu()
        # The place of a uniform number in the cumulative sum; multinomial is limited to 2^24 candidates.
        steps = weights.cumsum(0)
        drawn = torch.rand((), generator=generator, dtype=torch.float64) * steps[-1]
        return int(torch.searchsorted(steps, drawn, right=True).clamp_max(int(weights.nonzero()[-1])))

    return pick_by_distance(problem, choose)
