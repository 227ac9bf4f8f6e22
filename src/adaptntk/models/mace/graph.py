"""Structures as MACE sees them: atoms and edges between neighbours, alone and side by side in a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from ase import Atoms
from scipy.spatial import cKDTree
from torch import Tensor

from adaptntk.data.geometry import periodic_pairs
from adaptntk.models.mace.layout import Layout, Slots
from adaptntk.models.mace.stock import get_neighborhood

# A ZBL repulsion reaches as far as two covalent radii, 5.2 Å at most, whatever the cutoff.
_LONGEST_PAIR = 6.0
# What MACE's search cannot do: more boxes, as large as the cutoff, take too long; axes must not lie in a plane.
_MOST_BOXES, _FLAT = 1e6, 1e-4


@dataclass(frozen=True)
class MACEGraph:
    """One structure as MACE sees it, on the potential's device; edges sorted by the atom that receives them.

    On the host: ``elements`` (index of each atom's element), ``neighbours`` (edges each atom receives) and ``links``
    (sender, receiver and shift in cells of each edge). ``beyond`` is a translation of the lattice longer than the
    cutoff: an edge so long contributes nothing, and stands where a batch needs an empty one.
    """

    positions: Tensor
    node_attrs: Tensor
    edge_index: Tensor
    shifts: Tensor
    unit_shifts: Tensor
    cell: Tensor
    elements: np.ndarray
    neighbours: np.ndarray
    beyond: Tensor
    links: np.ndarray

    def __len__(self) -> int:
        return len(self.elements)

    @property
    def edges(self) -> int:
        return self.edge_index.shape[1]

    @cached_property
    def pairs(self) -> "Pairs":
        """Edges without those that are others in the opposite direction."""
        opposite = np.concatenate([self.links[:, 1::-1], -self.links[:, 2:]], axis=1)
        order, order_of_opposite = np.lexsort(self.links.T), np.lexsort(opposite.T)
        edges = np.arange(self.edges)
        partner = edges.copy()
        # Not so if an edge is as long as the cutoff to all digits but the last.
        if np.array_equal(self.links[order], opposite[order_of_opposite]):
            partner[order] = order_of_opposite
        first, pair = np.unique(np.minimum(edges, partner), return_inverse=True)
        index = torch.as_tensor(first, device=self.positions.device)
        shifts = self.shifts.index_select(0, index), self.unit_shifts.index_select(0, index)
        return Pairs(self.edge_index.index_select(1, index), *shifts, pair, partner < edges)


class Pairs(NamedTuple):
    """The first edge of each pair of opposite edges; for each edge its pair, and whether it is the other one."""

    edge_index: Tensor
    shifts: Tensor
    unit_shifts: Tensor
    of_edge: np.ndarray
    reversed: np.ndarray


def make_graph(
    atoms: Atoms, cutoff: float, element_index: dict[int, int], dtype: torch.dtype, device: torch.device
) -> MACEGraph:
    """The graph of a structure; ``element_index`` says which of the network's elements an atomic number is."""
    positions, edge_index, shifts, unit_shifts, cell = _neighbours(atoms, cutoff)
    elements = np.array([element_index[number] for number in atoms.numbers.tolist()])
    order = np.argsort(edge_index[1], kind="stable")
    lengths = np.linalg.norm(cell, axis=1)
    translations = np.floor(max(cutoff, _LONGEST_PAIR) / lengths) + 1
    # Copies: memory of numpy begins anywhere, and where it begins decides the last bit of sums over it.
    to_tensor = partial(torch.tensor, dtype=dtype, device=device)
    return MACEGraph(
        positions=to_tensor(positions),
        node_attrs=to_tensor(np.eye(len(element_index))[elements]),
        edge_index=torch.as_tensor(edge_index[:, order], dtype=torch.int64, device=device),
        shifts=to_tensor(shifts[order]),
        unit_shifts=to_tensor(unit_shifts[order]),
        cell=to_tensor(cell),
        elements=elements,
        neighbours=np.bincount(edge_index[1], minlength=len(atoms)),
        beyond=to_tensor(np.where(np.arange(3) == np.argmin(lengths), translations, 0.0)),
        links=np.concatenate([edge_index.T, np.rint(unit_shifts)], axis=1).astype(np.int64)[order],
    )


def make_batch(graphs: Sequence[MACEGraph], head: int, layout: Layout | None = None) -> dict[str, Tensor]:
    """The dictionary that a MACE network takes: graphs side by side, atoms numbered through.

    With a layout, edges come in its order, padded with empty ones; or pairs, and an empty one for each graph.
    """
    device = graphs[0].positions.device
    sizes = np.array([len(graph) for graph in graphs])
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    paired = layout is not None and layout.slots is not None
    sources: list[Any] = [graph.pairs if paired else graph for graph in graphs]
    first_atom = np.repeat(ptr[:-1], [source.edge_index.shape[1] for source in sources])
    batch = {
        name: torch.cat([getattr(graph, name) for graph in graphs]) for name in ("positions", "node_attrs", "cell")
    }
    batch |= {name: torch.cat([getattr(source, name) for source in sources]) for name in ("unit_shifts", "shifts")}
    edge_index = torch.cat([source.edge_index for source in sources], dim=1)
    batch["edge_index"] = edge_index + torch.as_tensor(first_atom, device=device)
    batch["batch"] = torch.as_tensor(np.repeat(np.arange(len(graphs)), sizes), device=device)
    batch["ptr"] = torch.as_tensor(ptr, device=device)
    batch["head"] = torch.full((len(graphs),), head, device=device)
    if layout is not None:
        beyond = torch.stack([graph.beyond for graph in graphs])
        far = (beyond.unsqueeze(1) @ batch["cell"].view(-1, 3, 3)).squeeze(1)
        itself = batch["ptr"][:-1] if paired else torch.arange(int(ptr[-1]), device=device)
        batch["edge_index"] = torch.cat([batch["edge_index"], itself.expand(2, -1)], dim=1)
        for name, translation in (("unit_shifts", beyond), ("shifts", far)):
            batch[name] = torch.cat([batch[name], translation if paired else translation[batch["batch"]]])
        if not paired:
            slots = torch.as_tensor(layout.padded_edges, device=device)
            batch["edge_index"] = batch["edge_index"].index_select(1, slots)
            for name in ("unit_shifts", "shifts"):
                batch[name] = batch[name].index_select(0, slots)
    return batch


def make_layout(graphs: Sequence[MACEGraph], paired: bool) -> Layout:
    """In which order the fast twin wants the atoms and edges of a batch; functions of edges by pair, or by edge."""
    elements, neighbours = (np.concatenate([getattr(g, name) for g in graphs]) for name in ("elements", "neighbours"))
    graph_of_atom = np.repeat(np.arange(len(graphs)), [len(graph) for graph in graphs])
    layout = Layout(elements, graph_of_atom, neighbours, len(graphs), graphs[0].positions.device)
    if paired:
        layout.slots = _slots(graphs, layout)
    return layout


def _slots(graphs: Sequence[MACEGraph], layout: Layout) -> Slots:
    atoms, pairs = 0, 0
    senders, numbers = [], []
    for graph in graphs:
        senders.append(graph.links[:, 0] + atoms)
        numbers.append(graph.pairs.of_edge + pairs)
        atoms, pairs = atoms + len(graph), pairs + graph.pairs.edge_index.shape[1]
    everyone = pairs + len(graphs)
    opposite = [graph.pairs.reversed for graph in graphs]
    # After the edges the empty ones of the atoms, all of a graph's the same pair.
    of_edge = np.concatenate([*numbers, pairs + layout.graph_of_atom])
    directed = of_edge + everyone * np.concatenate([*opposite, np.zeros(atoms, dtype=bool)])
    sender = np.concatenate([*senders, np.arange(atoms)])
    padded = np.stack([sender, of_edge, directed])[:, layout.padded_edges]
    counts = [graph.pairs.edge_index.shape[1] for graph in graphs]
    of_pair = np.concatenate([np.repeat(np.arange(len(graphs)), counts), np.arange(len(graphs))])
    senders, numbered, turned = torch.as_tensor(padded, device=layout.device)
    return Slots(senders, numbered, turned, of_pair)


def mean_neighbours(structures: Sequence[Atoms], cutoff: float) -> float:
    """Neighbours per atom, by which MACE normalises its messages."""
    edges = sum(_neighbours(atoms, cutoff)[1].shape[1] for atoms in structures)
    return max(1.0, edges / sum(len(atoms) for atoms in structures))


def _neighbours(atoms: Atoms, cutoff: float) -> tuple[np.ndarray, ...]:
    """Positions, edges, shifts in Å and in cells, and the cell.

    MACE's search divides the cell, or a box around all atoms of an open system, into boxes: an atom that flew 100 Å
    away makes it take a second, one at 1,000 Å gigabytes. So open systems and large cells have a search of their own.
    """
    positions = np.array(atoms.positions)
    if atoms.pbc.any():
        # As MACE has it where the structure is not periodic.
        far = (np.abs(positions).max() + 1) * 5 * cutoff
        cell = np.where(atoms.pbc[:, None], atoms.cell, np.eye(3) * far)
        volume = abs(np.linalg.det(cell))
        flat = volume < _FLAT * np.prod(np.linalg.norm(cell, axis=1))
        if not flat and volume / cutoff**3 < _MOST_BOXES:
            periodic = tuple(bool(direction) for direction in atoms.pbc)
            return positions, *get_neighborhood(positions, cutoff, periodic, np.array(atoms.cell))
        first, second, unit_shifts, _ = periodic_pairs(positions, cell, atoms.pbc, cutoff)
        return positions, np.stack([first, second]), unit_shifts @ cell, unit_shifts, cell
    # MACE's box is as large as the distance from the origin.
    positions -= positions.mean(axis=0)
    pairs = cKDTree(positions).query_pairs(cutoff, output_type="ndarray").T
    edge_index = np.concatenate([pairs, pairs[::-1]], axis=1).astype(np.int64)
    nowhere = np.zeros((edge_index.shape[1], 3))
    return positions, edge_index, nowhere, nowhere, np.eye(3) * (np.abs(positions).max() + 1) * 5 * cutoff
