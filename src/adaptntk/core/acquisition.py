"""Choosing a batch: posteriors and candidate rows in, ordered indices out.

`greedy` is the paper's sequential rule. Picking ``z`` changes every other score by Eq. 8,
``U(x) -= U(x, z)^2 / (lam + U(z))``, without a label. Done for all candidates after each pick this is a pivoted
Cholesky factorisation of the posterior kernel plus ``lam I``: the greedy maximiser of its determinant, known
as MaxDet in batch active learning and as greedy MAP inference of a determinantal point process.

A score only falls when others are picked. So an old score is an upper bound, and only candidates whose bound
reaches the top are brought up to date: on most pools a few hundred of them, with the same picks as if all were.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from adaptntk.core.posterior import FeaturePosterior, in_chunks, inner_products
from adaptntk.core.rows import Rows, chunk_size
from adaptntk.core.theory import decision_gap
from adaptntk.errors import InputError

# How many candidates are brought up to date at first when the highest bound turns out to be old.
_FIRST_BLOCK = 128


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
    posterior: FeaturePosterior, candidates: Rows, count: int, constraints: Constraints | None = None
) -> Selection:
    """Pick the most uncertain candidate, condition all scores on it (Eq. 8), repeat."""
    constraints = constraints or Constraints()
    constraints.check(count, len(candidates))
    scores = _FallingScores(posterior, candidates, count)
    allowed = _Allowed(scores.initial, count, constraints)
    selection = Selection([], [])
    for _ in range(count):
        if not bool(allowed.open.any()):
            allowed.give_up()
        index, best = scores.best(allowed.open)
        others = allowed.open.clone()
        others[index] = False
        runner_up = scores.best(others)[1] if bool(others.any()) else -torch.inf
        selection.indices.append(index)
        selection.scores.append(best)
        selection.gaps.append(torch.inf if runner_up == -torch.inf else decision_gap(best, runner_up, posterior.lam))
        scores.pick(index)
        allowed.pick(index, scores.prior_column() if constraints.min_separation > 0 else None)
    return selection


class _FallingScores:
    """Scores under a growing list of picks, computed where they are needed.

    With ``L L^T = K_zz + lam I`` over the picks z (K the posterior kernel before the batch), the score of x is
    ``U(x) - |c(x)|^2`` with ``c(x) = L^-1 k_z(x)``. Both L and c(x) grow by one number per pick and keep the others.
    """

    def __init__(self, posterior: FeaturePosterior, candidates: Rows, count: int) -> None:
        self.posterior = posterior
        self.candidates = candidates
        self.initial = posterior.variance(candidates)
        self.bounds = self.initial.clone()
        self.factor = self.initial.new_zeros(count, count)
        self.representers = self.initial.new_zeros(count, candidates.shape[1])
        self.picked = 0
        # How many picks each score accounts for, and where c(x) is, for those that were ever brought up to date.
        self.accounted = torch.zeros(len(self.bounds), dtype=torch.int32, device=self.bounds.device)
        self.place = torch.full((len(self.bounds),), -1, dtype=torch.int64, device=self.bounds.device)
        self.columns = self.initial.new_zeros(0, count)
        self.touched = 0

    def best(self, allowed: Tensor) -> tuple[int, float]:
        """The allowed candidate with the highest score, and that score."""
        block = _FIRST_BLOCK
        while True:
            bounds = torch.where(allowed, self.bounds, -torch.inf)
            index = int(bounds.argmax())
            if int(self.accounted[index]) == self.picked:
                return index, float(bounds[index])
            highest = bounds.topk(min(block, len(bounds))).indices
            stale = highest[allowed[highest] & (self.accounted[highest] < self.picked)]
            for part in stale.split(chunk_size(self.candidates)):
                self._refresh(part)
            # Where many old bounds are useless, to find that out in small steps would cost more than the work.
            block *= 4

    def pick(self, index: int) -> None:
        """Condition on a candidate whose score is up to date."""
        now = self.picked
        if now > 0:
            self.factor[now, :now] = self.columns[self.place[index], :now]
        self.factor[now, now] = (self.posterior.lam + self.bounds[index]).sqrt()
        self.representers[now] = self.posterior.representers(self.candidates[torch.tensor([index])])[0]
        self.picked += 1

    def prior_column(self) -> Tensor:
        """``U(x, z)`` of every candidate x with the last pick z, before the batch."""
        representer = self.representers[self.picked - 1 : self.picked]
        return _column(self.candidates, representer)

    def _refresh(self, indices: Tensor) -> None:
        now = self.picked
        # From the first pick that any of them lacks; what some have already comes out the same.
        start = int(self.accounted[indices].min())
        self._make_room(indices)
        columns = self.columns[self.place[indices]]
        covariances = inner_products(self.candidates[indices], self.representers[start:now])
        covariances -= columns[:, :start] @ self.factor[start:now, :start].T
        triangle = self.factor[start:now, start:now]
        columns[:, start:now] = torch.linalg.solve_triangular(triangle, covariances.T, upper=False).T
        self.columns[self.place[indices]] = columns
        self.bounds[indices] = self.initial[indices] - columns[:, :now].square().sum(1)
        self.accounted[indices] = now

    def _make_room(self, indices: Tensor) -> None:
        new = indices[self.place[indices] < 0]
        needed = self.touched + len(new)
        if needed > len(self.columns):
            size = min(len(self.bounds), max(needed, 2 * len(self.columns)))
            larger = self.columns.new_zeros(size, self.columns.shape[1])
            larger[: self.touched] = self.columns[: self.touched]
            self.columns = larger
        self.place[new] = torch.arange(self.touched, needed, device=self.place.device)
        self.touched = needed


def top_b(
    posterior: FeaturePosterior, candidates: Rows, count: int, constraints: Constraints | None = None
) -> Selection:
    """The highest scores, without updates within the batch: the paper's ablation."""
    scores = posterior.variance(candidates)
    order = torch.argsort(scores, descending=True, stable=True).tolist()
    return _take_in_order(scores, order, count, constraints, partial(_prior_column, posterior, candidates))


