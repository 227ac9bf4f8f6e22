"""Structures to choose from: scored once, then any rule can select."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adaptntk.core.blocks import asked_rows
from adaptntk.core.posterior import as_primal, principal_plane
from adaptntk.core.selection.problem import Constraints, FeatureSpace, Problem, Selection
from adaptntk.core.selection.registry import select
from adaptntk.data.structures import Structures
from adaptntk.errors import InputError
from adaptntk.progress import Progress, silent
from adaptntk.representation import short_repr
from adaptntk.uncertainty.method import Array, Scores

if TYPE_CHECKING:
    from adaptntk.uncertainty.fitted import Fitted


@short_repr
@dataclass(frozen=True)
class Candidates:
    """The candidates of a selection; ``source`` is where they are or, without features, the raw score of each."""

    fitted: "Fitted"
    structures: Structures
    source: FeatureSpace | Tensor

    @cached_property
    def scores(self) -> Scores:
        """The uncertainty of each, before anything is picked; of forces too, if that takes no committee."""
        return self.fitted.novelty(Problem(self.source, 1).scores.cpu().numpy(), self.structures)

    def scores_of(self, indices: Sequence[int]) -> Scores:
        """The whole uncertainty of some of them, in the order of the indices."""
        picked = [self.structures[index] for index in indices]
        return self.fitted.scores_of_variance(self.scores.variance[list(indices)], picked)

    def select(
        self,
        rule: str,
        count: int,
        constraints: Constraints | None = None,
        seed: int = 0,
        weights: Tensor | None = None,
    ) -> Selection:
        """The batch that the rule of that name chooses; ``weights`` see `Problem`."""
        self.fitted.check_rule(rule)
        return select(rule, Problem(self.source, count, constraints or Constraints(), seed, weights))

    def above(self, ceiling: float | None, max_error: float | None = None, progress: Progress = silent) -> list[bool]:
        """Those of which the model knows so little that they are more likely rubbish than worth a label.

        Args:
            ceiling: the largest allowed score, as a multiple of the largest that was calibrated.
            max_error: the largest allowed sigma, eV/Å; a committee is asked about all candidates if that takes one.
        """
        known, scores = self.fitted.calibration, self.scores
        found = np.zeros(len(self.structures), dtype=bool)
        if ceiling is None and max_error is None:
            return found.tolist()
        if known is None:
            raise InputError("a ceiling needs a calibrated uncertainty: fit with a labelled validation set")
        if ceiling is not None:
            found |= ~(scores.variance <= ceiling * known.largest)
        if max_error is not None:
            if known.forces is None:
                raise InputError("forces are not calibrated: fit with validation structures that have force labels")
            if scores.sigma is None:
                scores = self.fitted.scores_of_variance(scores.variance, self.structures, progress=progress)
            assert scores.sigma is not None
            found |= ~(scores.sigma <= max_error)
        return found.tolist()

    def worst_atoms(self, progress: Progress = silent) -> Tensor:
        """Weights that turn the score of each candidate into the squared sigma of its worst atom, (eV/Å)^2.

        A pick then lowers that by the share of U which it takes away.
        """
        found = self.fitted.score_atoms(self.structures, progress=progress)
        worst = np.array([of_structure.max() for of_structure in found.sigma or found.variance])
        squared = worst**2 if found.sigma is not None else worst
        smallest = np.finfo(float).tiny
        return torch.from_numpy(squared / np.maximum(self.scores.variance, smallest))

    def sketch_overlap(self, count: int, constraints: Constraints) -> float | None:
        """How much the sequential rule's batch depends on the sketch; None where there is none."""
        if isinstance(self.source, Tensor) or self.fitted.features is None:
            return None
        return self.fitted.features.sketch_overlap(self.source.candidates, count, constraints)

    def map_of(self, shown: NDArray[np.int64]) -> Array:
        """Places of some candidates in the plane in which they spread most, seen from the posterior."""
        if isinstance(self.source, Tensor):
            return np.zeros((len(shown), 2))
        rows = asked_rows(self.source.candidates[torch.as_tensor(shown)], 1)
        posterior = as_primal(self.source.posterior)
        return principal_plane(rows if posterior is None else posterior.whiten(rows))
