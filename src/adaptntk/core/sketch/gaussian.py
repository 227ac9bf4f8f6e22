"""Random projection of gradient rows from P parameters to p dimensions.

The sketch ``phi~ = S phi`` with independent ``S_ij ~ N(0, 1/p)`` keeps the uncertainty of every query
within ``eps (lam + U)`` once ``p >= C eps^-2 (d_lam + log(m/delta))`` (the paper's theorem; ``d_lam`` is the
effective dimension). S has p x P entries, 1.5 GB for the paper's network, so it is never
stored in a file: entry (i, j) is a pure function of (seed, i, j), and any part of S can be drawn at any time.

That function (``normals.py``) gives the same bits everywhere, or a ``.ntk`` fitted on one machine would be worthless
on another.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from adaptntk.core.sketch.normals import MOST_ROWS, normal_numbers
from adaptntk.errors import InputError
from adaptntk.memory import DEFAULT_BUDGET

# Blocks of S have multiples of this many columns.
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

    @abstractmethod
    def transpose(self, rows: Tensor, parameters: int) -> Tensor:
        """``S^T w`` of every row w: directions in the space of all parameters, (n, parameters) in the rows' dtype."""

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

    def transpose(self, rows: Tensor, parameters: int) -> Tensor:
        if rows.shape[1] != parameters:
            raise InputError(f"rows of {rows.shape[1]} numbers are no directions of {parameters} parameters")
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
        if dim > MOST_ROWS:
            raise InputError(f"the sketch dimension must be at most {MOST_ROWS}, not {dim}")
        self.memory_budget = memory_budget
        self._kept: dict[tuple[int, int, torch.device], Tensor] = {}

    def apply(self, rows: Tensor, start: int = 0) -> Tensor:
        """Products in the rows' dtype, summed in float64."""
        total = torch.zeros(rows.shape[0], self._dim, dtype=torch.float64, device=rows.device)
        for first, last in self._ranges(start, start + rows.shape[1]):
            normals = self._block(first, last, rows.device)
            total += (rows[:, first - start : last - start] @ normals.to(rows.dtype).T).double()
        return total / math.sqrt(self._dim)

    def transpose(self, rows: Tensor, parameters: int) -> Tensor:
        """A block of columns at a time; those that `apply` has kept are not drawn again."""
        result = rows.new_empty(rows.shape[0], parameters)
        scaled = rows / math.sqrt(self._dim)
        for first, last in self._ranges(0, parameters):
            result[:, first:last] = scaled @ self._block(first, last, rows.device).to(rows.dtype)
        return result

    def normals(self, start: int, stop: int, device: torch.device | str = "cpu") -> Tensor:
        """Columns ``start..stop`` of ``sqrt(p) S``: p x (stop - start) standard normal numbers, float32."""
        return normal_numbers(self.seed, self._dim, start, stop, torch.device(device))

    def fits(self, parameters: int) -> bool:
        return 4 * self._dim * parameters <= self.memory_budget

    def memory(self, parameters: int) -> int:
        kept = min(4 * self._dim * parameters, self.memory_budget)
        return kept + 4 * self._dim * min(self._block_columns(), parameters)

    def _ranges(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Of columns; they begin at multiples of the step, wherever the first does: kept blocks serve all ranges."""
        step = self._block_columns()
        for low in range(start - start % step, stop, step):
            yield max(low, start), min(low + step, stop)

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
