"""Random projection of gradient rows from P parameters to p dimensions.

The sketch ``phi~ = S phi`` with independent ``S_ij ~ N(0, 1/p)`` keeps the uncertainty of every query
within ``eps (lam + U)`` once ``p >= C eps^-2 (d_lam + log(m/delta))`` (the paper's theorem; ``d_lam`` is the
effective dimension of ``theory.py``). S has p x P entries, 1.5 GB for the paper's network, so it is never
stored in a file: entry (i, j) is a pure function of (seed, i, j), and any part of S can be drawn at any time.

That function must give the same bits everywhere, or a ``.ntk`` fitted on one machine would be worthless on
another. Library generators promise that neither across devices nor across versions. So we hash the position
(``counter_hash.py``) and turn the 64 bits into two normal numbers by Box-Muller,
with logarithm, sine and cosine written as polynomials: additions, multiplications, divisions and square roots
are rounded the same way by every IEEE processor, library transcendentals are not.
"""

import math
from typing import Protocol

import torch
from torch import Tensor

from adaptntk.core.counter_hash import random_bits, shift_right
from adaptntk.errors import InputError
from adaptntk.memory import DEFAULT_BUDGET

# Position (pair of rows r, column j) has counter j * 2^20 + r: room for two million rows.
_PAIRS_PER_COLUMN = 2**20
# Columns drawn at a time: the temporaries of 256 row pairs then stay in the processor's cache.
_DRAW_COLUMNS = 512


class Sketch(Protocol):
    """A linear map of gradient rows, applied a range of columns at a time."""

    kind: str
    seed: int

    def dim(self, parameters: int) -> int:
        """The width of the projected rows when the gradient has this many parameters."""

    def apply(self, rows: Tensor, start: int = 0) -> Tensor:
        """Contribution of the gradient columns ``start, start + 1, ...`` to the projected rows."""

    def fits(self, parameters: int) -> bool:
        """Whether the sketch is kept once drawn, for rows of this many parameters."""

    def memory(self, parameters: int) -> int:
        """Bytes held while rows of this many parameters are projected."""


class NoSketch:
    """Keep the full gradient: for the exact scores in dual form."""

    kind = "none"
    seed = 0

    def dim(self, parameters: int) -> int:
        return parameters

    def apply(self, rows: Tensor, start: int = 0) -> Tensor:
        if start != 0:
            raise InputError("full gradients cannot be accumulated from parts")
        return rows

    def fits(self, parameters: int) -> bool:
        return True

    def memory(self, parameters: int) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoSketch)

    __hash__ = None  # type: ignore[assignment]


