"""BAIT (Ash et al., 2021): the batch after which the summed variance of everything is smallest.

With whitened rows ``w(x)``, so that ``U(x, z) = w(x) . w(z)`` before the batch, the variance after picks q is
``U_t(x, z) = w(x)^T A w(z)``, ``A = lam (lam I + sum_q w(q) w(q)^T)^-1``. A structure z with the rows W(z) (one, or a
block) lowers the sum of all variances by

    tr[(lam I + a(z))^-1 b(z)],   a(z) = W(z) A W(z)^T,   b(z) = W(z) A M A W(z)^T,

with ``M = sum_x w(x) w(x)^T`` over the rows that are asked of training structures and candidates. After a pick q, with
``V = A W(q)^T L^-T`` and ``L L^T = lam I + a(q)``, and with ``X = W(z) V``, ``Y = W(z) A M V``,

    A <- A - V V^T,   a(z) <- a(z) - X X^T,   b(z) <- b(z) - X Y^T - Y X^T + X (V^T M V) X^T,

which takes two inner products per row. Twice as many as wanted are picked so, then those are dropped, one at a
time, whose absence raises the sum least: by ``tr[(lam I - a(q))^-1 b(q)]``. With the picks' rows W and
``G = W W^T + lam I``, ``A W^T = lam W^T G^-1``, so that

    lam I - a(q) = lam^2 (G^-1)_qq,   b(q) = lam^2 (G^-1 W M W^T G^-1)_qq,

which needs no difference of ``lam`` and an ``a(q)`` that is nearly as large. G itself is not formed either: its
condition is the square of that of W, whose singular vectors give ``G^-1`` and ``G^-1 W``.

With forces, M is made of rows of forces: the batch after which forces are surest, over the candidates or where somebody
wants to know them. Then all that a label teaches counts, W(z) is its energy and its forces. Rows of forces take many
gradients, so they are made of a shortlist only: of the candidates whose energies alone would lower the sum most.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from adaptntk.core.blocks import Blocks, TensorBlocks, asked_rows, chunks
from adaptntk.core.posterior import Posterior, as_primal
from adaptntk.core.selection.problem import Allowed, Constraints, FeatureSpace, Problem, Selection
from adaptntk.core.selection.shortlist import on_shortlist
from adaptntk.errors import InputError

# Picked before the dropping begins, relative to what is wanted.
OVERSELECTION = 2
# A b that has fallen by this factor has lost as many digits to the updates.
TRUSTED = 1e-6


def bait(problem: Problem) -> Selection:
    """The summed variance of the energies of training structures and candidates."""
    space = problem.features
    everything = (rows for blocks in (space.training, space.candidates) for rows in _asked(blocks))
    return _choose(problem, _Bait(_primal(space), space.candidates, everything))


def bait_for_forces(problem: Problem) -> Selection:
    """The summed variance of forces, by the energies and forces that labels teach; `bait` where these are not known."""
    space, labels = problem.features, problem.features.labels
    if labels is None or space.aims is None:
        return bait(problem)
    posterior, aims = _primal(space), space.aims()

    def choose(short: list[int], constraints: Constraints) -> Selection:
        rows = torch.cat([space.candidates[torch.tensor(short)].double(), labels.of(short).double()], dim=1)
        listed = replace(space, candidates=TensorBlocks(rows, space.candidates.asked))
        inner = replace(problem, source=listed, constraints=constraints)
        return _choose(inner, _Bait(posterior, listed.candidates, [aims]))

    return on_shortlist(problem, _Bait(posterior, space.candidates, [aims]).gains(), choose)


def _primal(space: FeatureSpace) -> Posterior:
    found = as_primal(space.posterior)
    if found is None:
        raise InputError("bait needs sketched features: full gradients have too many dimensions")
    return found


def _asked(blocks: Blocks) -> Iterator[Tensor]:
    return (asked_rows(part, blocks.asked) for _, part in chunks(blocks))


def _choose(problem: Problem, state: "_Bait") -> Selection:
    """Forward selection of twice as many as wanted, then backward elimination."""
    allowed = Allowed(problem)
    picks: list[int] = []
    gains: list[float] = []
    while len(picks) < OVERSELECTION * problem.count and bool(allowed.open.any()):
        gain = torch.where(allowed.open, state.gains(), -torch.inf)
        index = int(gain.argmax())
        # What is left of b tells how many digits the updates have cost.
        if state.b[index].diagonal().sum() < TRUSTED * state.fresh[index]:
            state.refresh(picks)
            continue
        picks.append(index)
        gains.append(float(gain[index]))
        state.add(index)
        allowed.pick(index)
    if len(picks) < problem.count:
        allowed.check_open()
    kept = state.drop(picks, len(picks) - problem.count)
    return Selection([picks[place] for place in kept], [gains[place] for place in kept])


class _Bait:
    """The matrices of the module's formulas, and a and b of every candidate; ``aims`` are the rows of M, in parts."""

    def __init__(self, posterior: Posterior, candidates: Blocks, aims: Iterable[Tensor]) -> None:
        self.posterior, self.candidates, self.lam = posterior, candidates, posterior.lam
        _, self.height, width = candidates.shape
        self.total = torch.zeros(width, width, dtype=torch.float64, device=candidates[:0].device)
        self.ridge = self.lam * torch.eye(self.height, dtype=self.total.dtype, device=self.total.device)
        for rows in aims:
            whitened = posterior.whiten(rows)
            self.total += whitened.T @ whitened
        self.refresh([])

    def gains(self) -> Tensor:
        """How much each candidate would lower the sum of all variances."""
        if self.height == 1:
            return self.b[:, 0, 0] / (self.lam + self.a[:, 0, 0])
        return _traces(torch.linalg.solve(self.ridge + self.a, self.b))

    def refresh(self, picks: list[int]) -> None:
        """A, a and b after these picks, from their definitions; an update subtracts, and its rounding errors stay."""
        self.remaining = torch.eye(len(self.total), dtype=self.total.dtype, device=self.total.device)
        if picks:
            _, sizes, right = torch.linalg.svd(self._whitened(picks).flatten(0, 1))
            left = torch.ones_like(right[0])
            left[: len(sizes)] = self.lam / (sizes.square() + self.lam)
            self.remaining = right.T * left @ right
        self.a = self.total.new_empty(len(self.candidates), self.height, self.height)
        self.b = torch.empty_like(self.a)
        for place, part in chunks(self.candidates):
            whitened = self.posterior.whiten(part.flatten(0, 1))
            reached = whitened @ self.remaining if picks else whitened
            self.a[place] = self._products(reached, whitened)
            self.b[place] = self._products(reached @ self.total, reached)
        self.fresh = _traces(self.b)

    def add(self, index: int) -> None:
        """Update everything for a pick."""
        factor = torch.linalg.cholesky(self.ridge + self.a[index])
        directions = torch.linalg.solve_triangular(factor, self._whitened([index])[0] @ self.remaining, upper=False)
        spread = directions @ self.total
        # One pass over the candidates for both.
        along, across = self._inner(torch.cat([directions, spread @ self.remaining])).split(self.height, dim=2)
        self.a -= along @ along.mT
        cross = along @ across.mT
        self.b += along @ (spread @ directions.T) @ along.mT - cross - cross.mT
        self.remaining -= directions.T @ directions

    def drop(self, picks: list[int], surplus: int) -> list[int]:
        """Places in ``picks`` that stay when so many are dropped."""
        blocks = self._whitened(picks)
        # In the directions of the picks alone, of which there are fewer.
        basis = torch.linalg.svd(blocks.flatten(0, 1), full_matrices=False).Vh
        blocks, total = blocks @ basis.T, basis @ self.total @ basis.T
        kept = list(range(len(picks)))
        for _ in range(surplus):
            # Anew each time: taken from the inverse of all, what one of two alike means to the other would be lost.
            kept.pop(int(self._rises(blocks[kept], total).argmin()))
        return kept

    def _rises(self, blocks: Tensor, total: Tensor) -> Tensor:
        """How much the sum of all variances rises when one of these is dropped."""
        rows = blocks.flatten(0, 1)
        left, sizes, right = torch.linalg.svd(rows)
        weights = rows.new_full((len(rows),), 1 / self.lam)
        weights[: len(sizes)] = 1 / (sizes.square() + self.lam)
        reached = left[:, : len(sizes)] * (sizes * weights[: len(sizes)]) @ right[: len(sizes)]
        gain = self._products(reached @ total, reached)
        inverse = self._products(left * weights, left)
        return _traces(torch.linalg.solve(inverse, gain))

    def _whitened(self, indices: list[int]) -> Tensor:
        blocks = self.candidates[torch.tensor(indices)]
        return self.posterior.whiten(blocks.flatten(0, 1)).view(len(indices), self.height, -1)

    def _products(self, left: Tensor, right: Tensor) -> Tensor:
        """Of the rows of each structure with one another: (structures, rows, rows)."""
        shape = (-1, self.height, left.shape[1])
        return left.view(shape) @ right.view(shape).mT

    def _inner(self, vectors: Tensor) -> Tensor:
        """``w(x) . v`` of every row of every candidate, from the row itself: ``w . v = phi . (sqrt(lam) L^-T v)``."""
        raw = torch.linalg.solve_triangular(self.posterior.factor.T, vectors.T, upper=True) * self.lam**0.5
        result = self.total.new_empty(len(self.candidates), self.height, len(vectors))
        for place, part in chunks(self.candidates):
            result[place] = part.double() @ raw
        return result


def _traces(matrices: Tensor) -> Tensor:
    return matrices.diagonal(dim1=1, dim2=2).sum(1)
