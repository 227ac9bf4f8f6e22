"""A whole step of training as one graph, for batches of structures that differ in nothing but their geometry.

Most of a step with a small network goes into the bookkeeping of two thousand calls and of their derivatives. For
batches of one shape it need not be done again: one step is recorded, with the forces, the loss and its gradient, and
then replayed by TorchScript. The numbers are those of the calls that were recorded.

All structures of a training set get the same shape by empty edges, longer than the cutoff, which contribute nothing:
every atom as many neighbours as it has anywhere, every structure as many pairs. So a batch is rows of a few tensors.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from adaptntk.models.family import Loss, Outputs, Step
from adaptntk.models.mace.graph import MACEGraph
from adaptntk.models.mace.layout import Layout, Slots
from adaptntk.models.mace.tape import forward_pass

# What a recorded step spares is about the time that so many more edges take.
_EDGES_SPARED = 300


def same_atoms(graphs: Sequence[MACEGraph]) -> bool:
    """Whether all are of the same elements in the same order."""
    return all(np.array_equal(graph.elements, graphs[0].elements) for graph in graphs)


class StackedGraphs:
    """Graphs of the same atoms, padded to one shape; for that a structure gets ``empty`` edges on average."""

    def __init__(self, graphs: Sequence[MACEGraph]) -> None:
        first = graphs[0]
        self.device, self.elements, self.node_attrs = first.positions.device, first.elements, first.node_attrs
        self.neighbours = np.max([graph.neighbours for graph in graphs], axis=0)
        self.widths = Layout(self.elements, np.zeros_like(self.elements), self.neighbours, 1, self.device).widths
        self.empty = float(self.widths.sum() - np.mean([graph.neighbours.sum() for graph in graphs]))
        self.pairs = 1 + max(graph.pairs.edge_index.shape[1] for graph in graphs)
        self.positions = torch.stack([graph.positions for graph in graphs])
        self.cells = torch.stack([graph.cell for graph in graphs])
        padded = [self._padded(graph) for graph in graphs]
        self.edge_index, self.unit_shifts, self.shifts = (torch.stack(parts) for parts in zip(*padded, strict=True))
        slots = np.stack([self._slots(graph) for graph in graphs])
        self.slots = torch.as_tensor(slots, device=self.device)

    def _padded(self, graph: MACEGraph) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs and their shifts, then as many empty ones as are missing: from the first atom to its distant self."""
        pairs = graph.pairs
        missing = self.pairs - pairs.edge_index.shape[1]
        unit = graph.beyond.expand(missing, 3)
        shifts = torch.cat([pairs.shifts, unit @ graph.cell])
        edges = torch.cat([pairs.edge_index, pairs.edge_index.new_zeros(2, missing)], dim=1)
        return edges, torch.cat([pairs.unit_shifts, unit]), shifts

    def _slots(self, graph: MACEGraph) -> np.ndarray:
        """Sender, pair and direction of what each slot holds, atom by atom; (3, slots)."""
        atoms = np.repeat(np.arange(len(graph)), self.widths)
        place = np.concatenate([np.arange(width) for width in self.widths])
        edge = (np.cumsum(graph.neighbours) - graph.neighbours)[atoms] + place
        filled = place < graph.neighbours[atoms]
        edge = np.where(filled, edge, 0)
        held = np.stack([graph.links[edge, 0], graph.pairs.of_edge[edge], graph.pairs.reversed[edge]])
        return np.where(filled, held, np.stack([atoms, np.full_like(atoms, self.pairs - 1), np.zeros_like(atoms)]))

    def layout(self, count: int) -> Layout:
        """Of a batch of so many; what its slots hold is not known yet."""
        of_atom = np.repeat(np.arange(count), len(self.elements))
        return Layout(np.tile(self.elements, count), of_atom, np.tile(self.neighbours, count), count, self.device)

    def order(self, layout: Layout) -> Tensor:
        """Where in the slots of the structures, one structure after the other, each slot of the batch is."""
        starts = np.cumsum(np.tile(self.widths, layout.graphs)) - np.tile(self.widths, layout.graphs)
        atoms = layout.by_width.rows
        places = [
            np.arange(start, start + width) for start, width in zip(starts[atoms], layout.widths[atoms], strict=True)
        ]
        return torch.as_tensor(np.concatenate(places), device=self.device)

    def batch(self, chosen: Tensor, order: Tensor, head: int) -> tuple[dict[str, Tensor], Slots]:
        """The dictionary that MACE takes, and the slots."""
        count, atoms = len(chosen), len(self.elements)
        ptr = torch.arange(0, (count + 1) * atoms, atoms, device=self.device)
        number = torch.arange(count, device=self.device)
        edges = self.edge_index.index_select(0, chosen) + atoms * number.view(-1, 1, 1)
        data = {
            "positions": self.positions.index_select(0, chosen).flatten(0, 1),
            "node_attrs": self.node_attrs.repeat(count, 1),
            "cell": self.cells.index_select(0, chosen).flatten(0, 1),
            "unit_shifts": self.unit_shifts.index_select(0, chosen).flatten(0, 1),
            "shifts": self.shifts.index_select(0, chosen).flatten(0, 1),
            "edge_index": edges.transpose(0, 1).flatten(1),
            "batch": number.repeat_interleave(atoms),
            "ptr": ptr,
            "head": torch.full((count,), head, device=self.device),
        }
        senders, pairs, turned = self.slots.index_select(0, chosen).unbind(1)
        senders = (senders + atoms * number.unsqueeze(1)).flatten().index_select(0, order)
        pairs = (pairs + self.pairs * number.unsqueeze(1)).flatten().index_select(0, order)
        directed = pairs + count * self.pairs * turned.flatten().index_select(0, order)
        return data, Slots(senders, pairs, directed, np.repeat(np.arange(count), self.pairs))


