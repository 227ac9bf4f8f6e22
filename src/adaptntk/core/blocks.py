"""Matrices of feature rows that are read a part at a time, from memory or from a file."""

from collections.abc import Iterator
from typing import Protocol

from torch import Tensor

# Rows are worked on in parts of about so many bytes: few enough to stay in the processor's cache.
_CHUNK_BYTES = 4 * 2**20


class Rows(Protocol):
    """What a tensor of rows and a file of rows have in common."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, key: slice | Tensor) -> Tensor:
        """The rows of a range, or of a list of numbers."""


def chunk_size(rows: Rows) -> int:
    """How many rows are worked on together."""
    return max(1, _CHUNK_BYTES // (8 * max(1, rows.shape[1])))


def chunks(rows: Rows) -> Iterator[tuple[slice, Tensor]]:
    """Consecutive parts, each with its range."""
    size = chunk_size(rows)
    for start in range(0, len(rows), size):
        part = slice(start, min(start + size, len(rows)))
        yield part, rows[part]
