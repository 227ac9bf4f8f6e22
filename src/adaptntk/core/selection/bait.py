"""BAIT (Ash et al., 2021): the batch after which the summed variance of everything is smallest.

With whitened rows ``w(x)``, so that ``U(x, z) = w(x) . w(z)`` before the batch, the variance after picks q is
``U_t(x, z) = w(x)^T A w(z)``, ``A = lam (lam I + sum_q w(q) w(q)^T)^-1``. A pick z lowers the sum of all variances by

    b(z) / (lam + a(z)),   a(z) = w(z)^T A w(z),   b(z) = sum_x U_t(x, z)^2 = w(z)^T A M A w(z),

with ``M = sum_x w(x) w(x)^T`` over training structures and candidates. After a pick q, with
``v = A w(q) / sqrt(lam + a(q))``,

    A <- A - v v^T,   a(z) <- a(z) - (w(z).v)^2,   b(z) <- b(z) - 2 (w(z).v) (w(z).A M v) + (w(z).v)^2 v^T M v,

which takes two inner products per candidate. Twice as many as wanted are picked so, then those are dropped, one at a
time, whose absence raises the sum least: by ``b(q) / (lam - a(q))``. With the picks' rows W and ``G = W W^T + lam I``,
``A W^T = lam W^T G^-1``, so that

    lam - a(q) = lam^2 (G^-1)_qq,   b(q) = lam^2 (G^-1 W M W^T G^-1)_qq,

which needs no difference of ``lam`` and an ``a(q)`` that is nearly as large. G itself is not formed either: its
condition is the square of that of W, whose singular vectors give ``G^-1`` and ``G^-1 W``.
"""

import torch
from torch import Tensor

from adaptntk.core.blocks import Rows, chunks
from adaptntk.core.posterior import FeaturePosterior, Posterior, inner_products
from adaptntk.core.selection.problem import Allowed, Constraints, Selection
from adaptntk.errors import InputError

# Picked before the dropping begins, relative to what is wanted.
OVERSELECTION = 2
# A b that has fallen by this factor has lost as many digits to the updates.
TRUSTED = 1e-6


def bait(
    posterior: FeaturePosterior,
    training: Tensor,
    candidates: Rows,
    count: int,
    constraints: Constraints | None = None,
) -> Selection:
    """Forward selection of twice as many as wanted, then backward elimination."""
    allowed = Allowed(candidates, count, constraints, posterior)
    if not isinstance(posterior, Posterior):
        raise InputError("bait needs sketched features: full gradients have too many dimensions")
    state = _Bait(posterior, training, candidates)
    picks: list[int] = []
    gains: list[float] = []
    while len(picks) < OVERSELECTION * count and bool(allowed.open.any()):
        gain = torch.where(allowed.open, state.b / (state.lam + state.a), -torch.inf)
        index = int(gain.argmax())
        if state.b[index] < TRUSTED * state.fresh[index]:
            state.refresh(picks)
            continue
        picks.append(index)
        gains.append(float(gain[index]))
        state.add(index)
        allowed.pick(index)
    if len(picks) < count:
        allowed.check_open()
    kept = state.drop(picks, len(picks) - count)
    return Selection([picks[place] for place in kept], [gains[place] for place in kept])


class _Bait:
    """The matrices of the module's formulas, and a and b of every candidate."""

    def __init__(self, posterior: Posterior, training: Tensor, candidates: Rows) -> None:
        self.posterior = posterior
        self.candidates = candidates
        self.lam = posterior.lam
        width = training.shape[1]
        self.total = torch.zeros(width, width, dtype=torch.float64, device=training.device)
        for rows in (training, candidates):
            for _, part in chunks(rows):
                whitened = posterior.whiten(part)
                self.total += whitened.T @ whitened
        self.refresh([])

    def refresh(self, picks: list[int]) -> None:
        """A, a and b after these picks, from their definitions; an update subtracts, and its rounding errors stay."""
        self.remaining = torch.eye(len(self.total), dtype=torch.float64, device=self.total.device)
        if picks:
            _, sizes, right = torch.linalg.svd(self.posterior.whiten(self.candidates[torch.tensor(picks)]))
            left = torch.ones_like(right[0])
            left[: len(sizes)] = self.lam / (sizes.square() + self.lam)
            self.remaining = right.T * left @ right
        self.a = torch.empty(len(self.candidates), dtype=torch.float64, device=self.total.device)
        self.b = torch.empty_like(self.a)
        for place, part in chunks(self.candidates):
            whitened = self.posterior.whiten(part)
            reached = whitened @ self.remaining if picks else whitened
            self.a[place] = (reached * whitened).sum(1)
            self.b[place] = ((reached @ self.total) * reached).sum(1)
        self.fresh = self.b.clone()

    def add(self, index: int) -> None:
        row = self.posterior.whiten(self.candidates[torch.tensor([index])])[0]
        direction = self.remaining @ row / (self.lam + self.a[index]).sqrt()
        spread = self.total @ direction
        along, across = self._inner(torch.stack([direction, self.remaining @ spread])).unbind(1)
        self.a -= along.square()
        self.b += along * (along * (direction @ spread) - 2 * across)
        self.remaining -= torch.outer(direction, direction)

    def drop(self, picks: list[int], surplus: int) -> list[int]:
        """Places in ``picks`` that stay when so many are dropped."""
        rows = self.posterior.whiten(self.candidates[torch.tensor(picks)])
        # In the directions of the picks alone, of which there are fewer.
        basis = torch.linalg.svd(rows, full_matrices=False).Vh
        rows, total = rows @ basis.T, basis @ self.total @ basis.T
        kept = list(range(len(picks)))
        for _ in range(surplus):
            # Anew each time: taken from the inverse of all, what one of two alike means to the other would be lost.
            left, sizes, right = torch.linalg.svd(rows[kept])
            weights = torch.full((len(kept),), 1 / self.lam, dtype=rows.dtype, device=rows.device)
            weights[: len(sizes)] = 1 / (sizes.square() + self.lam)
            reached = left[:, : len(sizes)] * (sizes * weights[: len(sizes)]) @ right[: len(sizes)]
            rise = ((reached @ total) * reached).sum(1) / (left.square() @ weights)
            kept.pop(int(rise.argmin()))
        return kept

    def _inner(self, vectors: Tensor) -> Tensor:
        """``w(x) . v`` of every candidate, from its own row: ``w . v = phi . (sqrt(lam) L^-T v)``."""
        raw = torch.linalg.solve_triangular(self.posterior.factor.T, vectors.T, upper=True).T * self.lam**0.5
        result = torch.empty(len(self.candidates), len(vectors), dtype=torch.float64, device=vectors.device)
        for place, part in chunks(self.candidates):
            result[place] = inner_products(part, raw)
        return result
