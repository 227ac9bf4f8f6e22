"""In which order the atoms and edges of a batch are stored, so that sums over them become matrix products.

Edges are sorted by the atom that receives them and padded to a few common numbers of neighbours: the messages
of all atoms with that many neighbours are then one batched product. Atoms are sorted by element where weights
depend on the element. All of it is decided on the host from the graphs, without waiting for a device.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Integers = NDArray[np.int64]

# Padding every atom to the largest number of neighbours wastes a third of a molecule's edges; each further width
# costs a call per path. So as few as keep the waste tolerable.
_MOST_WIDTHS = 4
_TOLERATED_WASTE = 0.2


class Order:
    """A permutation of rows that puts equal labels together: ``sizes`` rows of each of the ``values``."""

    def __init__(self, labels: Integers, device: torch.device) -> None:
        counts = np.bincount(labels)
        self.values: list[int] = np.flatnonzero(counts).tolist()
        self.sizes: list[int] = counts[self.values].tolist()
        self.trivial = bool((labels[:-1] <= labels[1:]).all())
        self.rows = np.arange(len(labels)) if self.trivial else np.argsort(labels, kind="stable")
        indices = () if self.trivial else (self.rows, np.argsort(self.rows))
        self.indices = [torch.as_tensor(index, device=device) for index in indices]

    def sort(self, rows: Tensor) -> Tensor:
        """Rows with equal labels together."""
        return rows if self.trivial else rows.index_select(0, self.indices[0])

    def restore(self, rows: Tensor) -> Tensor:
        """The inverse of `sort`."""
        return rows if self.trivial else rows.index_select(0, self.indices[1])


class Groups:
    """Rows collected by group and padded to equal numbers: sums over a group become a matrix product.

    ``labels`` says the group of each row; of ``count`` groups some may be empty.
    """

    def __init__(self, labels: Integers, count: int, device: torch.device) -> None:
        order = np.argsort(labels, kind="stable")
        sizes = np.bincount(labels, minlength=count)
        filled = np.arange(sizes.max(initial=1)) < sizes[:, None]
        index = np.zeros(filled.shape, dtype=np.int64)
        index[filled] = order
        self.whole = bool(filled.all())
        self.in_place = self.whole and bool((order[:-1] < order[1:]).all())
        self._index = torch.as_tensor(index.ravel(), device=device)
        self._filled = torch.as_tensor(filled, device=device)

    def collect(self, rows: Tensor) -> Tensor:
        """(rows, ...) to (groups, width, ...), with zeros where a group has fewer rows."""
        shape = self._filled.shape
        collected = rows if self.in_place else rows.index_select(0, self._index)
        collected = collected.reshape(*shape, *rows.shape[1:])
        if self.whole:
            return collected
        # Not by multiplication: a structure with NaN must not spoil others through their padding.
        return torch.where(self._filled.reshape(*shape, *[1] * (rows.ndim - 1)), collected, 0.0)


class Slots(NamedTuple):
    """What the slots for edges hold, where functions of the edges are computed once for both directions of a pair."""

    senders: Tensor
    pairs: Tensor
    directed: Tensor
    """The pair, or beyond all pairs the same one in its other direction."""
    graph_of_pair: Integers


@dataclass
class Layout:
    """The order of one batch.

    ``width_groups`` are (atoms, neighbours) of each group of atoms that are padded to the same number of neighbours,
    in the order of the edges, and ``by_width`` is the order of the atoms in them.
    """

    elements: Integers  # index of each atom's element in the network's list
    graph_of_atom: Integers
    neighbours: Integers  # how many edges each atom receives
    graphs: int
    device: torch.device
    slots: Slots | None = None

    def __post_init__(self) -> None:
        labels = self.elements, np.zeros_like(self.elements), self.widths
        self._by_element, self._alike, self.by_width = (Order(of_atoms, self.device) for of_atoms in labels)
        self.width_groups = list(zip(self.by_width.sizes, self.by_width.values, strict=True))

    def order(self, elements: int) -> Order:
        """Atoms by element or, for weights that know one element only, as if all were alike."""
        return self._by_element if elements > 1 else self._alike

    def groups(self, elements: int, element: int = 0) -> Groups:
        """The atoms of one element, as `order` sorts them, by structure."""
        return self._graphs_of_element[element] if elements > 1 else self._atoms_of_graph

    @cached_property
    def _atoms_of_graph(self) -> Groups:
        return Groups(self.graph_of_atom, self.graphs, self.device)

    @cached_property
    def _graphs_of_element(self) -> dict[int, Groups]:
        of_element = {element: self.graph_of_atom[self.elements == element] for element in self._by_element.values}
        return {element: Groups(labels, self.graphs, self.device) for element, labels in of_element.items()}

    @cached_property
    def widths(self) -> Integers:
        """The number of neighbours to which each atom's edges are padded."""
        wanted = np.maximum(self.neighbours, 1)
        for bins in range(1, _MOST_WIDTHS + 1):
            step = -(-(int(wanted.max()) - int(wanted.min()) + 1) // bins)
            number = (wanted - wanted.min()) // step
            largest = np.zeros(int(number.max()) + 1, dtype=np.int64)
            np.maximum.at(largest, number, wanted)
            widths = largest[number]
            if widths.sum() <= (1 + _TOLERATED_WASTE) * wanted.sum():
                break
        return widths

    @cached_property
    def _receivers(self) -> Integers:
        """The atom of each slot for an edge."""
        order = self.by_width.rows
        return np.repeat(order, self.widths[order])

    @cached_property
    def padded_edges(self) -> Integers:
        """For each slot the edge it holds; slot filled by number ``edges + i`` is the empty one of atom i."""
        atoms = self._receivers
        slot = np.concatenate([np.tile(np.arange(width), count) for count, width in self.width_groups])
        edge = (np.cumsum(self.neighbours) - self.neighbours)[atoms] + slot
        return np.where(slot < self.neighbours[atoms], edge, self.neighbours.sum() + atoms)

    @cached_property
    def edges_of_graph(self) -> Groups:
        """Pairs or padded edges by structure; the empty ones carry zeros anyway."""
        labels = self.graph_of_atom[self._receivers] if self.slots is None else self.slots.graph_of_pair
        return Groups(labels, self.graphs, self.device)
