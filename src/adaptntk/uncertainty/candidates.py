"""Structures to choose from: scored once, then any rule can select."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from ase import Atoms
from numpy.typing import NDArray
from torch import Tensor

from adaptntk.core.blocks import Blocks, asked_rows
from adaptntk.core.posterior import Posterior, principal_plane
from adaptntk.core.selection.problem import Constraints, Problem, Selection
from adaptntk.core.selection.registry import select
from adaptntk.uncertainty.method import Scores

if TYPE_CHECKING:
    from adaptntk.uncertainty.fitted import Fitted

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Candidates:
    """The candidates of a selection.

    Args:
        blocks: their features; None where there are only scores, which are then
        variance: the raw score of each.
    """

    fitted: "Fitted"
    structures: Sequence[Atoms]
    blocks: Blocks | None
    variance: Tensor | None = None

    @cached_property
    def scores(self) -> Scores:
        """The uncertainty of each, before anything is picked."""
        return self.fitted.scores_of_variance(self._scores.cpu().numpy(), self.structures)

    def select(self, rule: str, count: int, constraints: Constraints | None = None, seed: int = 0) -> Selection:
        """The batch that the rule of that name chooses."""
        self.fitted.check_rule(rule)
        features = self.fitted.features
        if features is None or self.blocks is None:
            return select(rule, Problem.of_scores(self._scores, count, constraints, seed))
        return select(rule, features.problem(self.blocks, count, constraints, seed))

    def sketch_overlap(self, count: int, constraints: Constraints) -> float | None:
        """How much the sequential rule's batch depends on the sketch; None where there is none."""
        features = self.fitted.features
        if features is None or self.blocks is None:
            return None
        return features.sketch_overlap(self.blocks, count, constraints)

    def map_of(self, shown: NDArray[np.int64]) -> Array:
        """Places of some candidates in the plane in which they spread most, seen from the posterior."""
        features = self.fitted.features
        if features is None or self.blocks is None:
            return np.zeros((len(shown), 2))
        rows = asked_rows(self.blocks[torch.as_tensor(shown)][:, :1], 1)
        posterior = features.posterior
        return principal_plane(posterior.whiten(rows) if isinstance(posterior, Posterior) else rows)

    @cached_property
    def _scores(self) -> Tensor:
        if self.variance is not None:
            return self.variance
        assert self.fitted.features is not None
        assert self.blocks is not None
        return self.fitted.features.posterior.variance(self.blocks)
