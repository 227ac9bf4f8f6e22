"""Edges between neighbours: MACE's own, and those of the search for what MACE's cannot do."""

import dataclasses
import time

import numpy as np
import pytest
import torch
from ase import Atoms

from adaptntk.models.mace import graph
from tests.data.test_periodic_pairs import random_structure


def edges(atoms, cutoff=3.0):
    _, edge_index, shifts, unit_shifts, cell = graph._neighbours(atoms, cutoff)
    assert np.allclose(shifts, unit_shifts @ cell)
    # Shifts along axes that are not periodic are none.
    order = np.lexsort((*unit_shifts.T, *edge_index))
    return edge_index[:, order], unit_shifts[order]


@pytest.mark.parametrize("seed", range(30))
def test_both_searches_find_the_same(seed, monkeypatch):
    atoms = random_structure(seed)
    atoms.pbc[seed % 3] = True
    expected = edges(atoms)
    monkeypatch.setattr(graph, "_MOST_BOXES", 0)
    for found, theirs in zip(edges(atoms), expected, strict=True):
        assert np.array_equal(found, theirs)


@pytest.mark.parametrize("length", [20.0, 500.0, 9e4])
@pytest.mark.parametrize("pbc", [(True, True, True), (True, False, False)])
def test_a_molecule_in_a_box_is_as_it_is_alone(tiny, parts, length, pbc):
    alone = parts["test"][0].copy()
    boxed = Atoms(alone.symbols, alone.positions, cell=[length] * 3, pbc=pbc)
    began = time.perf_counter()
    found, expected = tiny.predict([boxed]), tiny.predict([alone])
    assert time.perf_counter() - began < 5
    assert found.energies == pytest.approx(expected.energies, abs=1e-8)
    assert np.allclose(found.forces[0], expected.forces[0], atol=1e-8)


def test_an_axis_that_is_periodic_may_be_any(tiny):
    """The first vector along z, where MACE puts the one of the third direction."""
    chain = Atoms("CH", [[0, 0, 0], [0, 0, 1.1]], cell=[[0, 0, 2.4], [0, 0, 0], [0, 0, 0]], pbc=[True, False, False])
    turned = Atoms("CH", [[0, 0, 0], [0, 0, 1.1]], cell=[[0, 0, 0], [0, 0, 0], [0, 0, 2.4]], pbc=[False, False, True])
    found, expected = (tiny.predict([atoms]) for atoms in (chain, turned))
    assert torch.isfinite(torch.as_tensor(found.energies)).all()
    assert found.energies == pytest.approx(expected.energies, abs=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_opposite_edges_are_one_pair(seed):
    atoms = random_structure(seed)
    atoms.pbc = True
    kinds = {number: index for index, number in enumerate(sorted(set(atoms.numbers.tolist())))}
    made = graph.make_graph(atoms, 3.0, kinds, torch.float64, torch.device("cpu"))
    pairs = made.pairs
    assert 2 * pairs.edge_index.shape[1] == made.edges > 0

    def vectors(part):
        return made.positions[part.edge_index[1]] - made.positions[part.edge_index[0]] + part.shifts

    signs = torch.as_tensor(np.where(pairs.reversed, -1.0, 1.0))[:, None]
    assert torch.allclose(vectors(pairs)[pairs.of_edge] * signs, vectors(made), rtol=0, atol=1e-9)


def test_an_edge_without_its_opposite_is_a_pair_of_its_own():
    made = graph.make_graph(Atoms("H2", [[0, 0, 0], [1, 0, 0]]), 3.0, {1: 0}, torch.float64, torch.device("cpu"))
    lonely = dataclasses.replace(made, links=made.links + np.eye(2, 5, 4, dtype=int))
    assert lonely.pairs.of_edge.tolist() == [0, 1]
    assert not lonely.pairs.reversed.any()
