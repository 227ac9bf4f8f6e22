"""Matrices of feature rows that are read a part at a time, from memory or from a file."""

from collections.abc import Iterator
from typing import Protocol

from torch import Tensor

# Rows that are worked on together: 16 MB of 512 numbers each, which stay in the processor's cache.
CHUNK = 4096


class Rows(Protocol):
    """What a tensor of rows and a file of rows have in common."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, key: slice | Tensor) -> Tensor:
        """The rows of a range, or of a list of numbers."""


def chunks(rows: Rows, size: int = CHUNK) -> Iterator[tuple[slice, Tensor]]:
    """Consecutive parts, each with its range."""
    for start in range(0, len(rows), size):
        part = slice(start, min(start + size, len(rows)))
        yield part, rows[part]
