"""The features of structures: a block of rows for each, in memory or in a file, read a part at a time.

A label brings more than one number, so a structure has more than one row: its energy and, for some feature maps, forces
along directions. The ``asked`` rows, which come first, are the question that a score answers: the score of a structure
is the sum of their variances. All rows of a block are learnt when the structure is labelled.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from adaptntk.errors import InputError
from adaptntk.representation import short_repr

# Rows are worked on in parts of about so many bytes: few enough to stay in the processor's cache.
_CHUNK_BYTES = 4 * 2**20


class Blocks(Protocol):
    """What blocks in memory and blocks in a file have in common."""

    @property
    def asked(self) -> int:
        """Leading rows of each block whose variances add up to the score."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Structures, rows of each, width of the rows."""

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: slice | Tensor) -> Tensor:
        """The blocks of a range, or of a list of numbers: (structures, rows, width)."""


@short_repr
@dataclass(frozen=True)
class TensorBlocks(Blocks):
    """Blocks in memory."""

    tensor: Tensor
    asked: int = 1

    def __post_init__(self) -> None:
        if self.tensor.ndim != 3 or not 1 <= self.asked <= self.tensor.shape[1]:
            shape = tuple(self.tensor.shape)
            raise InputError(f"features must be blocks of at least {self.asked} rows, not an array of shape {shape}")

    @property
    def shape(self) -> tuple[int, int, int]:
        structures, rows, width = self.tensor.shape
        return structures, rows, width

    def __getitem__(self, key: slice | Tensor) -> Tensor:
        return self.tensor[key]


def as_blocks(features: Tensor | Blocks) -> Blocks:
    """Blocks as they are; a matrix is one row for each structure."""
    if not isinstance(features, Tensor):
        return features
    if features.ndim not in (2, 3):
        raise InputError(f"features must be rows or blocks of rows, not an array of shape {tuple(features.shape)}")
    return TensorBlocks(features if features.ndim == 3 else features[:, None])


def join(first: Blocks, second: Tensor) -> TensorBlocks:
    """Blocks of two lists of structures, one after the other."""
    return TensorBlocks(torch.cat([first[:], second.to(first[:0].dtype)]), first.asked)


def all_rows(features: Tensor | Blocks) -> Tensor:
    """Every row of every block: (structures x rows, width)."""
    if isinstance(features, Tensor) and features.ndim == 2:
        return features
    blocks = as_blocks(features)
    return blocks[:].reshape(-1, blocks.shape[2])


def asked_rows(block: Tensor, asked: int) -> Tensor:
    """The rows of a tensor of blocks that are asked about: (structures x asked, width)."""
    return block[:, :asked].reshape(-1, block.shape[2])


def chunk_size(blocks: Blocks) -> int:
    """How many structures are worked on together."""
    return max(1, _CHUNK_BYTES // (8 * max(1, blocks.shape[1] * blocks.shape[2])))


def chunks(blocks: Blocks) -> Iterator[tuple[slice, Tensor]]:
    """Consecutive parts, each with its range."""
    size = chunk_size(blocks)
    for start in range(0, len(blocks), size):
        part = slice(start, min(start + size, len(blocks)))
        yield part, blocks[part]


def sum_over_asked(blocks: Blocks, per_row: Callable[[Tensor], Tensor]) -> Tensor:
    """One number per structure: what ``per_row`` says of its asked rows, summed."""
    # Into one tensor made before: small results between large temporaries would keep the memory of those in pieces.
    result = per_row(blocks[:0].reshape(0, blocks.shape[2])).new_empty(len(blocks))
    for place, part in chunks(blocks):
        result[place] = per_row(asked_rows(part, blocks.asked)).view(len(part), blocks.asked).sum(1)
    return result
