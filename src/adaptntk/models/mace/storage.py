"""How features of atoms lie in memory, and products over their channels."""

from itertools import groupby
from typing import Any

import torch
from torch import Tensor


class Storage:
    """How features of given irreps lie in a row: runs of equal irreps, channels first (e3nn) or last.

    e3nn stores a run of equal irreps as if it were one with more channels.
    """

    def __init__(self, irreps: Any, last: bool) -> None:
        self.last = last
        self.shapes = merged_irreps(irreps)
        self.sizes = [mul * dim for mul, dim in self.shapes]

    def split(self, rows: Tensor) -> list[Tensor]:
        """(atoms, flat) to (atoms, components, channels) for each run."""
        parts = rows.split(self.sizes, dim=1) if len(self.sizes) > 1 else (rows,)
        if self.last:
            return [part.view(-1, dim, mul) for part, (mul, dim) in zip(parts, self.shapes, strict=True)]
        return [part.view(-1, mul, dim).transpose(1, 2) for part, (mul, dim) in zip(parts, self.shapes, strict=True)]

    def join(self, parts: list[Tensor]) -> Tensor:
        """The inverse of `split`."""
        flat = [(part if self.last else part.transpose(1, 2)).flatten(1) for part in parts]
        return flat[0] if len(flat) == 1 else torch.cat(flat, dim=1)


def merged_irreps(irreps: Any) -> list[tuple[int, int]]:
    """(multiplicity, components) of each run of equal irreps."""
    return [(sum(mul for mul, _ in run), ir.dim) for ir, run in groupby(irreps, key=lambda entry: entry[1])]


def mix_channels(x: Tensor, weight: Tensor) -> Tensor:
    """(atoms, components, channels) times a matrix over the channels, as one plain product."""
    return (x.reshape(-1, x.shape[2]) @ weight).view(x.shape[0], x.shape[1], weight.shape[1])
