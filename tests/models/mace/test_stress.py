"""Stress while training: the twin gives what the stock network gives, and both can be differentiated again."""

import numpy as np
import pytest
import torch

from adaptntk.models.mace.potential import MACEPotential
from tests.conftest import tiny_network
from tests.crystals import strained_metals


def outputs(potential, frames):
    graphs = [potential.graph(atoms) for atoms in frames]
    return potential.training_outputs(graphs, training=True, stress=True)


def test_stress_is_the_slope_of_the_energy():
    potential, (atoms,) = tiny_network(numbers=(29,)), strained_metals(1)
    found = outputs(potential, [atoms]).stress[0].detach().numpy()
    assert np.allclose(found, found.T, atol=1e-10)
    step = 1e-4
    for row, column in ((0, 0), (1, 2)):
        energies = []
        for sign in (1, -1):
            strain, strained = np.eye(3), atoms.copy()
            strain[row, column] += sign * step / 2
            strain[column, row] += sign * step / 2
            strained.set_cell(atoms.cell @ strain, scale_atoms=True)
            energies.append(potential.predict([strained]).energies[0])
        slope = (energies[0] - energies[1]) / (2 * step) / atoms.get_volume()
        assert found[row, column] == pytest.approx(slope, abs=1e-6)


def test_twin_and_stock_network_have_the_same_stress_and_the_same_second_derivatives():
    stock = MACEPotential(tiny_network(numbers=(29, 79)).module, "0" * 64, fast=False)
    twin = MACEPotential(stock.module, "0" * 64)
    assert twin.network is not None
    frames = strained_metals(3, ("Cu", "Au"), sizes=(1, 2))
    found = []
    for potential in (stock, twin):
        energies, forces, stress = outputs(potential, frames)
        loss = energies.square().sum() + forces.square().sum() + stress.square().sum() * 100
        gradients = torch.autograd.grad(loss, list(stock.module.parameters()), allow_unused=True)
        found.append((stress.detach(), torch.cat([g.flatten() for g in gradients if g is not None])))
    (stress, gradient), (other_stress, other_gradient) = found
    assert torch.allclose(stress, other_stress, atol=1e-9)
    assert torch.allclose(gradient, other_gradient, atol=1e-7 * gradient.abs().max())


def test_stress_of_a_batch_is_that_of_each_structure():
    """Molecules beside crystals change nothing."""
    potential, frames = tiny_network(numbers=(29,)), strained_metals(2, sizes=(1, 2))
    molecule = frames[0].copy()
    molecule.pbc = False
    together = outputs(potential, [frames[0], molecule, frames[1]]).stress
    alone = [potential.single_point(atoms).stress for atoms in frames]
    assert np.allclose(together[[0, 2]].detach(), alone, atol=1e-8)
