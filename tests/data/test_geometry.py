import numpy as np
import pytest
from ase import Atoms

from adaptntk.data.geometry import close_pairs, fragments, fused_atoms, nearest_neighbours


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


def test_one_atom_has_no_neighbour():
    atom = Atoms("H", positions=[[0, 0, 0]])
    assert len(close_pairs(atom, 3.0)[0]) == 0
    assert np.isinf(nearest_neighbours(atom, 3.0)[0]).all()
    assert fused_atoms(atom, 0.5) is None
