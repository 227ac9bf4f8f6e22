"""Sketches that read a gradient once, for networks whose Gaussian sketch is too large to keep.

A Gaussian S has p x P entries, all of which enter the product. The two here have a few non-zeros per parameter,
take a few bytes of memory per parameter, and keep inner products equally well on average: for both, the relative
error of ``|S phi|^2`` has variance ``2/p`` at most, as for the Gaussian (up to the factor 17/16 of `SRHTSketch`). What
they lack is the Gaussian's guarantee for the worst vector, one with a few dominant entries; the estimate of the
sketch error that `fit` makes holds for any of them.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from adaptntk.core.sketch.counter_hash import hash_number, random_bits, stream
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
        self._held: dict[tuple[int, torch.dtype, torch.device], Tensor] = {}

    def apply(self, rows: Tensor, start: int) -> Tensor:
        """Sum of the columns ``start, start + 1, ...``: (n, width), in float64."""
        total = torch.zeros(len(rows), self.width, dtype=torch.float64, device=rows.device)
        # Added up in the rows' precision, and from time to time in double.
        sums = torch.zeros_like(total, dtype=rows.dtype)
        stop = start + rows.shape[1]
        for first, last, row in self._ranges(start, stop):
            signs = self._kept_signs(rows, first // _SIGNS)[first % _SIGNS :][: last - first]
            sums[:, row : row + last - first].addcmul_(rows[:, first - start : last - start], signs)
            if last % _SIGNS == 0 or last == stop:
                total += sums
                sums.zero_()
        return total

    def add_transpose(self, rows: Tensor, result: Tensor) -> None:
        """Add to ``result`` (n, P) what rows (n, width) become: each column copies its row, with its sign."""
        for first, last, row in self._ranges(0, result.shape[1]):
            if first % _SIGNS == 0:
                # Not kept: directions are drawn once, while gradients come again and again.
                signs = self._signs(rows, first // _SIGNS)
            own = signs[first % _SIGNS :][: last - first]
            result[:, first:last].addcmul_(rows[:, row : row + last - first], own)

    def memory(self, parameters: int) -> int:
        return 8 * parameters

    def _ranges(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Columns ``first..last`` that go to consecutive rows, and the first of those rows."""
        first = start
        while first < stop:
            row = (first + hash_number(self.seed + first // self.width) % self.width) % self.width
            # Up to the end of the block, of the rows, or of the signs that are drawn together.
            last = min(stop, first - first % self.width + self.width, first + self.width - row)
            last = min(last, first - first % _SIGNS + _SIGNS)
            yield first, last, row
            first = last

    def _kept_signs(self, rows: Tensor, number: int) -> Tensor:
        key = number, rows.dtype, rows.device
        if key not in self._held:
            self._held[key] = self._signs(rows, number)
        return self._held[key]

    def _signs(self, rows: Tensor, number: int) -> Tensor:
        """Of the columns of one number, in the rows' dtype."""
        counter = torch.arange(number * _SIGNS, (number + 1) * _SIGNS, device=rows.device)
        return random_bits(self.seed, counter).bitwise_and_(1).mul_(2).sub_(1).to(rows.dtype)


class SparseSignSketch(Sketch):
    """``nonzeros`` entries ``+-1/sqrt(nonzeros)`` in each column, in random rows; see `Sketch`."""

    kind = "sparse"
    nonzeros = 4

    def __init__(self, dim: int = 512, seed: int = 0) -> None:
        super().__init__(dim, seed)
        self._scatters = [_Scatter(dim, stream(seed, number)) for number in range(self.nonzeros)]

    def apply(self, rows: Tensor, start: int = 0) -> Tensor:
        zero = torch.zeros((), device=rows.device)
        return sum((scatter.apply(rows, start) for scatter in self._scatters), start=zero) / math.sqrt(self.nonzeros)

    def transpose(self, rows: Tensor, parameters: int) -> Tensor:
        result = rows.new_zeros(rows.shape[0], parameters)
        for scatter in self._scatters:
            scatter.add_transpose(rows / math.sqrt(self.nonzeros), result)
        return result

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
        self._scatter = _Scatter(self._order, stream(seed, 0))

    def apply(self, rows: Tensor, start: int = 0) -> Tensor:
        signs, picked = self._signs_and_picked(rows.device)
        transformed = hadamard_transform(self._scatter.apply(rows, start) * signs)
        return transformed.index_select(1, picked) / math.sqrt(self._dim)

    def transpose(self, rows: Tensor, parameters: int) -> Tensor:
        """``C^T D H R^T``, as H is symmetric."""
        signs, picked = self._signs_and_picked(rows.device)
        spread = rows.new_zeros(rows.shape[0], self._order)
        spread[:, picked] = rows / math.sqrt(self._dim)
        result = rows.new_zeros(rows.shape[0], parameters)
        self._scatter.add_transpose(hadamard_transform(spread) * signs, result)
        return result

    def memory(self, parameters: int) -> int:
        return self._scatter.memory(parameters)

    def _signs_and_picked(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The diagonal of D, and the rows of H that R picks."""
        bits = [random_bits(stream(self.seed, n), torch.arange(self._order, device=device)) for n in (1, 2)]
        return bits[0].bitwise_and_(1).mul_(2).sub_(1), bits[1].argsort()[: self._dim]


def hadamard_transform(rows: Tensor) -> Tensor:
    """Each row times the Hadamard matrix (entries +1 and -1) of order 2^k, by k additions per entry."""
    length = rows.shape[1]
    half = 1
    while half < length:
        pairs = rows.view(len(rows), length // (2 * half), 2, half)
        rows = torch.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), dim=2)
        half *= 2
    return rows.view(len(rows), length)
