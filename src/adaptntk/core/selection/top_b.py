"""The highest scores, without updates within the batch: the paper's ablation."""

import torch

from adaptntk.core.selection.problem import Allowed, Problem, Selection


def top_b(problem: Problem) -> Selection:
    """The candidates with the highest scores."""
    order = torch.argsort(problem.weighted(problem.scores), descending=True, stable=True)
    return take_in_order(problem, order.tolist())


def take_in_order(problem: Problem, order: list[int]) -> Selection:
    """The first that the constraints allow."""
    allowed = Allowed(problem)
    selection = Selection()
    for index in order:
        if len(selection.indices) == problem.count:
            return selection
        if bool(allowed.open[index]):
            selection.add(index, float(problem.weighted(problem.scores)[index]))
            allowed.pick(index)
    if len(selection.indices) < problem.count:
        allowed.check_open()
    return selection
