"""Sketches that read a gradient once, for networks whose Gaussian sketch is too large to keep.

A Gaussian S has p x P entries, all of which enter the product. The two here have a few non-zeros per parameter,
take a few bytes of memory per parameter, and keep inner products equally well on average: for both, the relative
error of ``|S phi|^2`` has variance ``2/p`` at most, as for the Gaussian (up to the factor 17/16 of `SRHTSketch`). What
they lack is the Gaussian's guarantee for the worst vector, one with a few dominant entries; the estimate of the
sketch error that `fit` makes holds for any of them.
"""

import math
from functools import partial

import torch
from torch import Tensor

from adaptntk.core.sketch.counter_hash import hash_number, random_bits
from adaptntk.core.sketch.gaussian import Sketch

# Signs are drawn for so many columns at a time.
_SIGNS = 2**18
# The Hadamard transform works on this many times p dimensions.
_OVERSAMPLING = 16


class _Scatter:
    """A sparse matrix with one entry +1 or -1 in each column, which adds P columns up in ``width`` rows.

    Signs are independent. Column j of the block ``k = j // width`` goes to row ``(j + r_k) mod width`` with a random
    rotation ``r_k`` for each block: two columns of different blocks meet with probability 1/width, two of one
    block never, and so the variance is that of a scatter by independent rows. But whole blocks can be added at once.
    """

    def __init__(self, width: int, seed: int) -> None:
        self.width, self.seed = width, seed
        self._signs: dict[tuple[int, torch.dtype, torch.device], Tensor] = {}

    def apply(self, rows: Tensor, start: int) -> Tensor:
        """Sum of the columns ``start, start + 1, ...``: (n, width), in float64."""
        total = torch.zeros(len(rows), self.width, dtype=torch.float64, device=rows.device)
        # Added up in the rows' precision, and from time to time in double.
        sums = torch.zeros_like(total, dtype=rows.dtype)
        first, stop = start, start + rows.shape[1]
        while first < stop:
            row = (first + self._rotation(first // self.width)) % self.width
            # Up to the end of the block, of the rows, or of the signs that are drawn together.
            last = min(stop, first - first % self.width + self.width, first + self.width - row)
            last = min(last, first - first % _SIGNS + _SIGNS)
            signs = self._signs_like(rows, first // _SIGNS)[first % _SIGNS :][: last - first]
            sums[:, row : row + last - first].addcmul_(rows[:, first - start : last - start], signs)
            if last % _SIGNS == 0 or last == stop:
                total += sums
                sums.zero_()
            first = last
        return total

    def memory(self, parameters: int) -> int:
        return 8 * parameters

    def _rotation(self, block: int) -> int:
        return hash_number(self.seed + block) % self.width

    def _signs_like(self, rows: Tensor, number: int) -> Tensor:
        key = number, rows.dtype, rows.device
        if key not in self._signs:
            counter = torch.arange(number * _SIGNS, (number + 1) * _SIGNS, device=rows.device)
            self._signs[key] = random_bits(self.seed, counter).bitwise_and_(1).mul_(2).sub_(1).to(rows.dtype)
        return self._signs[key]


class SparseSignSketch(Sketch):
    """``nonzeros`` entries ``+-1/sqrt(nonzeros)`` in each column, in random rows; see `Sketch`."""

    kind = "sparse"
    nonzeros = 4

    def __init__(self, dim: int = 512, seed: int = 0) -> None:
        super().__init__(dim, seed)
        self._scatters = [_Scatter(dim, _stream(seed, number)) for number in range(self.nonzeros)]

    def apply(self, rows: Tensor, start: int = 0) -> Tensor:
        zero = torch.zeros((), device=rows.device)
        return sum((scatter.apply(rows, start) for scatter in self._scatters), start=zero) / math.sqrt(self.nonzeros)

    def memory(self, parameters: int) -> int:
        return sum(scatter.memory(parameters) for scatter in self._scatters)


class SRHTSketch(Sketch):
    """A subsampled randomised Hadamard transform after a sparse sign matrix that leads to 16 p dimensions.

    ``S = sqrt(1/p) R H D C``: C adds the P parameters up in B >= 16 p rows with random signs, D flips signs again, H is
    the Hadamard matrix of order B, R picks p of its rows. The first step costs one pass over the gradient and
    adds a variance of ``2/B``; all others are negligible. See `Sketch`.
    """

    kind = "srht"

    def __init__(self, dim: int = 512, seed: int = 0) -> None:
        super().__init__(dim, seed)
        self._order = 2 ** math.ceil(math.log2(_OVERSAMPLING * dim))
        self._scatter = _Scatter(self._order, _stream(seed, 0))

    def apply(self, rows: Tensor, start: int = 0) -> Tensor:
        counter = partial(torch.arange, self._order, device=rows.device)
        signs = random_bits(_stream(self.seed, 1), counter()).bitwise_and_(1).mul_(2).sub_(1)
        picked = random_bits(_stream(self.seed, 2), counter()).argsort()[: self._dim]
        transformed = hadamard_transform(self._scatter.apply(rows, start) * signs)
        return transformed.index_select(1, picked) / math.sqrt(self._dim)

    def memory(self, parameters: int) -> int:
        return self._scatter.memory(parameters)


def hadamard_transform(rows: Tensor) -> Tensor:
    """Each row times the Hadamard matrix (entries +1 and -1) of order 2^k, by k additions per entry."""
    length = rows.shape[1]
    half = 1
    while half < length:
        pairs = rows.view(len(rows), -1, 2, half)
        rows = torch.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), dim=2)
        half *= 2
    return rows.view(len(rows), length)


def _stream(seed: int, number: int) -> int:
    """The seed of an independent sequence of random bits."""
    return hash_number(hash_number(seed) + number + 1)
