"""Products of rows in float64: of wide ones without a copy of them, of many ones without needless work."""

from collections.abc import Sequence

import torch
from torch import Tensor

# Single precision is converted so many numbers at a time: 256 MB.
_CONVERTED = 2**25
# Columns of a block of the matrix F.
_GRAM_BLOCK = 512


def inner_products(a: Tensor, b: Tensor) -> Tensor:
    """``a b^T`` in float64 without a float64 copy of wide rows."""
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.float64, device=a.device)
    step = _column_step(a, b)
    for left, right in zip(a.split(step, 1), b.split(step, 1), strict=True):
        total.addmm_(left.double(), right.double().T)
    return total


def stacked_products(parts: Sequence[Tensor], b: Tensor) -> Tensor:
    """``a b^T`` of rows ``a`` that are kept in several parts."""
    return torch.cat([inner_products(part, b) for part in parts])


def subtract_combinations(result: Tensor, parts: Sequence[Tensor], weights: Tensor) -> None:
    """``result -= weights^T a`` for rows ``a`` in several parts: combinations of them, in float64 and in place."""
    for part, own in zip(parts, weights.split([len(part) for part in parts]), strict=True):
        step = _column_step(part, result)
        for left, known in zip(result.split(step, 1), part.split(step, 1), strict=True):
            left.addmm_(own.T, known.double(), alpha=-1)


def squared_norms(rows: Tensor) -> Tensor:
    """``k(x, x)`` of every row, in float64."""
    total = torch.zeros(rows.shape[0], dtype=torch.float64, device=rows.device)
    for part in rows.split(_column_step(rows), 1):
        total += part.double().square().sum(1)
    return total


def gram(parts: Sequence[Tensor]) -> Tensor:
    """``F``, the sum of ``rows^T rows`` over the parts, in float64.

    Blocks above the diagonal are copied, not multiplied: ``n p^2`` operations for n rows instead of twice as many.
    """
    width = parts[0].shape[1]
    total = torch.zeros(width, width, dtype=torch.float64, device=parts[0].device)
    blocks = [slice(low, min(low + _GRAM_BLOCK, width)) for low in range(0, width, _GRAM_BLOCK)]
    for part in parts:
        for rows in part.split(max(1, _CONVERTED // max(1, width))):
            rows = rows.double()
            for block in blocks:
                total[block, : block.stop].addmm_(rows[:, block].T, rows[:, : block.stop])
    for block in blocks:
        total[: block.start, block] = total[block, : block.start].T
    return total


def compressed(rows: Tensor) -> Tensor:
    """At most p rows with the same ``rows^T rows``: the factor R of ``rows = Q R`` where there are more.

    All that a posterior knows of its rows is that sum, so nothing is lost beyond rounding. ``O(n p^2)``; not by a
    Cholesky factor, as the sum need not be positive definite.
    """
    if rows.shape[0] <= rows.shape[1]:
        return rows
    return torch.linalg.qr(rows.double(), mode="r").R


def _column_step(*matrices: Tensor) -> int:
    """Columns that are converted at a time."""
    return max(256, _CONVERTED // max(1, *(len(rows) for rows in matrices)))
