"""The search for neighbours, against ase's."""

import time

import numpy as np
import pytest
from ase import Atoms
from ase.neighborlist import neighbor_list

from adaptntk.data.geometry import close_pairs, periodic_pairs, reduced_cell


def random_structure(seed):
    """Cells of all shapes, also left-handed and far smaller than the cutoff; atoms anywhere, also far outside."""
    rng = np.random.default_rng(seed)
    while True:
        cell = rng.uniform(0.8, 9.0) * (np.eye(3) + rng.uniform(-1, 1, (3, 3)) * rng.choice([0.0, 0.3, 0.9]))
        cell = cell[rng.permutation(3)] * rng.choice([-1, 1], (3, 1))
        if rng.random() < 0.3:
            cell[0] += rng.integers(-3, 4) * cell[1]
        if abs(np.linalg.det(cell)) > 0.4 * np.prod(np.linalg.norm(cell, axis=1)) * rng.random():
            break
    pbc = rng.random(3) < 0.7
    spread = rng.choice([1.0, 4.0])
    positions = rng.uniform(-spread, 1 + spread, (rng.integers(1, 9), 3)) @ cell
    return Atoms(numbers=np.ones(len(positions), int), positions=positions, cell=cell, pbc=pbc)


def in_order(first, second, shifts, distance):
    order = np.lexsort((*shifts.T, second, first))
    return first[order], second[order], shifts[order], distance[order]


@pytest.mark.parametrize("seed", range(150))
def test_the_pairs_of_ase(seed):
    atoms, cutoff = random_structure(seed), [0.7, 2.5, 5.0][seed % 3]
    expected = in_order(*neighbor_list("ijSd", atoms, cutoff))
    found = in_order(*periodic_pairs(atoms.positions, np.asarray(atoms.cell), atoms.pbc, cutoff))
    for mine, theirs in zip(found[:3], expected[:3], strict=True):
        assert np.array_equal(mine, theirs)
    assert np.allclose(found[3], expected[3], rtol=0, atol=1e-12)


@pytest.mark.parametrize("pbc", [(1, 1, 1), (1, 1, 0), (0, 0, 1), (0, 0, 0)])
@pytest.mark.parametrize("length", [500.0, 1e5])
def test_large_boxes_cost_what_their_atoms_cost(pbc, length):
    positions = np.random.default_rng(0).uniform(-9, 9, (200, 3))
    atoms = Atoms("H200", positions=positions, cell=[length] * 3, pbc=pbc)
    began = time.perf_counter()
    found = close_pairs(atoms, 5.0)
    assert time.perf_counter() - began < 1
    assert len(found[0]) == len(close_pairs(Atoms("H200", positions=positions), 5.0)[0])


def test_the_reduced_cell_is_the_same_lattice():
    for seed in range(50):
        atoms = random_structure(seed)
        reduced, operation = reduced_cell(np.asarray(atoms.cell), atoms.pbc)
        assert np.allclose(reduced[atoms.pbc], (operation @ np.asarray(atoms.cell))[atoms.pbc])
        assert abs(round(np.linalg.det(operation))) == 1


def test_atoms_at_one_place_are_neighbours():
    atoms = Atoms("H2", positions=np.ones((2, 3)), cell=[9] * 3, pbc=True)
    assert close_pairs(atoms, 0.5)[2].tolist() == [0.0, 0.0]
