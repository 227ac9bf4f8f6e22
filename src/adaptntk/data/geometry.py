"""Which atoms are too near to one another, and which have flown away."""

import numpy as np
from ase import Atoms
from ase.data import covalent_radii
from ase.neighborlist import neighbor_list
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

Array = NDArray[np.float64]


def fused_pair(atoms: Atoms, fraction: float) -> tuple[int, int, float] | None:
    """The first pair of atoms nearer than that fraction of the sum of their covalent radii, and its distance."""
    radii = covalent_radii[atoms.numbers]
    first, second, distance = _pairs(atoms, 2 * fraction * float(radii.max()))
    near = np.flatnonzero(distance < fraction * (radii[first] + radii[second]))
    if not len(near):
        return None
    return int(first[near[0]]), int(second[near[0]]), float(distance[near[0]])


def fragments(atoms: Atoms, distance: float) -> tuple[int, NDArray[np.int64]]:
    """How many groups of atoms there are with no neighbour within ``distance`` outside, and the group of each atom."""
    first, second, _ = _pairs(atoms, distance)
    links = coo_array((np.ones(len(first)), (first, second)), shape=(len(atoms), len(atoms)))
    return connected_components(links, directed=False)


def _pairs(atoms: Atoms, cutoff: float) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """Pairs of atoms within the cutoff, periodic images included."""
    if atoms.pbc.any():
        first, second, distance = neighbor_list("ijd", atoms, cutoff)
        return first, second, distance
    pairs = cKDTree(atoms.positions).query_pairs(cutoff, output_type="ndarray")
    first, second = pairs[:, 0], pairs[:, 1]
    return first, second, np.linalg.norm(atoms.positions[first] - atoms.positions[second], axis=1)