def random(
    posterior: FeaturePosterior,
    candidates: Rows,
    count: int,
    constraints: Constraints | None = None,
    *,
    generator: torch.Generator,
) -> Selection:
    """A uniform draw without replacement: the control."""
    scores = posterior.variance(candidates)
    order = torch.randperm(len(scores), generator=generator).tolist()
    return _take_in_order(scores, order, count, constraints, partial(_prior_column, posterior, candidates))


def by_score(
    method: str, scores: Tensor, count: int, constraints: Constraints | None = None, seed: int = 0
) -> Selection:
    """``topb`` or ``random`` where there are scores and no features."""
    if method == "topb":
        order = torch.argsort(scores, descending=True, stable=True).tolist()
    elif method == "random":
        order = torch.randperm(len(scores), generator=torch.Generator().manual_seed(seed)).tolist()
    else:
        raise InputError(f"{method!r} needs features: with scores alone, use topb or random")
    return _take_in_order(scores, order, count, constraints)


def _take_in_order(
    scores: Tensor,
    order: list[int],
    count: int,
    constraints: Constraints | None,
    prior_column: Callable[[int], Tensor] | None = None,
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
        column = prior_column(index) if prior_column is not None and constraints.min_separation > 0 else None
        allowed.pick(index, column)
    if len(selection.indices) < count:
        allowed.give_up()
    return selection


def _prior_column(posterior: FeaturePosterior, candidates: Rows, index: int) -> Tensor:
    """``U(x, z)`` of every candidate x with the one of that index."""
    return _column(candidates, posterior.representers(candidates[torch.tensor([index])]))


def _column(candidates: Rows, representer: Tensor) -> Tensor:
    """``U(x, z)`` of every candidate x with the z of this representer (a matrix of one row)."""
    return in_chunks(candidates, lambda rows: inner_products(rows, representer)[:, 0])


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
    candidates: Rows,
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
