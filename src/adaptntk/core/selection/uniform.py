"""A uniform draw without replacement: the control."""

import torch

from adaptntk.core.selection.problem import Problem, Selection
from adaptntk.core.selection.top_b import take_in_order


def uniform(problem: Problem) -> Selection:
    """Any candidates."""
    return take_in_order(problem, torch.randperm(len(problem), generator=problem.generator()).tolist())
