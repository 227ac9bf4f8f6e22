"""How far two structures are apart, as the typical move of an atom in Å; and sets without near copies.

Atoms that keep their numbers are compared by the distances of near pairs. Two atoms that move by ``s`` in every
coordinate change their distance by ``sqrt(2) s``; so the root mean square over pairs, divided by ``sqrt(2)``, is ``s``
for two atoms as for five hundred. Turning, shifting or wrapping a structure changes no distance.

Where atoms are renumbered, those with like surroundings are matched: each atom has the sorted distances to its
neighbours of each element. Sorting forgets who is who: in two moments of a hot crystal surroundings differ four times
less than the atoms have moved, in a molecule twice. Hence a factor: a renumbered structure is a copy only if it is that
near. A strain of the cell moves neighbours little against one another, but all of them alike: it counts by how far it
moves atoms at a distance of 20 Å.
"""

from functools import cached_property

import numpy as np
from ase import Atoms
from ase.neighborlist import neighbor_list
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from adaptntk.data.geometry import close_pairs

Array = NDArray[np.float64]
Rows = NDArray[np.float32]

CUTOFF = 5.0  # Å: neighbours in periodic and in large structures
SMALL = 300  # atoms: in molecules up to this size all pairs are near
MOST_PAIRS = 2000  # so many tell the typical move
COLUMNS = 48  # at most so many distances per atom, shared out among the elements
PROBES = 32  # atoms whose surroundings are looked for first
SORTED, SORTED_MOLECULE = 4.0, 2.0
REACH = 20.0  # Å: a strain moves atoms by its product with this


def structure_distance(first: Atoms, second: Atoms) -> float:
    """How far the atoms of two structures are apart, Å: the typical move along one coordinate; infinite where the
    structures do not have the same atoms. The same after rotation, translation and wrapping; a renumbered copy has the
    distance 0, and what is near to it is told at least as far as it is. Mirror images do not differ.
    """
    kept = Distinct(0.0)
    kept.add(first)
    return float(kept.distances(second).min(initial=np.inf))


class Distinct:
    """Structures of which no two are nearer than ``min_distance``, Å, by `structure_distance`."""

    def __init__(self, min_distance: float) -> None:
        self.min_distance = min_distance
        self._kept: dict[bytes, _Alike] = {}  # by composition

    def add(self, atoms: Atoms) -> bool:
        """Whether it is taken: nothing like it is there."""
        new = _Portrait(atoms)
        if self.min_distance > 0 and (self._distances(new) < self.min_distance).any():
            return False
        if new.composition not in self._kept:
            self._kept[new.composition] = _Alike(new)
        self._kept[new.composition].append(new)
        return True

    def distances(self, atoms: Atoms) -> Array:
        """From those kept of the same composition; exact below ``min_distance`` only, where there is one."""
        return self._distances(_Portrait(atoms))

    def _distances(self, new: "_Portrait") -> Array:
        alike = self._kept.get(new.composition)
        return np.empty(0) if alike is None else alike.distances(new, self.min_distance or np.inf)


class _Portrait:
    """A structure and what is compared of it, computed when it is needed."""

    def __init__(self, atoms: Atoms) -> None:
        self.atoms = atoms
        self.order = atoms.numbers.tobytes()
        self.composition = np.sort(atoms.numbers).tobytes() + atoms.pbc.tobytes()

    @cached_property
    def surroundings(self) -> Array:
        return _surroundings(self.atoms)

    @cached_property
    def cell(self) -> Array:
        """What a strain changes: logarithms of the lengths of the periodic vectors, and cosines of their angles."""
        vectors = np.asarray(self.atoms.cell)[self.atoms.pbc]
        lengths = np.linalg.norm(vectors, axis=1)
        angles = (vectors @ vectors.T / np.outer(lengths, lengths))[np.triu_indices(len(lengths), 1)]
        return np.concatenate([np.sort(np.log(lengths)), np.sort(np.abs(angles))])


class _Alike:
    """Structures of one composition."""

    def __init__(self, first: _Portrait) -> None:
        self.elements = np.sort(first.atoms.numbers)
        self.factor = SORTED if first.atoms.pbc.any() else SORTED_MOLECULE
        self.orders: dict[bytes, _Order] = {}
        self.surroundings = _Growing()
        self.centre = first.surroundings.mean(axis=0)
        self.cells: list[Array] = []
        self.neighbours: list[int] = []

    def append(self, new: _Portrait) -> None:
        self.cells.append(new.cell)
        if new.order not in self.orders:
            self.orders[new.order] = _Order(new.atoms)
        self.orders[new.order].append(new.atoms, len(self.neighbours))
        self.surroundings.append((new.surroundings - self.centre).astype(np.float32))
        self.neighbours.append(_neighbours(new.surroundings))

    def distances(self, new: _Portrait, limit: float) -> Array:
        found = np.full(len(self.neighbours), np.inf)
        order = self.orders.get(new.order)
        if order is not None:
            found[order.places] = order.distances(new.atoms)
        strained = REACH * np.abs(np.array(self.cells) - new.cell).max(axis=1, initial=0.0)
        if limit == np.inf or not (np.maximum(found, strained) < limit).any():  # else it is known what becomes of it
            found = np.minimum(found, self._renumbered(new.surroundings, limit))
        return np.maximum(found, strained)

    def _renumbered(self, rows: Array, limit: float) -> Array:
        found = np.full(len(self.neighbours), np.inf)
        near = self._scale(rows, PROBES) * self._nearest(rows) < 1.25 * (limit / self.factor) ** 2
        for place in np.flatnonzero(near):
            moved, others = 0.0, self.surroundings.all[place] + self.centre
            for element in np.unique(self.elements):
                own = self.elements == element
                costs = cdist(rows[own], others[own], "sqeuclidean")
                moved += costs[linear_sum_assignment(costs)].sum()
            found[place] = self.factor * np.sqrt(moved * self._scale(rows, len(rows))[place])
        return found

    def _nearest(self, rows: Array) -> Array:
        """Squares of the distances of a few atoms to those with the nearest surroundings, summed, in each structure."""
        probes = np.unique(np.linspace(0, len(rows) - 1, PROBES).astype(int))
        total, shifted = np.zeros(len(self.neighbours), dtype=np.float32), (rows - self.centre).astype(np.float32)
        for element in np.unique(self.elements[probes]):
            others = self.surroundings.all[:, self.elements == element]
            own = shifted[probes[self.elements[probes] == element]]
            squares = (others**2).sum(2)[:, None] + (own**2).sum(1)[:, None] - 2 * own @ others.swapaxes(1, 2)
            total += np.maximum(squares, 0).min(axis=2).sum(axis=1)
        return total.astype(float)

    def _scale(self, rows: Array, atoms: int) -> Array:
        """From a sum of squares over so many atoms to the square of a move."""
        each = np.maximum(_neighbours(rows), self.neighbours) / len(rows)
        return 1 / np.maximum(2 * each * min(atoms, len(rows)), 1.0)


