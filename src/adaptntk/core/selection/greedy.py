"""The paper's sequential rule: the most uncertain structure, then the most uncertain given that one, and so on.

Picking a structure changes every other score without a label: for one row z by Eq. 8,
``U(x) -= U(x, z)^2 / (lam + U(z))``, for a block of rows by the same with matrices. Done for all candidates after each
pick this is a pivoted Cholesky factorisation of the posterior kernel plus ``lam I``: the greedy maximiser of its
determinant, known as MaxDet in batch active learning and as greedy MAP inference of a determinantal point process.

A score only falls when others are picked. So an old score is an upper bound, and only candidates whose bound
reaches the top are brought up to date: on most pools a few hundred of them, with the same picks as if all were.
"""

import torch
from torch import Tensor

from adaptntk.core.blocks import asked_rows, chunk_size
from adaptntk.core.rows import inner_products
from adaptntk.core.selection.problem import Allowed, Problem, Selection
from adaptntk.core.sketch.quality import decision_gap

# How many candidates are brought up to date at first when the highest bound turns out to be old.
_FIRST_BLOCK = 128


def greedy(problem: Problem, labelled: bool = False) -> Selection:
    """Pick the most uncertain candidate, condition all scores on all its rows (Eq. 8), repeat.

    Its rows are its block or, if ``labelled``, all that its label would teach: an energy and forces. The others are
    asked about their energies as before, so rows of forces are needed of the picks alone.
    """
    allowed = Allowed(problem)
    lam = problem.features.posterior.lam
    scores = FallingScores(problem, labelled)
    selection = Selection()
    for _ in range(problem.count):
        allowed.check_open()
        index, best = scores.best(allowed.open)
        others = allowed.open.clone()
        others[index] = False
        runner_up = scores.best(others)[1] if bool(others.any()) else -torch.inf
        selection.add(index, best)
        if problem.weights is None:  # the theorem speaks of U
            selection.gaps.append(torch.inf if runner_up == -torch.inf else decision_gap(best, runner_up, lam))
        scores.pick(index)
        allowed.pick(index)
    return selection


def greedy_of_labels(problem: Problem) -> Selection:
    """The same, where a pick teaches what its label will."""
    return greedy(problem, labelled=True)


class FallingScores:
    """Scores under a growing list of picks, computed where they are needed.

    With ``L L^T = K_zz + lam I`` over all rows z of the picks (K the posterior kernel before the batch), the variance
    of a row x is ``U(x) - |c(x)|^2`` with ``c(x) = L^-1 k_z(x)``. L and c(x) grow with each pick and keep the rest.
    """

    def __init__(self, problem: Problem, labelled: bool = False) -> None:
        space = problem.features
        self.posterior, self.candidates = space.posterior, space.candidates
        self.labels = space.labels if labelled else None
        _, height, width = self.candidates.shape
        most = problem.count * (height + (0 if self.labels is None else self.labels.rows))
        self.problem, self.initial = problem, problem.scores
        self.bounds = problem.weighted(self.initial).clone()
        self.factor = self.initial.new_zeros(most, most)
        self.representers = self.initial.new_zeros(most, width)
        self.learnt = 0
        # How many learnt rows each score accounts for, and where c(x) is, for those ever brought up to date.
        self.accounted = torch.zeros_like(self.bounds, dtype=torch.int32)
        self.place = torch.full_like(self.bounds, -1, dtype=torch.int64)
        self.columns = self.initial.new_zeros(0, self.candidates.asked, most)
        self.touched = 0

    def best(self, allowed: Tensor) -> tuple[int, float]:
        """The allowed candidate with the highest score, and that score."""
        block = _FIRST_BLOCK
        while True:
            bounds = torch.where(allowed, self.bounds, -torch.inf)
            index = int(bounds.argmax())
            if int(self.accounted[index]) == self.learnt:
                return index, float(bounds[index])
            highest = bounds.topk(min(block, len(bounds))).indices
            stale = highest[allowed[highest] & (self.accounted[highest] < self.learnt)]
            for part in stale.split(chunk_size(self.candidates)):
                self._refresh(part)
            # Where many old bounds are useless, to find that out in small steps would cost more than the work.
            block *= 4

    def pick(self, index: int) -> None:
        """Learn all rows of a candidate."""
        rows = self.candidates[torch.tensor([index])][0]
        if self.labels is not None:
            rows = torch.cat([rows.double(), self.labels.of([index])[0].double()])
        now, then = self.learnt, self.learnt + len(rows)
        self.representers[now:then] = self.posterior.representers(rows)
        covariances = inner_products(rows, self.representers[:then])
        known = self._solve(covariances[:, :now].T, 0, now).T
        own = covariances[:, now:] - known @ known.T
        own.diagonal().add_(self.posterior.lam)
        self.factor[now:then, :now] = known
        self.factor[now:then, now:then] = torch.linalg.cholesky(own)
        self.learnt = then

    def _refresh(self, indices: Tensor) -> None:
        now = self.learnt
        # From the first row that any of them lacks; what some have already comes out the same.
        start = int(self.accounted[indices].min())
        self._make_room(indices)
        columns = self.columns[self.place[indices]].flatten(0, 1)
        rows = asked_rows(self.candidates[indices], self.candidates.asked)
        covariances = inner_products(rows, self.representers[start:now])
        covariances -= columns[:, :start] @ self.factor[start:now, :start].T
        columns[:, start:now] = self._solve(covariances.T, start, now).T
        explained = columns[:, :now].square().sum(1).view(len(indices), -1).sum(1)
        self.columns[self.place[indices]] = columns.view(len(indices), -1, columns.shape[1])
        self.bounds[indices] = self.problem.weighted(self.initial[indices] - explained, indices)
        self.accounted[indices] = now

    def _solve(self, right: Tensor, start: int, stop: int) -> Tensor:
        return torch.linalg.solve_triangular(self.factor[start:stop, start:stop], right, upper=False)

    def _make_room(self, indices: Tensor) -> None:
        new = indices[self.place[indices] < 0]
        needed = self.touched + len(new)
        if needed > len(self.columns):
            size = min(len(self.bounds), max(needed, 2 * len(self.columns)))
            larger = self.columns.new_zeros(size, *self.columns.shape[1:])
            larger[: self.touched] = self.columns[: self.touched]
            self.columns = larger
        self.place[new] = torch.arange(self.touched, needed, device=self.place.device)
        self.touched = needed
