"""Random projection of gradient rows from P parameters to p dimensions.

The sketch ``phi~ = S phi`` with independent ``S_ij ~ N(0, 1/p)`` keeps the uncertainty of every query
within ``eps (lam + U)`` once ``p >= C eps^-2 (d_lam + log(m/delta))`` (the paper's theorem; ``d_lam`` is the
effective dimension). S has p x P entries, 1.5 GB for the paper's network, so it is never
stored in a file: entry (i, j) is a pure function of (seed, i, j), and any part of S can be drawn at any time.

That function must give the same bits everywhere, or a ``.ntk`` fitted on one machine would be worthless on
another. Library generators promise that neither across devices nor across versions. So we hash the position
(``counter_hash.py``), and let each 16 bits of the hash choose one of 65,536 equally likely quantiles of the normal
distribution: numbers up to 4.3, with unit variance, and all that the theorem asks of S (independent, sub-Gaussian).
"""

import hashlib
import math
from abc import ABC, abstractmethod
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from adaptntk.core.sketch.counter_hash import random_bits
from adaptntk.errors import AdaptNTKError, InputError
from adaptntk.memory import DEFAULT_BUDGET

# Four neighbouring columns come from the same 64 bits; (row i, group of columns g) has counter g * 2^21 + i.
_LANES = 4
_LEVELS = 2**16
_ROWS_PER_GROUP = 2**21
_TABLE_SHA256 = "8babbcaf96568f10165a1eab530c0e5c92d04de96761b6dbb3dadfa94baba37f"
# Columns drawn at a time: the temporaries of 512 rows then stay in the processor's cache.
_DRAW_COLUMNS = 1024


class Sketch(ABC):
    """A linear map of gradient rows, applied a range of columns at a time.

    Args:
        dim: p, the dimension of the projected rows; must be even.
        seed: which S.
    """

    kind: str

    def __init__(self, dim: int = 512, seed: int = 0) -> None:
        if dim < 2 or dim % 2:
            raise InputError(f"the sketch dimension must be even and at least 2, not {dim}")
        self._dim, self.seed = dim, seed

    def dim(self, parameters: int) -> int:
        """The width of the projected rows when the gradient has this many parameters."""
        return self._dim

    @abstractmethod
    def apply(self, rows: Tensor, start: int = 0) -> Tensor:
        """``S[:, start:start + width] rows^T``, transposed: what these columns of gradients contribute."""

    def fits(self, parameters: int) -> bool:
        """Whether the sketch is kept once drawn, for rows of this many parameters."""
        return True

    @abstractmethod
    def memory(self, parameters: int) -> int:
        """Bytes held while rows of this many parameters are projected."""

    def spec(self, parameters: int) -> dict[str, Any]:
        """What must be written down to build the same sketch again."""
        return {"kind": self.kind, "dim": self.dim(parameters), "seed": self.seed}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and (self._dim, self.seed) == (other._dim, other.seed)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._dim}, seed={self.seed})"


class NoSketch(Sketch):
    """Keep the full gradient: for the exact scores in dual form."""

    kind = "none"

    def __init__(self) -> None:
        self._dim, self.seed = 0, 0

    def dim(self, parameters: int) -> int:
        return parameters

    def apply(self, rows: Tensor, start: int = 0) -> Tensor:
        if start != 0:
            raise InputError("full gradients cannot be accumulated from parts")
        return rows

    def memory(self, parameters: int) -> int:
        return 0

    def __repr__(self) -> str:
        return "NoSketch()"


class GaussianSketch(Sketch):
    """``S_ij ~ N(0, 1/p)``, the same on every machine, device and thread count for one seed.

    A sketch of a smaller p is, up to the scale, the first rows of a larger one.

    Args:
        dim, seed: see `Sketch`.
        memory_budget: bytes up to which S is kept once drawn; what does not fit is drawn anew for each batch of rows.
    """

    kind = "gaussian"

    def __init__(self, dim: int = 512, seed: int = 0, memory_budget: int = DEFAULT_BUDGET) -> None:
        super().__init__(dim, seed)
        if dim > _ROWS_PER_GROUP:
            raise InputError(f"the sketch dimension must be at most {_ROWS_PER_GROUP}, not {dim}")
        self.memory_budget = memory_budget
        self._kept: dict[tuple[int, int, torch.device], Tensor] = {}

    def apply(self, rows: Tensor, start: int = 0) -> Tensor:
        """Products in the rows' dtype, summed in float64."""
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
        if key in self._kept:
            return self._kept[key]
        block = self.normals(first, last, device)
        if block.nbytes + sum(kept.nbytes for kept in self._kept.values()) <= self.memory_budget:
            self._kept[key] = block
        return block


def _normal_columns(seed: int, dim: int, start: int, stop: int, device: torch.device) -> Tensor:
    groups = torch.arange(start // _LANES, -(-stop // _LANES), dtype=torch.int64, device=device)
    rows = torch.arange(dim, dtype=torch.int64, device=device)
    bits = random_bits(seed, rows[:, None] + _ROWS_PER_GROUP * groups[None, :])
    # Each 64 bits as four numbers below 2^16, the lowest bits first, for four columns side by side.
    lanes = bits.view(torch.int16).to(torch.int32).bitwise_and_(_LEVELS - 1)
    normals = _quantiles(device).index_select(0, lanes.flatten()).view(dim, -1)
    first = start - start % _LANES
    return normals[:, start - first : stop - first]


@cache
def _quantiles(device: torch.device) -> Tensor:
    """The normal distribution in 2^16 equally likely numbers, scaled to unit variance."""
    upper = ndtri((np.arange(_LEVELS // 2, _LEVELS) + 0.5) / _LEVELS)
    upper *= math.sqrt(len(upper) / math.fsum(upper**2))
    table = np.concatenate([-upper[::-1], upper]).astype(np.float32)
    # Rounded to single precision they are the same on all machines that we know of; files depend on it.
    if hashlib.sha256(table.tobytes()).hexdigest() != _TABLE_SHA256:
        raise AdaptNTKError("the quantiles of the normal distribution differ on this machine: try another scipy")
    return torch.from_numpy(table).to(device)
