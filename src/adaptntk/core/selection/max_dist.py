"""MaxDist (core-set): the candidate farthest from its nearest centre, again and again, a greedy k-centre cover."""

from adaptntk.core.selection.nearest_centres import farthest, pick_by_distance
from adaptntk.core.selection.problem import Problem, Selection


def max_dist(problem: Problem) -> Selection:
    """The farthest from everything known and picked."""
    return pick_by_distance(problem, farthest)
