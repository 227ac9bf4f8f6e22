"""Which atoms are near to one another, and which have flown away."""

import numpy as np
from ase import Atoms
from ase.data import covalent_radii
from ase.neighborlist import neighbor_list
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


def close_pairs(atoms: Atoms, cutoff: float) -> tuple[Indices, Indices, Array]:
    """Pairs of atoms within the cutoff, each in both directions, and their distances; periodic images included."""
    if atoms.pbc.any():
        first, second, distance = neighbor_list("ijd", atoms, cutoff)
        return first, second, distance
    pairs = cKDTree(atoms.positions).query_pairs(cutoff, output_type="ndarray")
    distance = np.linalg.norm(atoms.positions[pairs[:, 0]] - atoms.positions[pairs[:, 1]], axis=1)
    first, second = np.concatenate([pairs, pairs[:, ::-1]]).T
    return first, second, np.concatenate([distance, distance])


def nearest_neighbours(atoms: Atoms, cutoff: float) -> tuple[Array, Indices]:
    """Distance and index of each atom's nearest neighbour; infinite, and no atom's index, beyond the cutoff."""
    nearest, partner = np.full(len(atoms), np.inf), np.full(len(atoms), -1)
    first, second, distance = close_pairs(atoms, cutoff)
    order = np.lexsort((distance, first))
    found, places = np.unique(first[order], return_index=True)
    nearest[found], partner[found] = distance[order][places], second[order][places]
    return nearest, partner


def fused_atoms(atoms: Atoms, fraction: float) -> str | None:
    """The first two atoms nearer than that fraction of the sum of their covalent radii, in words; None without any."""
    radii = covalent_radii[atoms.numbers]
    first, second, distance = close_pairs(atoms, 2 * fraction * float(radii.max()))
    near = np.flatnonzero(distance < fraction * (radii[first] + radii[second]))
    if not len(near):
        return None
    one, other = (f"{atoms.symbols[ends[near[0]]]}{ends[near[0]]}" for ends in (first, second))
    return f"{one} and {other} are {distance[near[0]]:.2f} Å apart"


def fragments(atoms: Atoms, distance: float) -> tuple[int, Indices]:
    """How many groups of atoms there are with no neighbour within ``distance`` outside, and the group of each atom."""
    first, second, _ = close_pairs(atoms, distance)
    links = coo_array((np.ones(len(first)), (first, second)), shape=(len(atoms), len(atoms)))
    return connected_components(links, directed=False)