def capture(
    twin: Any,
    parameters: Sequence[Tensor],
    graphs: Sequence[MACEGraph],
    count: int,
    head: int,
    loss: Loss,
) -> Step | None:
    """A step with batches of ``count`` of these graphs: the loss, and its gradient over each parameter.

    Parameters are read each time, and so is the constant of the energy, which a training sets now and then; all else
    in the network is taken as it is now. None where the empty edges would take longer than what is spared.
    """
    stacked = StackedGraphs(graphs)
    if count * stacked.empty > _EDGES_SPARED:
        return None
    layout = stacked.layout(count)
    order = stacked.order(layout)
    used: list[bool] = []

    def step(chosen: Tensor, weight: Tensor, *stored: Tensor) -> list[Tensor]:
        data, layout.slots = stacked.batch(chosen, order, head)
        with torch.enable_grad(), forward_pass(layout, slopes=True):
            output = twin(data, training=True, compute_force=True)
            found = loss(Outputs(output["interaction_energy"], output["forces"]), chosen, weight)
            gradient = torch.autograd.grad(found, stored[: len(parameters)], allow_unused=True)
        used[:] = [part is not None for part in gradient]
        return [found.detach(), *(part for part in gradient if part is not None)]

    stored = *parameters, *twin.scale_shift.buffers()
    weight = torch.ones((), dtype=stacked.positions.dtype, device=stacked.device)
    inputs = torch.arange(count, device=stacked.device), weight, *stored
    step(*inputs)  # constants that are made when they are first needed must not become part of the record
    recorded = make_fx(step)(*inputs)
    recorded.graph.eliminate_dead_code()
    recorded.recompile()
    with torch.no_grad():
        graph = torch.jit.trace(lambda *given: tuple(recorded(*given)), inputs, check_trace=False)

    def replay(chosen: Tensor, weight: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        with torch.no_grad():
            value, *found = graph(chosen, weight, *stored)
        slopes = iter(found)
        return value, [next(slopes) if wanted else None for wanted in used]

    return replay
