"""Which atoms are near to one another, and which have flown away."""

from collections.abc import Sequence

import numpy as np
from ase import Atoms
from ase.data import covalent_radii
from ase.geometry import complete_cell, minkowski_reduce
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


def close_pairs(atoms: Atoms, cutoff: float) -> tuple[Indices, Indices, Array]:
    """Pairs of atoms within the cutoff, each in both directions, and their distances; periodic images included."""
    if atoms.pbc.any():
        first, second, _, distance = periodic_pairs(atoms.positions, np.asarray(atoms.cell), atoms.pbc, cutoff)
        return first, second, distance
    pairs = cKDTree(atoms.positions).query_pairs(cutoff, output_type="ndarray")
    distance = np.linalg.norm(atoms.positions[pairs[:, 0]] - atoms.positions[pairs[:, 1]], axis=1)
    first, second = np.concatenate([pairs, pairs[:, ::-1]]).T
    return first, second, np.concatenate([distance, distance])


def periodic_pairs(
    positions: Array, cell: Array, pbc: NDArray[np.bool_], cutoff: float
) -> tuple[Indices, Indices, Indices, Array]:
    """Pairs nearer than the cutoff, each in both directions: from, to, translation of the latter in cells, distance.

    What it costs depends on the atoms and their neighbours alone. Searches that divide the cell into boxes, as ase's
    does, take minutes for a molecule in a large one.
    """
    reduced, operation = reduced_cell(cell, pbc)
    inverse = np.linalg.inv(reduced)
    fractions = positions @ inverse
    home = np.where(pbc, np.floor(fractions), 0.0)
    fractions -= home
    images, owner, shifts = fractions, np.arange(len(positions)), np.zeros_like(fractions)
    for axis in np.flatnonzero(pbc):
        # The cutoff over the distance of two opposite faces; only images that near to the cell are made.
        reach = cutoff * np.linalg.norm(inverse[:, axis]) + 1e-9
        steps = np.arange(-np.ceil(reach), np.ceil(reach) + 1)
        places = images[:, axis, None] + steps
        image, step = np.nonzero((places >= -reach) & (places <= 1 + reach))
        images, owner, shifts = images[image], owner[image], shifts[image]
        images[:, axis] += steps[step]
        shifts[:, axis] += steps[step]
    inside, around = cKDTree(fractions @ reduced), cKDTree(images @ reduced)
    near = inside.sparse_distance_matrix(around, cutoff * (1 + 1e-9), output_type="ndarray")
    first, second = near["i"], owner[near["j"]]
    translations = (shifts[near["j"]] - home[second] + home[first]) @ operation
    distance = np.linalg.norm(positions[second] - positions[first] + translations @ cell, axis=1)
    kept = (distance < cutoff) & ((first != second) | translations.any(axis=1))
    return first[kept], second[kept], translations[kept].astype(np.int64), distance[kept]


def reduced_cell(cell: Array, pbc: NDArray[np.bool_]) -> tuple[Array, Array]:
    """The shortest vectors of the same lattice, unit vectors where it is not periodic; and what makes them of those."""
    complete = complete_cell(np.where(np.asarray(pbc)[:, None], cell, 0.0))
    return minkowski_reduce(complete, pbc)


def nearest_neighbours(atoms: Atoms, cutoff: float) -> tuple[Array, Indices]:
    """Distance and index of each atom's nearest neighbour; infinite, and no atom's index, beyond the cutoff."""
    nearest, partner = np.full(len(atoms), np.inf), np.full(len(atoms), -1)
    first, second, distance = close_pairs(atoms, cutoff)
    order = np.lexsort((distance, first))
    found, places = np.unique(first[order], return_index=True)
    nearest[found], partner[found] = distance[order][places], second[order][places]
    return nearest, partner


def lone_atoms(atoms: Atoms, cutoff: float) -> int:
    """How many atoms have no neighbour within the cutoff, periodic images and their own included."""
    places = atoms.positions
    if not np.isfinite(places).all():
        return 0
    alone = np.arange(len(atoms))
    if len(atoms) > 1:  # nearly always everybody has a neighbour in the cell, which is quick to see
        alone = np.flatnonzero(cKDTree(places).query(places, k=2)[0][:, 1] > cutoff)
    if not len(alone) or not atoms.pbc.any():
        return len(alone)
    # Where everybody sees everybody, an atom sees its image.
    return 0 if np.isinf(cutoff) else len(atoms) - len(np.unique(close_pairs(atoms, cutoff)[0]))


def lone_counts(structures: Sequence[Atoms], cutoff: float | None) -> Indices:
    """`lone_atoms` of each structure; without a cutoff, atoms of one structure are never alone."""
    return np.array([lone_atoms(atoms, np.inf if cutoff is None else cutoff) for atoms in structures], dtype=np.int64)


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
