"""What a batch must respect, and what a selector returns."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from adaptntk.core.blocks import Rows
from adaptntk.core.posterior import FeaturePosterior, in_chunks, inner_products
from adaptntk.errors import InputError


@dataclass(frozen=True)
class Constraints:
    """What a batch must respect besides its size.

    Args:
        excluded: candidates that must not be picked (labelled already).
        min_separation: smallest allowed distance of two picks, ``|w(x) - w(z)|^2 / (U(x) + U(z))`` under the
            posterior before the batch: 0 for the same structure, 1 for unrelated ones, whatever the scale.
        groups: a label per candidate, and
        per_group_max: how many picks may share a label.
    """

    excluded: Sequence[bool] | None = None
    min_separation: float = 0.0
    groups: Sequence[Hashable] | None = None
    per_group_max: int | None = None

    def check(self, count: int, candidates: int) -> None:
        """Refuse what cannot be satisfied, before any work is done."""
        if count < 1:
            raise InputError(f"cannot pick {count} structures: ask for at least one")
        if self.per_group_max is not None and self.per_group_max < 1:
            raise InputError(f"at most {self.per_group_max} picks per group leaves none: allow at least one")
        available = candidates - sum(self.excluded or ())
        if available < count:
            raise InputError(f"{count} structures asked for, but only {available} candidates may be picked")


@dataclass(frozen=True)
class Selection:
    """Picks in order, each with its score at the time of picking.

    The score is what the selector maximises: ``U`` after the picks before it for the sequential rule, ``U`` before the
    batch for ``topb`` and ``random``, the squared distance to the nearest centre for the rules of distances, the fall
    of the summed variance for ``bait``.
    """

    indices: list[int]
    scores: list[float]
    gaps: list[float] = field(default_factory=list)
    """For the sequential rule: ``(U1 - U2)/(2 lam + U1 + U2)`` at each step, the corollary's margin."""


class Allowed:
    """Which candidates may still be picked.

    Candidates are rows, or just scores where there are none; ``posterior`` is needed where a separation is asked for.
    """

    def __init__(
        self,
        candidates: Rows | Tensor,
        count: int,
        constraints: Constraints | None,
        posterior: FeaturePosterior | None = None,
    ) -> None:
        constraints = constraints or Constraints()
        constraints.check(count, len(candidates))
        self.candidates = candidates
        self.count = count
        self.picked = 0
        device = candidates[:0].device
        self.open = torch.ones(len(candidates), dtype=torch.bool, device=device)
        if constraints.excluded is not None:
            self.open &= ~torch.as_tensor(list(constraints.excluded), device=device)
        self.groups = list(constraints.groups) if constraints.groups is not None else None
        self.per_group_max = constraints.per_group_max
        self.group_counts: dict[Hashable, int] = {}
        self.separation = constraints.min_separation
        self.posterior = posterior
        if self.separation > 0:
            if posterior is None:
                raise InputError("a smallest separation needs the posterior, under which it is measured")
            self.variance = posterior.variance(candidates)

    def pick(self, index: int) -> None:
        """Close a candidate, and with it those that are too close to it or of a group that is full."""
        self.picked += 1
        self.open[index] = False
        if self.separation > 0 and self.posterior is not None:
            representer = self.posterior.representers(self.candidates[torch.tensor([index])])
            covariance = in_chunks(self.candidates, lambda rows: inner_products(rows, representer)[:, 0])
            total = self.variance + self.variance[index]
            self.open &= (total - 2 * covariance) >= self.separation * total
        if self.groups is not None and self.per_group_max is not None:
            group = self.groups[index]
            self.group_counts[group] = self.group_counts.get(group, 0) + 1
            if self.group_counts[group] >= self.per_group_max:
                same = torch.tensor([other == group for other in self.groups], device=self.open.device)
                self.open &= ~same

    def check_open(self) -> None:
        """Say so when nothing is left and the batch is not complete."""
        if not bool(self.open.any()):
            raise InputError(
                f"only {self.picked} of the {self.count} structures asked for satisfy the constraints: ask for fewer, "
                "lower --min-separation or raise the limit per group"
            )
