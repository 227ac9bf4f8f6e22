"""Choosing a batch: posteriors and candidate rows in, ordered indices out.

`greedy` is the paper's sequential rule. Picking ``z`` changes every other score by Eq. 8,
``U(x) -= U(x, z)^2 / (lam + U(z))``, without a label. Done for all candidates after each pick this is a pivoted
Cholesky factorisation of the posterior kernel plus ``lam I``: the greedy maximiser of its determinant, known
as MaxDet in batch active learning and as greedy MAP inference of a determinantal point process.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from adaptntk.core.posterior import FeaturePosterior, PosteriorKernel
from adaptntk.core.theory import decision_gap
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
    """Picks in order, each with its score at the time of picking (``U`` after the picks before it)."""

    indices: list[int]
    scores: list[float]
    gaps: list[float] = field(default_factory=list)
    """For the sequential rule: ``(U1 - U2)/(2 lam + U1 + U2)`` at each step, the corollary's margin."""


def greedy(
    posterior: FeaturePosterior, candidates: Tensor, count: int, constraints: Constraints | None = None
) -> Selection:
    """Pick the most uncertain candidate, condition all scores on it (Eq. 8), repeat."""
    constraints = constraints or Constraints()
    constraints.check(count, len(candidates))
    kernel = posterior.kernel(candidates)
    initial = kernel.diagonal()
    scores = initial.clone()
    # Row t is the t-th column of the pivoted Cholesky factor.
    updates = torch.empty(count, len(scores), dtype=scores.dtype, device=scores.device)
    allowed = _Allowed(initial, count, constraints)
    selection = Selection([], [])
    for step in range(count):
        masked = allowed.mask(scores)
        index = int(masked.argmax())
        best = float(masked[index])
        selection.indices.append(index)
        selection.scores.append(best)
        prior_column = kernel.column(index)
        allowed.pick(index, prior_column)
        masked[index] = -torch.inf
        runner_up = float(masked.max())
        last = runner_up == -torch.inf
        selection.gaps.append(torch.inf if last else decision_gap(best, runner_up, posterior.lam))
        column = prior_column - updates[:step, index] @ updates[:step]
        updates[step] = column / (posterior.lam + best) ** 0.5
        scores -= updates[step].square()
    return selection


def top_b(
    posterior: FeaturePosterior, candidates: Tensor, count: int, constraints: Constraints | None = None
) -> Selection:
    """The highest scores, without updates within the batch: the paper's ablation."""
    kernel = posterior.kernel(candidates)
    scores = kernel.diagonal()
    order = torch.argsort(scores, descending=True, stable=True).tolist()
    return _take_in_order(kernel, scores, order, count, constraints)


def random(
    posterior: FeaturePosterior,
    candidates: Tensor,
    count: int,
    constraints: Constraints | None = None,
    *,
    generator: torch.Generator,
) -> Selection:
    """A uniform draw without replacement: the control."""
    kernel = posterior.kernel(candidates)
    scores = kernel.diagonal()
    order = torch.randperm(len(scores), generator=generator).tolist()
    return _take_in_order(kernel, scores, order, count, constraints)


def _take_in_order(
    kernel: PosteriorKernel, scores: Tensor, order: list[int], count: int, constraints: Constraints | None
) -> Selection:
    constraints = constraints or Constraints()
    constraints.check(count, len(scores))
    allowed = _Allowed(scores, count, constraints)
    selection = Selection([], [])
    for index in order:
        if len(selection.indices) == count:
            break
        if not bool(allowed.open[index]):
            continue
        selection.indices.append(index)
        selection.scores.append(float(scores[index]))
        allowed.pick(index, kernel.column(index) if constraints.min_separation > 0 else None)
    if len(selection.indices) < count:
        allowed.give_up()
    return selection


class _Allowed:
    """Which candidates may still be picked."""

    def __init__(self, initial: Tensor, count: int, constraints: Constraints) -> None:
        self.initial = initial
        self.count = count
        self.picked = 0
        self.separation = constraints.min_separation
        self.open = torch.ones(len(initial), dtype=torch.bool, device=initial.device)
        if constraints.excluded is not None:
            self.open &= ~torch.as_tensor(list(constraints.excluded), device=initial.device)
        self.groups = list(constraints.groups) if constraints.groups is not None else None
        self.per_group_max = constraints.per_group_max
        self.group_counts: dict[Hashable, int] = {}

    def mask(self, scores: Tensor) -> Tensor:
        if not bool(self.open.any()):
            self.give_up()
        return torch.where(self.open, scores, -torch.inf)

    def pick(self, index: int, prior_column: Tensor | None) -> None:
        self.picked += 1
        self.open[index] = False
        if self.separation > 0 and prior_column is not None:
            total = self.initial + self.initial[index]
            self.open &= (total - 2 * prior_column) >= self.separation * total
        if self.groups is not None and self.per_group_max is not None:
            group = self.groups[index]
            self.group_counts[group] = self.group_counts.get(group, 0) + 1
            if self.group_counts[group] >= self.per_group_max:
                same = torch.tensor([other == group for other in self.groups], device=self.open.device)
                self.open &= ~same

    def give_up(self) -> None:
        raise InputError(
            f"only {self.picked} of the {self.count} structures asked for satisfy the constraints: ask for fewer, "
            "lower --min-separation or raise the limit per group"
        )


SELECTORS: dict[str, Callable[..., Selection]] = {"adaptntk": greedy, "topb": top_b, "random": random}


def check_method(method: str) -> None:
    """Refuse an unknown name."""
    if method not in SELECTORS:
        raise InputError(f"unknown selection method {method!r}: choose one of {', '.join(SELECTORS)}")


def select(
    method: str,
    posterior: FeaturePosterior,
    candidates: Tensor,
    count: int,
    constraints: Constraints | None = None,
    seed: int = 0,
) -> Selection:
    """The selector of that name; ``seed`` matters for the random ones only."""
    check_method(method)
    if method == "random":
        generator = torch.Generator().manual_seed(seed)
        return random(posterior, candidates, count, constraints, generator=generator)
    return SELECTORS[method](posterior, candidates, count, constraints)
