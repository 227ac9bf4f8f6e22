"""What the rules of distances share: for every candidate, its squared distance to the nearest centre.

Centres are the training structures and the picks so far. The distance of two structures is that of the rows they are
asked about, ``sum |phi(x) - phi(c)|^2``: of the features themselves, not of the posterior, so no ridge enters.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from adaptntk.core.blocks import Blocks, chunks
from adaptntk.core.rows import inner_products, squared_norms
from adaptntk.core.selection.problem import Allowed, Problem, Selection

# Training structures whose distances to a part of the candidates are computed together.
_CENTRES_AT_ONCE = 1024


class NearestCentres:
    """Squared distance of every candidate to its nearest centre, and which centre that is."""

    def __init__(self, training: Blocks, candidates: Blocks) -> None:
        self.asked, self.candidates = candidates.asked, candidates
        centres = self._flat(training[:])
        # Distances do not change when the mean is taken off, and what is lost to rounding is far less.
        self.mean = centres.double().mean(0)
        self.norms = self.mean.new_empty(len(candidates))
        for place, part in chunks(candidates):
            self.norms[place] = squared_norms(self._centred(part))
        self.distances = torch.full_like(self.norms, torch.inf)
        self.nearest = torch.zeros_like(self.norms, dtype=torch.int64)
        self.count = 0
        self.add(training[:])

    def add(self, centres: Tensor) -> None:
        """Let every candidate find out whether one of these blocks is nearer than its centre."""
        for part in centres.split(_CENTRES_AT_ONCE):
            points = self._centred(part)
            lengths = squared_norms(points)
            for place, chunk in chunks(self.candidates):
                products = inner_products(self._centred(chunk), points)
                found, which = (self.norms[place, None] + lengths - 2 * products).min(dim=1)
                nearer = found < self.distances[place]
                self.distances[place] = torch.where(nearer, found.clamp_min(0.0), self.distances[place])
                self.nearest[place] = torch.where(nearer, which + self.count, self.nearest[place])
            self.count += len(part)

    def add_candidate(self, index: int) -> None:
        """The same for a pick, whose own distance is then zero whatever rounding says."""
        self.add(self.candidates[torch.tensor([index])])
        self.distances[index] = 0.0

    def _flat(self, blocks: Tensor) -> Tensor:
        """The rows that are asked about, side by side: one point per structure."""
        return blocks[:, : self.asked].reshape(len(blocks), -1)

    def _centred(self, blocks: Tensor) -> Tensor:
        return self._flat(blocks).double() - self.mean


def pick_by_distance(problem: Problem, choose: Callable[[NearestCentres, Tensor], int]) -> Selection:
    """Picks that follow one by one from the distances; ``choose`` is given those and which candidates are open."""
    allowed = Allowed(problem)
    centres = NearestCentres(problem.features.training, problem.features.candidates)
    selection = Selection()
    for _ in range(problem.count):
        allowed.check_open()
        index = choose(centres, allowed.open)
        selection.add(index, float(centres.distances[index]))
        centres.add_candidate(index)
        allowed.pick(index)
    return selection


def farthest(centres: NearestCentres, allowed: Tensor) -> int:
    """The allowed candidate with the largest distance."""
    return int(torch.where(allowed, centres.distances, -torch.inf).argmax())
