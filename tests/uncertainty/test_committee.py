"""Force changes of a committee against exact derivatives of forces over all parameters, by double backward."""

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk
from scipy.spatial.transform import Rotation

from adaptntk.core.posterior import fit_posterior
from adaptntk.core.sketch.gaussian import GaussianSketch
from adaptntk.errors import InputError
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.protocol import parameter_count
from adaptntk.models.torch_module import TorchModulePotential
from adaptntk.uncertainty.committee import Committee, choose_step
from tests.conftest import tiny_network
from tests.crystals import strained_metals
from tests.models.test_torch_module import PairNetwork

SMALL = 1e-3


def directions_for(potential, members=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(members, parameter_count(potential), generator=generator, dtype=torch.float64)


def products(parameters, outputs, directions):
    """``J d`` (M x outputs) with the exact Jacobian of these outputs over all parameters."""
    rows = []
    for output in outputs.flatten():
        found = torch.autograd.grad(output, parameters, retain_graph=True, materialize_grads=True)
        rows.append(torch.cat([gradient.flatten() for gradient in found]))
    return (directions @ torch.stack(rows).T).numpy().reshape(len(directions), *outputs.shape)


def exact_changes(potential, atoms, directions, stress=False):
    """Of energy, forces and, where it is wanted, stress, by the stock network."""
    stock = MACEPotential(potential.module, "0" * 64, fast=False)
    found = stock.training_outputs([stock.graph(atoms)], training=True, stress=stress)
    parameters = [tensor for _, tensor in stock.parameters()]
    wanted = (found.energies[0], found.forces, found.stress[0]) if stress else (found.energies[0], found.forces)
    return [products(parameters, output, directions) for output in wanted]


@pytest.fixture(scope="module")
def committee(tiny, ethanol_frames):
    """With a step far smaller than the chosen one, which is right to a hundredth only."""
    directions = directions_for(tiny)
    return Committee(tiny, directions, SMALL * choose_step(tiny, directions, ethanol_frames[:2]))


def close(found, expected, tolerance=1e-4):
    return np.linalg.norm(found - expected) <= tolerance * np.linalg.norm(expected)


def test_energies_and_forces_change_as_the_exact_derivatives_say(committee, ethanol_frames):
    for found, atoms in zip(committee.changes(ethanol_frames[:2]), ethanol_frames[:2], strict=True):
        energies, forces = exact_changes(committee.potential, atoms, committee.directions)
        assert close(found.energies, energies, 1e-10)
        assert close(found.forces, forces)
        assert found.force_variance == pytest.approx((found.forces**2).mean(axis=0))


def test_energies_are_the_gradient_times_the_direction(committee, ethanol_frames):
    potential = committee.potential
    rows = potential.energy_gradients([potential.graph(atoms) for atoms in ethanol_frames[:3]])
    found = np.stack([each.energies for each in committee.changes(ethanol_frames[:3])])
    assert np.allclose(found, rows @ committee.directions.T)
    moved = next(committee._predictions(ethanol_frames[:3], ())), *committee._predictions(ethanol_frames[:3], (1e-6,))
    differences = (moved[2].energies - moved[0].energies) / 1e-6
    assert np.allclose(differences, found[:, 0], rtol=1e-3)


def test_stress_changes_as_the_exact_derivatives_say():
    potential = tiny_network(numbers=(29, 79))
    crystals = strained_metals(2, ("Cu", "Au"), sizes=(1, 2))
    directions = directions_for(potential)
    committee = Committee(potential, directions, SMALL * choose_step(potential, directions, crystals))
    molecule = crystals[0].copy()
    molecule.pbc = (True, True, False)
    first, open_one, second = committee.changes([crystals[0], molecule, crystals[1]], stress=True)
    assert open_one.stress is None
    assert open_one.stress_variance is None
    for found, atoms in zip((first, second), crystals, strict=True):
        energies, forces, stress = exact_changes(potential, atoms, directions, stress=True)
        assert close(found.energies, energies, 1e-10)
        assert close(found.forces, forces)
        assert close(found.stress, stress)
        assert found.stress_variance == pytest.approx((found.stress**2).mean(axis=0))
        assert np.allclose(found.point.stress, potential.single_point(atoms).stress)
    assert next(committee.changes(crystals)).stress is None


def test_a_batch_gives_what_single_structures_give_and_the_point_is_the_prediction(committee, ethanol_frames):
    structures = [*ethanol_frames[:3], ethanol_frames[3][:5], ethanol_frames[4]]
    together, alone = list(committee.changes(structures)), list(committee.changes(structures, batch_size=1))
    predicted = committee.potential.predict(structures)
    for index, (one, other) in enumerate(zip(together, alone, strict=True)):
        assert np.allclose(one.energies, other.energies)
        assert close(one.forces, other.forces, 1e-6)
        assert one.point.energy == pytest.approx(predicted.energies[index])
        assert np.allclose(one.point.forces, predicted.forces[index])


def test_the_spread_is_that_of_the_changes(committee, ethanol_frames):
    structures = [*ethanol_frames[:2], ethanol_frames[3][:5]]
    spread, changes = committee.spread(structures, batch_size=2), list(committee.changes(structures))
    assert np.allclose(spread.mean_forces, [np.mean(each.forces**2) for each in changes])
    assert [variance.shape for variance in spread.forces] == [(9, 3), (9, 3), (5, 3)]


def test_changes_turn_and_permute_with_the_structure(committee, ethanol_frames):
    atoms = ethanol_frames[0]
    turn = Rotation.from_rotvec([0.3, -1.1, 0.7]).as_matrix()
    order = np.random.default_rng(1).permutation(len(atoms))
    turned, permuted = atoms.copy(), atoms[order]
    turned.positions = atoms.positions @ turn.T + [1.0, 2.0, 3.0]
    found, of_turned, of_permuted = committee.changes([atoms, turned, permuted])
    assert close(of_turned.forces, found.forces @ turn.T, 1e-6)
    assert close(of_permuted.forces, found.forces[:, order], 1e-6)
    assert np.allclose([of_turned.energies, of_permuted.energies], found.energies)
    assert of_turned.force_variance.sum() == pytest.approx(found.force_variance.sum())


def test_the_potential_stays_as_it_is_even_if_the_iteration_is_left(tiny, committee, ethanol_frames):
    weights, before = tiny.weights(), tiny.predict(ethanol_frames[:1])
    first = next(committee.changes(ethanol_frames[:40]))
    assert torch.equal(tiny.weights(), weights)
    assert np.array_equal(tiny.predict(ethanol_frames[:1]).forces[0], before.forces[0])
    again = next(committee.changes(ethanol_frames[:16]))
    assert np.array_equal(first.forces, again.forces)


def test_lone_atoms_have_no_forces_to_change(committee, ethanol_frames):
    atom, pair = Atoms("C", positions=[[0, 0, 0]]), Atoms("CH", positions=[[0, 0, 0], [0, 0, 50.0]])
    alone, apart, beside = committee.changes([atom, pair, ethanol_frames[0]])
    assert not alone.forces.any()
    assert not apart.forces.any()
    assert alone.forces.shape == (3, 1, 3)
    assert close(beside.forces, next(committee.changes(ethanol_frames[:1])).forces, 1e-6)
    assert committee.linearity([atom]).tolist() == [0.0]
    with pytest.raises(InputError, match="no step"):
        choose_step(committee.potential, committee.directions, [atom])


def test_other_potentials_take_the_general_way(ethanol_frames):
    torch.manual_seed(0)
    potential = TorchModulePotential(PairNetwork().double(), species=[1, 6, 8])
    directions = directions_for(potential)
    committee = Committee(potential, directions, SMALL * choose_step(potential, directions, ethanol_frames[:2]))
    parameters = [tensor for _, tensor in potential.parameters()]
    for found, atoms in zip(committee.changes(ethanol_frames[:2]), ethanol_frames[:2], strict=True):
        positions, numbers = potential.graph(atoms)
        energy = potential.module(positions.requires_grad_(True), numbers)
        (slope,) = torch.autograd.grad(energy, positions, create_graph=True)
        assert close(found.forces, products(parameters, -slope, directions))
        assert close(found.energies, products(parameters, energy, directions), 1e-10)
    with pytest.raises(InputError, match="PairNetwork has no stress"):
        next(committee.changes(ethanol_frames[:1], stress=True))


def test_the_general_way_has_stress_too():
    """`Potential.predict_in_turn` against that of MACE."""
    potential = tiny_network(numbers=(29,))
    crystals, weights = strained_metals(2), [potential.weights(), 1.1 * potential.weights()]
    ours = list(potential.predict_in_turn(crystals, weights, stress=True))
    general = list(super(MACEPotential, potential).predict_in_turn(crystals, weights, stress=True))
    for one, other in zip(ours, general, strict=True):
        assert np.allclose(one.energies, other.energies)
        assert np.allclose(one.forces, other.forces)
        assert np.allclose(one.stress, other.stress)
    assert not np.allclose(ours[0].forces[0], ours[1].forces[0])


def test_in_float32_too(ethanol_frames):
    frames, single = ethanol_frames[:2], tiny_network(torch.float32)
    double = MACEPotential(single.copy().module.double(), "0" * 64)
    directions = directions_for(single)
    found, exact = (Committee(each, directions, choose_step(each, directions, frames)) for each in (single, double))
    assert found.linearity(frames).max() < 0.01
    assert exact.linearity(frames).max() < 0.01
    for one, other in zip(found.changes(frames), exact.changes(frames), strict=True):
        assert close(one.forces, other.forces, 0.02)
        assert close(one.energies, other.energies, 1e-4)


def test_directions_drawn_from_a_posterior(trained, parts):
    """A trained network in float32: its energies change by what the drawn rows say, and there is a good step."""
    frames, features = parts["pool"][:4], EnergyGradients(GaussianSketch(64), "per_atom")
    posterior = fit_posterior(features.extract(trained, parts["train"]), 1e-4)
    rows = posterior.draw(8, seed=1)
    directions = features.sketch.transpose(rows, parameter_count(trained))
    committee = Committee(trained, directions, choose_step(trained, directions, frames))
    assert committee.linearity(frames).max() < 0.03
    found = np.stack([each.energies / len(each.point.forces) for each in committee.changes(frames)])
    expected = (features.extract(trained, frames)[:, 0] @ rows.T).numpy()
    assert np.allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_linearity_tells_curvature(committee, ethanol_frames):
    """Half of the step halves it; and it is half of the error of the differences themselves."""
    large, half = (committee.linearity(ethanol_frames[:2], step=step) for step in (1e-3, 5e-4))
    assert np.allclose(large, 2 * half, rtol=0.1)
    coarse = Committee(committee.potential, committee.directions, 1e-3).changes(ethanol_frames[:2])
    fine = committee.changes(ethanol_frames[:2])
    errors = [np.linalg.norm(a.forces - b.forces) / np.linalg.norm(b.forces) for a, b in zip(coarse, fine, strict=True)]
    assert np.allclose(errors, 2 * large, rtol=0.1)


def test_directions_along_which_forces_do_not_change_have_no_step(tiny, ethanol_frames):
    """To first order: what differences show is curvature, and half of the step shows half of it."""
    atoms = ethanol_frames[0]
    slopes = torch.as_tensor(exact_changes(tiny, atoms, torch.eye(parameter_count(tiny), dtype=torch.float64))[1])
    basis = torch.linalg.qr(slopes.flatten(1))[0]
    directions = directions_for(tiny)
    directions = directions - directions @ basis @ basis.T
    with pytest.raises(InputError, match=r"no step gives force changes .* right to 10% \(at best [0-9]+%\)"):
        choose_step(tiny, directions, [atoms])
    with pytest.raises(InputError, match="finite, and not zero"):
        choose_step(tiny, 0 * directions, [atoms])


def test_wrong_directions_and_steps_are_refused(tiny):
    directions = directions_for(tiny)
    with pytest.raises(InputError, match=r"must be M x \d+ \(parameters\), not 3 x 5"):
        Committee(tiny, directions[:, :5], 1e-3)
    for step in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="step of a committee"):
            Committee(tiny, directions, step)


def test_perfect_crystals_do_not_hide_the_step():
    """By symmetry no force acts there, whatever the weights: what changes is rounding, and tells nothing of a step."""
    potential = tiny_network(torch.float32, numbers=(29,))
    directions, moved = directions_for(potential), strained_metals(2)
    perfect = [bulk("Cu", a=a, cubic=True) for a in (3.5, 3.6, 3.7, 3.8)]
    step = choose_step(potential, directions, [*moved, *perfect])
    committee = Committee(potential, directions, step)
    assert committee.linearity(moved).max() < 0.1
    assert committee.linearity(perfect).max() > 0.3
