"""The rules as functions of plain rows or blocks, and what they are compared with."""

import torch

from adaptntk.core.blocks import TensorBlocks, as_blocks
from adaptntk.core.posterior import Posterior
from adaptntk.core.selection.problem import Problem
from adaptntk.core.selection.registry import select as select_by_name


def select(name, posterior, training, candidates, count, constraints=None, seed=0):
    return select_by_name(name, Problem.of_features(posterior, training, candidates, count, constraints, seed))


def greedy(posterior, candidates, count, constraints=None):
    return select("adaptntk", posterior, torch.empty(0, candidates.shape[-1]), candidates, count, constraints)


def top_b(posterior, candidates, count):
    return select("topb", posterior, torch.empty(0, candidates.shape[-1]), candidates, count)


def by_distance(name, training, candidates, count, seed=0):
    """For rules that do not look at the posterior."""
    return select(name, Posterior.fit(training, 1.0), training, candidates, count, seed=seed)


def blocks(seed, structures, rows=3, asked=1, width=10):
    """Random features of structures."""
    generator = torch.Generator().manual_seed(seed)
    tensor = torch.randn(structures, rows, width, generator=generator, dtype=torch.float64)
    return TensorBlocks(tensor * torch.logspace(0, -1, width, dtype=torch.float64), asked)


def naive_variance(training, queries, lam):
    """Eq. 5 with an explicit inverse for each row that is asked about, and their sum."""
    training, queries = as_blocks(training), as_blocks(queries)
    rows, asked = training[:].flatten(0, 1), queries[:][:, : queries.asked]
    inverse = torch.linalg.inv(rows.T @ rows + lam * torch.eye(rows.shape[1], dtype=torch.float64))
    return lam * torch.einsum("nap,pq,naq->n", asked, inverse, asked)


def squared_distances(rows, centres):
    return (rows[:, None] - centres[None]).square().sum(2)
