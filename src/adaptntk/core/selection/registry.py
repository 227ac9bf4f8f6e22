"""The rules by name: a new one is a file and a line here, or a call of `register_selector`."""

from collections.abc import Callable
from dataclasses import replace

from adaptntk.core.selection.bait import bait, bait_for_forces
from adaptntk.core.selection.greedy import greedy, greedy_of_labels
from adaptntk.core.selection.kmeans_pp import kmeans_pp
from adaptntk.core.selection.lcmd import lcmd
from adaptntk.core.selection.max_dist import max_dist
from adaptntk.core.selection.problem import Problem, Selection
from adaptntk.core.selection.shortlist import shortlist_lcmd
from adaptntk.core.selection.top_b import top_b
from adaptntk.core.selection.uniform import uniform
from adaptntk.errors import InputError

Selector = Callable[[Problem], Selection]

SELECTORS: dict[str, Selector] = {
    "adaptntk": greedy,
    "adaptntk+forces": greedy_of_labels,
    "topb": top_b,
    "lcmd": lcmd,
    "adaptntk+lcmd": shortlist_lcmd,
    "maxdist": max_dist,
    "kmeans++": kmeans_pp,
    "bait": bait,
    "bait+forces": bait_for_forces,
    "random": uniform,
}
# Those that look at scores only, and so work with every uncertainty method.
SCORES_SUFFICE = {"topb", "random"}
# Those that take weights: they compare scores.
WEIGHTED = ("adaptntk", "adaptntk+forces", "topb")
# Those that can be told where forces are to become sure.
AIMING = ("bait+forces",)
# Those for which a pick teaches all that its label will; for the others its block.
LABELLED = ("adaptntk+forces", "bait+forces")


def register_selector(name: str, selector: Selector, scores_suffice: bool = False) -> None:
    """Make a rule known by a name, for `select`, the command line and campaigns of this process.

    Args:
        scores_suffice: whether the rule looks only at ``problem.scores``, never at features.
    """
    if name in SELECTORS:
        raise InputError(f"there is a selection method {name!r} already")
    SELECTORS[name] = selector
    if scores_suffice:
        SCORES_SUFFICE.add(name)


def check_selector(name: str) -> None:
    """Refuse an unknown name."""
    if name not in SELECTORS:
        raise InputError(f"unknown selection method {name!r}: choose one of {', '.join(SELECTORS)}")


def check_weights(name: str) -> None:
    """Refuse a rule that compares no scores."""
    if name not in WEIGHTED:
        raise InputError(f"the rule {name} compares no scores, so atoms cannot weigh in: use {' or '.join(WEIGHTED)}")


def check_target(name: str, wanted: bool) -> None:
    """Refuse a target for a rule that aims at nothing."""
    if wanted and name not in AIMING:
        raise InputError(f"the rule {name} has no target: use {' or '.join(AIMING)}")


def select(name: str, problem: Problem) -> Selection:
    """The batch that the rule of that name chooses, each pick with its ``U`` given those before it."""
    check_selector(name)
    if problem.weights is not None:
        check_weights(name)
    found = SELECTORS[name](problem)
    return replace(found, scores=problem.scores_when_picked(found.indices, name in LABELLED))
