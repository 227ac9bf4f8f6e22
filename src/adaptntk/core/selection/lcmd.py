"""Largest cluster, maximum distance (Holzmüller et al., 2023)."""

import torch
from torch import Tensor

from adaptntk.core.selection.nearest_centres import NearestCentres, farthest, pick_by_distance
from adaptntk.core.selection.problem import Problem, Selection


def lcmd(problem: Problem) -> Selection:
    """The farthest candidate of the largest cluster: where many are far from what is known, not where one is.

    Candidates with the same nearest centre are a cluster, as large as the sum of their squared distances.
    """
    return pick_by_distance(problem, _choose)


def _choose(centres: NearestCentres, allowed: Tensor) -> int:
    sizes = torch.bincount(centres.nearest, weights=centres.distances, minlength=centres.count)
    possible = torch.zeros(centres.count, dtype=torch.bool, device=allowed.device)
    possible[centres.nearest[allowed]] = True
    largest = int(torch.where(possible, sizes, -torch.inf).argmax())
    return farthest(centres, allowed & (centres.nearest == largest))