class GaussianSketch:
    """``S_ij ~ N(0, 1/p)``, the same on every machine, device and thread count for one seed.

    A sketch of a smaller p is, up to the scale, the first rows of a larger one.

    Args:
        dim: p, the dimension of the projected rows; must be even.
        seed: which S.
        memory_budget: bytes up to which S is kept once drawn; what does not fit is drawn anew for each
            batch of rows.
    """

    kind = "gaussian"

    def __init__(self, dim: int = 512, seed: int = 0, memory_budget: int = DEFAULT_BUDGET) -> None:
        if dim < 2 or dim % 2:
            raise InputError(f"the sketch dimension must be even and at least 2, not {dim}")
        if dim > 2 * _PAIRS_PER_COLUMN:
            raise InputError(f"the sketch dimension must be at most {2 * _PAIRS_PER_COLUMN}, not {dim}")
        self._dim = dim
        self.seed = seed
        self.memory_budget = memory_budget
        self._kept: dict[tuple[int, int, torch.device], Tensor] = {}

    def dim(self, parameters: int) -> int:
        return self._dim

    def apply(self, rows: Tensor, start: int = 0) -> Tensor:
        """``S[:, start:start + width] rows^T``, transposed; products in the rows' dtype, summed in float64."""
        total = torch.zeros(rows.shape[0], self._dim, dtype=torch.float64, device=rows.device)
        step = self._block_columns()
        width = rows.shape[1]
        # Blocks begin at multiples of the step, wherever the range begins: kept ones then serve the next range too.
        for low in range(start - start % step, start + width, step):
            first, last = max(low, start), min(low + step, start + width)
            normals = self._block(first, last, rows.device)
            total += (rows[:, first - start : last - start] @ normals.to(rows.dtype).T).double()
        return total / math.sqrt(self._dim)

    def normals(self, start: int, stop: int, device: torch.device | str = "cpu") -> Tensor:
        """Columns ``start..stop`` of ``sqrt(p) S``: p x (stop - start) standard normal numbers, float32."""
        parts = [
            _normal_columns(self.seed, self._dim, low, min(low + _DRAW_COLUMNS, stop), torch.device(device))
            for low in range(start, stop, _DRAW_COLUMNS)
        ]
        return torch.cat(parts, dim=1)

    def fits(self, parameters: int) -> bool:
        return 4 * self._dim * parameters <= self.memory_budget

    def memory(self, parameters: int) -> int:
        kept = min(4 * self._dim * parameters, self.memory_budget)
        return kept + 4 * self._dim * min(self._block_columns(), parameters)

    def _block_columns(self) -> int:
        """Columns multiplied at a time: blocks of 64 MB."""
        return max(_DRAW_COLUMNS, (2**24 // self._dim) // _DRAW_COLUMNS * _DRAW_COLUMNS)

    def _block(self, first: int, last: int, device: torch.device) -> Tensor:
        key = (first, last, device)
        block = self._kept.get(key)
        if block is None:
            block = self.normals(first, last, device)
            held = sum(kept.nbytes for kept in self._kept.values())
            if held + block.nbytes <= self.memory_budget:
                self._kept[key] = block
        return block

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GaussianSketch) and (self._dim, self.seed) == (other._dim, other.seed)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"GaussianSketch({self._dim}, seed={self.seed})"


def _normal_columns(seed: int, dim: int, start: int, stop: int, device: torch.device) -> Tensor:
    columns = torch.arange(start, stop, dtype=torch.int64, device=device)
    pairs = torch.arange(dim // 2, dtype=torch.int64, device=device)
    counter = pairs[:, None] + _PAIRS_PER_COLUMN * columns[None, :]
    bits = random_bits(seed, counter)
    even, odd = _box_muller(bits)
    # Row 2r and 2r + 1 come from the same 64 bits.
    return torch.stack((even, odd), dim=1).reshape(dim, stop - start)


def _box_muller(bits: Tensor) -> tuple[Tensor, Tensor]:
    """Two independent standard normal numbers from 64 uniform bits, rounded to float32.

    ``r cos t`` and ``r sin t`` with ``r^2 = -2 log u``, u from the upper and t from the lower 32 bits. Each
    operation below is one correctly rounded float64 operation: do not fuse or reorder them.
    """
    radius = _negative_log(shift_right(bits, 32).double().add_(0.5).mul_(2.0**-32)).mul_(2.0).sqrt_()
    turn = bits.bitwise_and(2**32 - 1).double().mul_(2.0**-30)  # quarter turns, in [0, 4)
    quadrant = torch.round(turn)
    angle = turn.sub_(quadrant).mul_(math.pi / 2)  # in [-pi/4, pi/4]
    sine, cosine = _sine_cosine(angle)
    quadrant = quadrant.long().bitwise_and_(3)
    swapped = quadrant.bitwise_and(1).bool()
    first = torch.where(swapped, sine, cosine)
    second = torch.where(swapped, cosine, sine)
    first = torch.where((quadrant == 1) | (quadrant == 2), -first, first)
    second = torch.where(quadrant >= 2, -second, second)
    return first.mul_(radius).float(), second.mul_(radius).float()


def _negative_log(u: Tensor) -> Tensor:
    """``-log u`` to 1e-10: u = m 2^e with m around 1, and log m = 2 artanh((m - 1)/(m + 1))."""
    mantissa, exponent = torch.frexp(u)
    small = mantissa < math.sqrt(0.5)
    mantissa = torch.where(small, mantissa * 2.0, mantissa)
    exponent = torch.where(small, exponent - 1, exponent)
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    series = _horner(ratio * ratio, [1 / k for k in (13, 11, 9, 7, 5, 3, 1)])
    return series.mul_(ratio).mul_(-2.0).sub_(exponent.double().mul_(math.log(2.0)))


def _sine_cosine(angle: Tensor) -> tuple[Tensor, Tensor]:
    """Taylor polynomials, exact to 1e-11 for angles up to pi/4."""
    square = angle * angle
    sine = _horner(square, [(-1) ** k / math.factorial(2 * k + 1) for k in range(6, -1, -1)])
    cosine = _horner(square, [(-1) ** k / math.factorial(2 * k) for k in range(6, -1, -1)])
    return sine.mul_(angle), cosine


def _horner(x: Tensor, coefficients: list[float]) -> Tensor:
    value = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value.mul_(x).add_(coefficient)
    return value
