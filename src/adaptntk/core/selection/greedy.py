"""Choosing a batch: posteriors and candidate rows in, ordered indices out.

`greedy` is the paper's sequential rule. Picking ``z`` changes every other score by Eq. 8,
``U(x) -= U(x, z)^2 / (lam + U(z))``, without a label. Done for all candidates after each pick this is a pivoted
Cholesky factorisation of the posterior kernel plus ``lam I``: the greedy maximiser of its determinant, known
as MaxDet in batch active learning and as greedy MAP inference of a determinantal point process.

A score only falls when others are picked. So an old score is an upper bound, and only candidates whose bound
reaches the top are brought up to date: on most pools a few hundred of them, with the same picks as if all were.
"""

import torch
from torch import Tensor

from adaptntk.core.blocks import Rows, chunk_size
from adaptntk.core.posterior import FeaturePosterior, inner_products
from adaptntk.core.selection.problem import Allowed, Constraints, Selection
from adaptntk.core.sketch.quality import decision_gap
from adaptntk.errors import InputError

# How many candidates are brought up to date at first when the highest bound turns out to be old.
_FIRST_BLOCK = 128


def greedy(
    posterior: FeaturePosterior, candidates: Rows, count: int, constraints: Constraints | None = None
) -> Selection:
    """Pick the most uncertain candidate, condition all scores on it (Eq. 8), repeat."""
    allowed = Allowed(candidates, count, constraints, posterior)
    scores = _FallingScores(posterior, candidates, count)
    selection = Selection([], [])
    for _ in range(count):
        allowed.check_open()
        index, best = scores.best(allowed.open)
        others = allowed.open.clone()
        others[index] = False
        runner_up = scores.best(others)[1] if bool(others.any()) else -torch.inf
        selection.indices.append(index)
        selection.scores.append(best)
        selection.gaps.append(torch.inf if runner_up == -torch.inf else decision_gap(best, runner_up, posterior.lam))
        scores.pick(index)
        allowed.pick(index)
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
    return _take_in_order(scores, _descending(scores), count, Allowed(candidates, count, constraints, posterior))


def random(
    posterior: FeaturePosterior,
    candidates: Rows,
    count: int,
    constraints: Constraints | None = None,
    *,
    generator: torch.Generator,
) -> Selection:
    """A uniform draw without replacement: the control."""
    order = torch.randperm(len(candidates), generator=generator).tolist()
    allowed = Allowed(candidates, count, constraints, posterior)
    return _take_in_order(posterior.variance(candidates), order, count, allowed)


def by_score(
    method: str, scores: Tensor, count: int, constraints: Constraints | None = None, seed: int = 0
) -> Selection:
    """``topb`` or ``random`` where there are scores and no features."""
    if method == "topb":
        order = _descending(scores)
    elif method == "random":
        order = torch.randperm(len(scores), generator=torch.Generator().manual_seed(seed)).tolist()
    else:
        raise InputError(f"{method!r} needs features: with scores alone, use topb or random")
    return _take_in_order(scores, order, count, Allowed(scores, count, constraints))


def _descending(scores: Tensor) -> list[int]:
    return torch.argsort(scores, descending=True, stable=True).tolist()


def _take_in_order(scores: Tensor, order: list[int], count: int, allowed: Allowed) -> Selection:
    selection = Selection([], [])
    for index in order:
        if len(selection.indices) == count:
            break
        if bool(allowed.open[index]):
            selection.indices.append(index)
            selection.scores.append(float(scores[index]))
            allowed.pick(index)
    if len(selection.indices) < count:
        allowed.check_open()
    return selection
