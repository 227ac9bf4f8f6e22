"""Recorded steps of training against the calls that they repeat."""

import ase.build
import numpy as np
import pytest
import torch

from tests.models.mace.networks import potential

BATCHES = ([0, 1, 2], [5, 3, 4], [1, 5, 0])


def loss(found, chosen, weight):
    return weight * found.energies.square().mean() + (found.forces + 0.1).square().mean() * (1 + chosen.sum())


def crystals():
    """The same atoms in other places and cells; some are neighbours in one of them only."""
    found = []
    for seed in range(6):
        atoms = ase.build.bulk("SiC", "zincblende", a=4.3 + 0.05 * seed, cubic=True)
        atoms.rattle(0.05, seed=seed)
        found.append(atoms)
    return found


@pytest.fixture
def sets(ethanol_frames):
    return {"molecule": ethanol_frames[:6], "crystal": crystals()}


@pytest.mark.parametrize(
    ("name", "system"),
    [
        *((name, "molecule") for name in ("plain", "degree 3, l = 3", "one layer", "l = 2 hidden", "two heads")),
        *((name, "crystal") for name in ("plain", "degree 3, l = 3")),
    ],
)
def test_a_recorded_step_is_the_step(name, system, sets):
    """Loss and gradient, in batches and with weights that were not there when it was recorded."""
    fast = potential(name, fast=True).copy()
    graphs = [fast.graph(atoms) for atoms in sets[system]]
    weights = [parameter for parameter in fast.module.parameters() if parameter.requires_grad]
    recorded = fast.captured_step(graphs, 3, loss)
    assert recorded is not None
    for number, batch in enumerate(BATCHES):
        chosen, weight = torch.tensor(batch), torch.tensor(0.1 + number, dtype=fast.dtype)
        value, gradient = recorded(chosen, weight)
        expected = loss(fast.training_outputs([graphs[i] for i in batch], training=True), chosen, weight)
        slopes = torch.autograd.grad(expected, weights, allow_unused=True)
        assert float(value) == pytest.approx(expected.item(), rel=1e-12)
        assert [part is None for part in gradient] == [part is None for part in slopes]
        for part, slope in zip(gradient, slopes, strict=True):
            if slope is not None:
                assert torch.allclose(part, slope, rtol=0, atol=1e-12 * float(slope.abs().max()))
        with torch.no_grad():
            for parameter in weights:
                parameter += 0.01 * torch.randn_like(parameter)
            fast.shift_energies(0.3)


def test_structures_of_other_atoms_have_none(structures, ethanol_frames):
    fast = potential("plain", fast=True)
    assert fast.captured_step([fast.graph(atoms) for atoms in structures], 2, loss) is None
    turned = ethanol_frames[0][::-1]
    assert fast.captured_step([fast.graph(atoms) for atoms in (ethanol_frames[1], turned)], 2, loss) is None


def test_where_empty_edges_would_cost_more_there_is_none():
    """A cell that is squeezed in one structure of many: all others would carry its edges."""
    fast = potential("plain", fast=True)
    cells = []
    for number in range(20):
        atoms = ase.build.bulk("Si", cubic=True).repeat(2)
        atoms.set_cell(atoms.cell * (0.8 if number == 0 else 1.0), scale_atoms=True)
        cells.append(atoms)
    graphs = [fast.graph(atoms) for atoms in cells]
    assert fast.captured_step(graphs, 4, loss) is None
    assert np.ptp([graph.neighbours.sum() for graph in graphs[1:]]) == 0