class _Order:
    """Structures whose atoms come in one order: the distances of pairs that are near in the first of them."""

    def __init__(self, first: Atoms) -> None:
        self.pairs, images = _near_pairs(first)
        self.between = self._between(first) + images
        self.lengths, self.places = _Growing(), np.empty(0, dtype=int)

    def append(self, atoms: Atoms, place: int) -> None:
        self.lengths.append(self._lengths(atoms))
        self.places = np.append(self.places, place)

    def distances(self, atoms: Atoms) -> Array:
        squares = (self.lengths.all - self._lengths(atoms)) ** 2
        # A lone atom has no distances, and no difference.
        return np.sqrt(squares.sum(axis=1) / (2 * max(1, squares.shape[1]))).astype(float)

    def _between(self, atoms: Atoms) -> Array:
        places = atoms.positions @ np.linalg.inv(atoms.cell.complete())
        return places[self.pairs[1]] - places[self.pairs[0]]

    def _lengths(self, atoms: Atoms) -> Rows:
        moved = self._between(atoms) - self.between
        # Whichever image of an atom a file holds: it is nearest to where it was.
        moved -= np.round(moved) * atoms.pbc
        return np.linalg.norm((self.between + moved) @ atoms.cell.complete(), axis=1).astype(np.float32)


class _Growing:
    """Arrays of one shape, appended one by one and used as a single array."""

    def __init__(self) -> None:
        self._rows, self._count = np.empty((0,), dtype=np.float32), 0

    def append(self, row: Rows) -> None:
        if self._count == len(self._rows):
            grown = np.empty((max(16, 2 * self._count), *row.shape), dtype=np.float32)
            if self._count:
                grown[: self._count] = self._rows
            self._rows = grown
        self._rows[self._count] = row
        self._count += 1

    @property
    def all(self) -> Rows:
        return self._rows[: self._count]


def _near_pairs(atoms: Atoms) -> tuple[NDArray[np.int64], Array]:
    """Pairs of near atoms, and in which cell the second is; few enough to be compared with thousands of structures."""
    if not atoms.pbc.any() and len(atoms) <= SMALL:
        pairs = np.stack(np.triu_indices(len(atoms), 1))
        images = np.zeros((pairs.shape[1], 3))
    else:
        cutoff, first, images = CUTOFF, np.empty(0, dtype=int), np.empty((0, 3))
        while not len(first) and (cutoff < 1e3):
            first, second, images = neighbor_list("ijS", atoms, cutoff)
            pairs, cutoff = np.stack([first, second]), 2 * cutoff
        # An atom and its own image move together: they tell of the cell alone, where there is nothing else.
        different = pairs[0] < pairs[1]
        if different.any():
            pairs, images = pairs[:, different], images[different]
    thin = np.unique(np.linspace(0, pairs.shape[1] - 1, MOST_PAIRS).astype(int)) if pairs.shape[1] else slice(0)
    return pairs[:, thin], np.asarray(images[thin], dtype=float)


def _surroundings(atoms: Atoms) -> Array:
    """Sorted distances of each atom to its neighbours of each element; the atoms in the order of their elements."""
    elements = np.unique(atoms.numbers)
    each = max(4, COLUMNS // len(elements))
    order = np.argsort(atoms.numbers, kind="stable")
    if not atoms.pbc.any() and len(atoms) <= SMALL:
        table = cdist(atoms.positions, atoms.positions)
        blocks = [_thinned(np.sort(table[:, atoms.numbers == element], axis=1), each) for element in elements]
        return np.hstack(blocks)[order]
    first, second, distance = close_pairs(atoms, CUTOFF)
    blocks = []
    for element in elements:
        those = atoms.numbers[second] == element
        centre, length = first[those], distance[those]
        nearest = np.lexsort((length, centre))
        centre, length = centre[nearest], length[nearest]
        rank = np.arange(len(centre)) - np.searchsorted(centre, centre)
        block = np.full((len(atoms), each), CUTOFF)
        block[centre[rank < each], rank[rank < each]] = length[rank < each]
        blocks.append(block)
    return np.hstack(blocks)[order]


def _thinned(columns: Array, most: int) -> Array:
    count = columns.shape[1]
    return columns if count <= most else columns[:, np.linspace(0, count - 1, most).astype(int)]


def _neighbours(rows: Array) -> int:
    """Distances that are some: not of an atom to itself, not beyond the cutoff."""
    return int(((rows > 0) & (rows != CUTOFF)).sum())
