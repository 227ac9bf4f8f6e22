import numpy as np
import pytest
from ase import Atoms

from adaptntk.data.geometry import close_pairs, fragments, fused_atoms, lone_atoms, lone_counts, nearest_neighbours


@pytest.fixture(params=[False, True], ids=["open", "periodic"])
def gas(request):
    rng = np.random.default_rng(0)
    return Atoms("C40", positions=rng.uniform(0, 8, (40, 3)), cell=[8, 8, 8], pbc=request.param)


def test_pairs_and_neighbours_are_those_of_the_matrix_of_distances(gas):
    distances = gas.get_all_distances(mic=bool(gas.pbc.any()))
    np.fill_diagonal(distances, np.inf)
    first, second, distance = close_pairs(gas, 1.5)
    assert {*zip(first.tolist(), second.tolist(), strict=True)} == {*map(tuple, np.argwhere(distances < 1.5).tolist())}
    assert np.allclose(distance, distances[first, second])
    nearest, partner = nearest_neighbours(gas, 1.5)
    near = distances.min(axis=1) < 1.5
    assert 0 < near.sum() < len(gas)
    assert np.allclose(nearest[near], distances.min(axis=1)[near])
    assert (partner[near] == distances.argmin(axis=1)[near]).all()
    assert np.isinf(nearest[~near]).all()


def test_fused_atoms_and_fragments():
    water = Atoms("OH2", positions=[[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
    assert fused_atoms(water, 0.5) is None
    water.positions[1] = [0.3, 0, 0]
    assert fused_atoms(water, 0.5) == "O0 and H1 are 0.30 Å apart"
    water.positions[2] = [20, 0, 0]
    count, group = fragments(water, 3.0)
    assert count == 2
    assert group[0] == group[1] != group[2]


def test_lone_atoms_are_those_without_a_pair(gas):
    for cutoff in (0.5, 1.0, 1.5, 3.0, 7.9):
        paired = np.unique(close_pairs(gas, cutoff)[0])
        assert lone_atoms(gas, cutoff) == len(gas) - len(paired)
    assert 0 < lone_atoms(gas, 1.0) < len(gas)


def test_lone_atoms_in_cells():
    atom = Atoms("H", cell=[5, 20, 20])
    assert lone_atoms(atom, 6.0) == lone_atoms(atom, np.inf) == 1
    atom.pbc = (False, True, True)
    assert lone_atoms(atom, 6.0) == 1
    atom.pbc = True
    assert lone_atoms(atom, 6.0) == 0  # its own image
    # Written outside of the cell, or in a cell whose vectors are far from its shortest ones.
    pair = Atoms("H2", positions=[[0, 0, 0], [100, 0, 1]], cell=[20, 20, 20], pbc=True)
    assert (lone_atoms(pair, 1.5), lone_atoms(pair, 0.9)) == (0, 2)
    skewed = Atoms("H", cell=[[20, 0, 0], [19, 1, 0], [0, 0, 20]], pbc=True)
    assert (lone_atoms(skewed, 1.5), lone_atoms(skewed, 1.3)) == (0, 1)
    assert lone_counts([pair, atom], None).tolist() == [0, 0]
    assert lone_counts([Atoms("H"), Atoms("H2", positions=[[0, 0, 0], [1e4, 0, 0]])], None).tolist() == [1, 0]
    pair.positions[0] = np.nan
    assert lone_atoms(pair, 1.0) == 0


def test_one_atom_has_no_neighbour():
    atom = Atoms("H", positions=[[0, 0, 0]])
    assert len(close_pairs(atom, 3.0)[0]) == 0
    assert np.isinf(nearest_neighbours(atom, 3.0)[0]).all()
    assert fused_atoms(atom, 0.5) is None
