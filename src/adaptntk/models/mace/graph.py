"""Structures as MACE sees them: atoms and edges between neighbours, alone and side by side in a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from ase import Atoms
from scipy.spatial import cKDTree
from torch import Tensor

from adaptntk.models.mace.layout import Layout
from adaptntk.models.mace.stock import get_neighborhood

# A ZBL repulsion reaches as far as two covalent radii, 5.2 Å at most, whatever the cutoff.
_LONGEST_PAIR = 6.0


@dataclass(frozen=True)
class MACEGraph:
    """One structure as MACE sees it, on the potential's device; edges sorted by the atom that receives them.

    On the host: ``elements`` (index of each atom's element), ``neighbours`` (edges each atom receives), and
    ``beyond``, a translation of the lattice longer than the cutoff: an edge so long contributes nothing, and stands
    where a batch needs an empty one.
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

    def __len__(self) -> int:
        return len(self.elements)

    @property
    def edges(self) -> int:
        return self.edge_index.shape[1]


def make_graph(
    atoms: Atoms, cutoff: float, element_index: dict[int, int], dtype: torch.dtype, device: torch.device
) -> MACEGraph:
    """The graph of a structure; ``element_index`` says which of the network's elements an atomic number is."""
    positions, edge_index, shifts, unit_shifts, cell = _neighbours(atoms, cutoff)
    elements = np.array([element_index[number] for number in atoms.numbers.tolist()])
    order = np.argsort(edge_index[1], kind="stable")

    to_tensor = partial(torch.as_tensor, dtype=dtype, device=device)
    return MACEGraph(
        positions=to_tensor(positions),
        node_attrs=to_tensor(np.eye(len(element_index))[elements]),
        edge_index=torch.as_tensor(edge_index[:, order], dtype=torch.int64, device=device),
        shifts=to_tensor(shifts[order]),
        unit_shifts=to_tensor(unit_shifts[order]),
        cell=to_tensor(cell),
        elements=elements,
        neighbours=np.bincount(edge_index[1], minlength=len(atoms)),
        beyond=to_tensor(_translation_beyond(cell, max(cutoff, _LONGEST_PAIR))),
    )


def make_batch(graphs: Sequence[MACEGraph], head: int, layout: Layout | None = None) -> dict[str, Tensor]:
    """The dictionary that a MACE network takes: graphs side by side, atoms numbered through.

    With a layout, edges come in its order, padded with empty ones.
    """
    device = graphs[0].positions.device
    sizes = np.array([len(graph) for graph in graphs])
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    first_atom = torch.as_tensor(np.repeat(ptr[:-1], [graph.edges for graph in graphs]), device=device)
    edge_index = torch.cat([graph.edge_index for graph in graphs], dim=1) + first_atom
    unit_shifts = torch.cat([graph.unit_shifts for graph in graphs])
    shifts = torch.cat([graph.shifts for graph in graphs])
    cell = torch.cat([graph.cell for graph in graphs])
    graph_of_atom = torch.as_tensor(np.repeat(np.arange(len(graphs)), sizes), device=device)
    if layout is not None:
        itself = torch.arange(int(ptr[-1]), device=device)
        beyond = torch.stack([graph.beyond for graph in graphs])
        far = (beyond.unsqueeze(1) @ cell.view(-1, 3, 3)).squeeze(1)
        slots = layout.padded_edges
        edge_index = torch.cat([edge_index, itself.expand(2, -1)], dim=1).index_select(1, slots)
        unit_shifts = torch.cat([unit_shifts, beyond[graph_of_atom]]).index_select(0, slots)
        shifts = torch.cat([shifts, far[graph_of_atom]]).index_select(0, slots)
    return {
        "positions": torch.cat([graph.positions for graph in graphs]),
        "node_attrs": torch.cat([graph.node_attrs for graph in graphs]),
        "edge_index": edge_index,
        "unit_shifts": unit_shifts,
        "shifts": shifts,
        "cell": cell,
        "batch": graph_of_atom,
        "ptr": torch.as_tensor(ptr, device=device),
        "head": torch.full((len(graphs),), head, device=device),
    }


def make_layout(graphs: Sequence[MACEGraph]) -> Layout:
    """In which order the fast twin wants the atoms and edges of a batch."""
    return Layout(
        np.concatenate([graph.elements for graph in graphs]),
        np.repeat(np.arange(len(graphs)), [len(graph) for graph in graphs]),
        np.concatenate([graph.neighbours for graph in graphs]),
        len(graphs),
        graphs[0].positions.device,
    )


def mean_neighbours(structures: Sequence[Atoms], cutoff: float) -> float:
    """Neighbours per atom, by which MACE normalises its messages."""
    edges = sum(_neighbours(atoms, cutoff)[1].shape[1] for atoms in structures)
    return max(1.0, edges / sum(len(atoms) for atoms in structures))


def _neighbours(atoms: Atoms, cutoff: float) -> tuple[np.ndarray, ...]:
    """Positions, edges, shifts in Å and in cells, and the cell."""
    positions = np.array(atoms.positions)
    if not atoms.pbc.any():
        # MACE encloses an open system in a box as large as its distance from the origin.
        positions -= positions.mean(axis=0)
        return positions, *_open_neighbours(positions, cutoff)
    periodic = tuple(bool(direction) for direction in atoms.pbc)
    return positions, *get_neighborhood(positions, cutoff, periodic, np.array(atoms.cell))


def _open_neighbours(positions: np.ndarray, cutoff: float) -> tuple[np.ndarray, ...]:
    """Edges of a system without periodic images, as `get_neighborhood` gives them.

    MACE's search divides a box around all atoms into cells: an atom that has flown 100 Å away makes it take a second,
    one at 1,000 Å gigabytes.
    """
    pairs = cKDTree(positions).query_pairs(cutoff, output_type="ndarray").T
    edge_index = np.concatenate([pairs, pairs[::-1]], axis=1).astype(np.int64)
    nowhere = np.zeros((edge_index.shape[1], 3))
    box = np.eye(3) * (np.abs(positions).max() + 1) * 5 * cutoff
    return edge_index, nowhere, nowhere, box


def _translation_beyond(cell: np.ndarray, cutoff: float) -> np.ndarray:
    """A whole multiple of a lattice vector, longer than the cutoff."""
    lengths = np.linalg.norm(cell, axis=1)
    axis = int(np.argmin(lengths))
    translation = np.zeros(3)
    translation[axis] = np.floor(cutoff / lengths[axis]) + 1
    return translation
