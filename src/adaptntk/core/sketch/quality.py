"""The quantities of the paper's theorem and corollary, measured."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from adaptntk.core.blocks import Blocks
from adaptntk.core.posterior import RidgePath, fit_posterior


def effective_dimension(features: Tensor | Blocks, lam: float, further: Tensor | None = None) -> float:
    """``d_lam = tr[K (K + lam I)^-1]`` of the kernel matrix of all rows."""
    return RidgePath(features, further).effective_dimension(lam)


def sketch_error(sketched: Tensor, exact: Tensor, lam: float) -> Tensor:
    """``|U~ - U| / (lam + U)`` of every query: the left side of the theorem's bound on eps."""
    return (sketched - exact).abs() / (lam + exact)


def decision_gap(first: float, second: float, lam: float) -> float:
    """``(U1 - U2) / (2 lam + U1 + U2)`` of the two best scores at one step of the greedy path."""
    return (first - second) / (2 * lam + first + second)


def jaccard(a: list[int], b: list[int]) -> float:
    """Overlap of two batches, 1 for the same set."""
    return len(set(a) & set(b)) / len(set(a) | set(b))


@dataclass(frozen=True)
class SketchAdvice:
    """How good the sketch is on some queries, and what a better one would cost.

    ``error`` is the largest ``|U~ - U|/(lam + U)``; ``reference`` is what it was measured against: ``exact`` (full
    gradients) or ``split`` (two halves of the sketch against each other).
    """

    dim: int
    error: float
    median_error: float
    rank_correlation: float
    reference: str

    def dim_for(self, eps: float) -> int:
        """The p for a largest error of ``eps``: it falls as ``1/sqrt(p)``. A multiple of 128, or the p there is."""
        needed = max(128, 128 * math.ceil(self.dim * (self.error / eps) ** 2 / 128))
        return needed if self.error > eps else min(needed, self.dim)


def advice_from_exact(sketched: Tensor, exact: Tensor, lam: float, dim: int) -> SketchAdvice:
    """Compare with scores from full gradients."""
    return _advice(sketch_error(sketched, exact, lam), rank_correlation(sketched, exact), dim, "exact")


def advice_from_halves(features: Blocks, queries: Blocks, lam: float, further: Tensor | None = None) -> SketchAdvice:
    """Estimate the error from the sketch alone, when full gradients are out of reach.

    The first and the second half of the sketch's rows are independent sketches of p/2 dimensions. The
    difference of their scores has twice the variance of the error of one, and that one has twice the
    variance of the error at p: hence the factor 1/2. What both halves have in common (a bias when p is
    not large beside the effective dimension) cannot be seen this way.
    """
    parts = zip(halves(features), halves(queries), halves_of_rows(further), strict=True)
    first, second = (fit_posterior(rows, lam, more).variance(asked) for rows, asked, more in parts)
    error = (first - second).abs() / (2 * (lam + (first + second) / 2))
    return _advice(error, rank_correlation(first, second), features.shape[2], "split")


@dataclass(frozen=True)
class HalfBlocks(Blocks):
    """Blocks under half of the sketch, read when they are used: half of the columns are a sketch of its own."""

    blocks: Blocks
    first: int

    @property
    def asked(self) -> int:
        return self.blocks.asked

    @property
    def shape(self) -> tuple[int, int, int]:
        structures, rows, width = self.blocks.shape
        return structures, rows, width // 2

    def __getitem__(self, key: slice | Tensor) -> Tensor:
        """The columns, rescaled: ``S_ij ~ N(0, 1/p)`` was drawn for p, the half needs ``N(0, 2/p)``."""
        return self.blocks[key][..., self.first : self.first + self.shape[2]] * math.sqrt(2.0)


def halves(blocks: Blocks) -> tuple[HalfBlocks, HalfBlocks]:
    """Blocks under two independent sketches out of one."""
    return HalfBlocks(blocks, 0), HalfBlocks(blocks, blocks.shape[2] // 2)


def halves_of_rows(rows: Tensor | None) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """The same of further rows; nothing of nothing."""
    if rows is None:
        return None, None
    half = rows.shape[-1] // 2
    return rows[..., :half] * math.sqrt(2.0), rows[..., half : 2 * half] * math.sqrt(2.0)


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Pearson correlation of the ranks (scores are continuous: no ties)."""
    ranks = torch.stack([a.argsort().argsort().double(), b.argsort().argsort().double()])
    return float(torch.corrcoef(ranks)[0, 1])


def _advice(error: Tensor, correlation: float, dim: int, reference: str) -> SketchAdvice:
    return SketchAdvice(dim, float(error.max()), float(error.median()), correlation, reference)
