"""Batches by distance: MaxDist (core-set), k-means++ (as in BADGE) and LCMD (Holzmüller et al., 2023).

All three keep, for every candidate, the squared distance ``|phi(x) - phi(c)|^2`` to its nearest centre c. Centres are
the training structures and the picks so far; they differ in how the next pick follows from the distances. Distances are
of the features themselves, not of the posterior: no ridge enters.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from adaptntk.core.blocks import Rows, chunks
from adaptntk.core.posterior import FeaturePosterior, in_chunks, inner_products, squared_norms
from adaptntk.core.selection.problem import Allowed, Constraints, Selection

# Training structures whose distances to a part of the candidates are computed together.
_CENTRES_AT_ONCE = 1024


class _NearestCentres:
    """Squared distance of every candidate to its nearest centre, and which centre that is."""

    def __init__(self, training: Tensor, candidates: Rows) -> None:
        # Distances do not change when the mean is taken off, and what is lost to rounding is far less.
        self.mean = training.double().mean(0)
        self.candidates = candidates
        self.norms = in_chunks(candidates, lambda rows: squared_norms(self._centred(rows)))
        self.distances = torch.full_like(self.norms, torch.inf)
        self.nearest = torch.zeros(len(self.norms), dtype=torch.int64, device=self.norms.device)
        self.count = 0
        self.add(training)

    def add(self, centres: Tensor) -> None:
        """Let every candidate find out whether one of these rows is nearer than its centre."""
        for part in centres.split(_CENTRES_AT_ONCE):
            rows = self._centred(part)
            lengths = squared_norms(rows)
            for place, chunk in chunks(self.candidates):
                products = inner_products(self._centred(chunk), rows)
                found, which = (self.norms[place, None] + lengths - 2 * products).min(dim=1)
                nearer = found < self.distances[place]
                self.distances[place] = torch.where(nearer, found.clamp_min(0.0), self.distances[place])
                self.nearest[place] = torch.where(nearer, which + self.count, self.nearest[place])
            self.count += len(part)

    def add_candidate(self, index: int) -> None:
        """The same for a pick, whose own distance is then zero whatever rounding says."""
        self.add(self.candidates[torch.tensor([index])])
        self.distances[index] = 0.0

    def _centred(self, rows: Tensor) -> Tensor:
        return rows.double() - self.mean


def max_dist(
    training: Tensor,
    candidates: Rows,
    count: int,
    constraints: Constraints | None = None,
    posterior: FeaturePosterior | None = None,
) -> Selection:
    """The candidate farthest from its nearest centre, again and again: the greedy k-centre cover.

    Here and below, ``posterior`` is only needed where the constraints ask for a separation.
    """
    allowed = Allowed(candidates, count, constraints, posterior)
    return _pick(training, candidates, allowed, lambda centres, open_: _highest(centres.distances, open_))


def lcmd(
    training: Tensor,
    candidates: Rows,
    count: int,
    constraints: Constraints | None = None,
    posterior: FeaturePosterior | None = None,
) -> Selection:
    """Largest cluster, maximum distance.

    Candidates with the same nearest centre are a cluster, as large as the sum of their squared distances. Of the
    largest cluster the farthest candidate is picked: where many are far from what is known, not where one is.
    """

    def choose(centres: _NearestCentres, open_: Tensor) -> int:
        sizes = torch.bincount(centres.nearest, weights=centres.distances, minlength=centres.count)
        possible = torch.zeros(centres.count, dtype=torch.bool, device=open_.device)
        possible[centres.nearest[open_]] = True
        largest = int(torch.where(possible, sizes, -torch.inf).argmax())
        return _highest(centres.distances, open_ & (centres.nearest == largest))

    return _pick(training, candidates, Allowed(candidates, count, constraints, posterior), choose)


def kmeans_pp(
    training: Tensor,
    candidates: Rows,
    count: int,
    constraints: Constraints | None = None,
    posterior: FeaturePosterior | None = None,
    *,
    generator: torch.Generator,
) -> Selection:
    """A random candidate, with probability proportional to its squared distance: the seeding of k-means."""

    def choose(centres: _NearestCentres, open_: Tensor) -> int:
        weights = torch.where(open_, centres.distances, 0.0).cpu()
        if float(weights.sum()) <= 0:  # only copies of what is known are left: all are equally useless
            weights = open_.double().cpu()
        # The place of a uniform number in the cumulative sum; multinomial is limited to 2^24 candidates.
        steps = weights.cumsum(0)
        drawn = torch.rand((), generator=generator, dtype=torch.float64) * steps[-1]
        return int(torch.searchsorted(steps, drawn, right=True).clamp_max(int(weights.nonzero()[-1])))

    return _pick(training, candidates, Allowed(candidates, count, constraints, posterior), choose)


def _pick(
    training: Tensor, candidates: Rows, allowed: Allowed, choose: Callable[[_NearestCentres, Tensor], int]
) -> Selection:
    centres = _NearestCentres(training, candidates)
    selection = Selection([], [])
    for _ in range(allowed.count):
        allowed.check_open()
        index = choose(centres, allowed.open)
        selection.indices.append(index)
        selection.scores.append(float(centres.distances[index]))
        centres.add_candidate(index)
        allowed.pick(index)
    return selection


def _highest(values: Tensor, allowed: Tensor) -> int:
    return int(torch.where(allowed, values, -torch.inf).argmax())
