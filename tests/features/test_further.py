"""Rows of forces, against derivatives of every force component over every parameter of the stock network."""

import ase.build
import numpy as np
import pytest
import torch
from ase import Atoms

from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch
from adaptntk.core.sketch.registry import make_sketch
from adaptntk.errors import InputError
from adaptntk.features.displacements import directions, strains
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.features.feature_map import NORMALISATIONS, check_finite
from adaptntk.features.last_layer import LastLayerFeatures
from adaptntk.features.registry import restore_feature_map
from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.protocol import parameter_count
from tests.conftest import tiny_network
from tests.models.test_contract import Wrapped

K = 3
EXACT = EnergyGradients(NoSketch(), "per_atom", force_rows=K)


@pytest.fixture(scope="module")
def network() -> MACEPotential:
    return tiny_network(numbers=(1, 6, 8, 14))


@pytest.fixture(scope="module")
def frames(ethanol_frames) -> list[Atoms]:
    """Molecules of two sizes, and a crystal whose atoms see images of themselves."""
    silicon = ase.build.bulk("Si", cubic=True)
    silicon.rattle(0.05, rng=np.random.default_rng(0))
    water = Atoms("OH2", positions=[[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
    return [ethanol_frames[0], silicon, water, ethanol_frames[1]]


@pytest.fixture(scope="module")
def rows(network, frames):
    return EXACT.further(network, frames)


def force_jacobian(potential: MACEPotential, atoms: Atoms) -> torch.Tensor:
    """Derivatives of all force components over all parameters, by double backward: (3 N, P)."""
    stock = MACEPotential(potential.module, fast=False)
    forces = stock.evaluate([stock.graph(atoms)], compute_force=True, training=True)["forces"]
    parameters = [parameter for _, parameter in stock.parameters()]
    found = []
    for component in forces.flatten():
        slopes = torch.autograd.grad(component, parameters, retain_graph=True, materialize_grads=True)
        found.append(torch.cat([slope.flatten() for slope in slopes]))
    return torch.stack(found)


def far_off(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest error of a row, relative to its length."""
    return float(((found - expected).norm(dim=-1) / expected.norm(dim=-1)).max())


@pytest.mark.parametrize("normalise", NORMALISATIONS)
def test_rows_are_slopes_of_random_combinations_of_forces(network, frames, normalise):
    found = EnergyGradients(NoSketch(), normalise, force_rows=K).further(network, frames)
    assert found.shape == (len(frames), K, parameter_count(network))
    for block, atoms in zip(found, frames, strict=True):
        size = len(atoms)
        combined = torch.from_numpy(directions(atoms, K)).flatten(1) @ force_jacobian(network, atoms)
        expected = combined / (3 * size * K) ** 0.5 * size ** (1 - NORMALISATIONS[normalise])
        assert far_off(block, expected) < 1e-7


def virial_jacobian(potential: MACEPotential, atoms: Atoms) -> torch.Tensor:
    """Derivatives of the nine components of the virial per atom, by double backward: (3, 3, P)."""
    stock = MACEPotential(potential.module, fast=False)
    stress = stock.evaluate([stock.graph(atoms)], compute_force=True, compute_stress=True, training=True)["stress"][0]
    parameters = [parameter for _, parameter in stock.parameters()]
    found = []
    for component in (stress * atoms.get_volume() / len(atoms)).flatten():
        slopes = torch.autograd.grad(component, parameters, retain_graph=True, materialize_grads=True)
        found.append(torch.cat([slope.flatten() for slope in slopes]))
    return torch.stack(found).unflatten(0, (3, 3))


@pytest.mark.parametrize("normalise", NORMALISATIONS)
def test_strain_rows_are_slopes_of_random_combinations_of_the_virial(network, frames, normalise):
    found = EnergyGradients(NoSketch(), normalise, force_rows=2, strain_rows=4).further(network, frames)
    forces_alone = EnergyGradients(NoSketch(), normalise, force_rows=2).further(network, frames)
    assert far_off(found[:, :2], forces_alone) < 1e-9
    for block, atoms in zip(found[:, 2:], frames, strict=True):
        if not atoms.pbc.all():
            assert not block.any()
            continue
        # Of -dE/de, as forces are of -dE/dR.
        combined = -torch.tensordot(torch.from_numpy(strains(atoms, 4)), virial_jacobian(network, atoms))
        assert far_off(block, combined / (9 * 4) ** 0.5 * len(atoms) ** (1 - NORMALISATIONS[normalise])) < 1e-6


def test_strains_count_like_all_components_of_the_virial(frames):
    """The mean square of e:V is the square of V, whatever the symmetric V."""
    tensor = np.array([[1.0, 0.3, -2.0], [0.3, 0.5, 0.7], [-2.0, 0.7, 0.1]])
    several = strains(frames[1], 20_000)
    assert np.array_equal(several, several.transpose(0, 2, 1))
    assert np.array_equal(several[:3], strains(frames[1].copy(), 3))
    assert np.mean((several * tensor).sum((1, 2)) ** 2) == pytest.approx((tensor**2).sum(), rel=0.03)


def test_many_directions_give_the_mean_over_all_components(network, ethanol_frames):
    """Their squares add up to the mean over force components, as 3 N rows without any randomness would."""
    atoms, count = ethanol_frames[0], 2000
    many = EnergyGradients(NoSketch(), "per_atom", force_rows=count).further(network, [atoms])[0]
    jacobian = force_jacobian(network, atoms)
    assert float(many.square().sum()) == pytest.approx(float(jacobian.square().sum()) / 27, rel=0.1)


def test_a_network_of_any_kind(frames, rows, network):
    """One by one, as of a potential that has no batches."""
    assert far_off(EXACT.further(Wrapped(network), frames), rows) < 1e-7


def test_neither_the_batch_nor_the_order_matters(network, frames, rows):
    alone = torch.cat([EXACT.further(network, [atoms]) for atoms in frames])
    assert far_off(alone, rows) < 1e-8
    order = [2, 0, 3, 1]
    assert far_off(EXACT.further(network, [frames[index] for index in order]), rows[order]) < 1e-8


def test_directions_belong_to_the_structure(frames):
    for atoms in frames:
        assert np.array_equal(directions(atoms, 2), directions(atoms.copy(), 5)[:2])
    first, other = directions(frames[0], 1), directions(frames[3], 1)
    assert not np.allclose(first, other)
    numbers = directions(frames[0], 1000)
    assert abs(numbers.mean()) < 0.02
    assert numbers.std() == pytest.approx(1, abs=0.02)


def test_structures_are_left_as_they_are(network, frames):
    before = [atoms.copy() for atoms in frames]
    EXACT.further(network, frames)
    assert all(np.array_equal(a.positions, b.positions) for a, b in zip(before, frames, strict=True))


@pytest.mark.parametrize("kind", ["gaussian", "srht"])
def test_sketched_rows_are_the_sketch_of_the_full_ones(network, frames, rows, kind):
    sketched = EnergyGradients(make_sketch(kind, 64, 0), "per_atom", force_rows=K)
    found = sketched.further(network, frames)
    assert found.dtype == torch.float64
    assert far_off(found, sketched.project(rows)) < 1e-8
    assert sketched.unsketched() == EXACT


def test_a_small_budget_gives_the_same_rows(network, frames, rows):
    collected = []

    class Counting(GaussianSketch):
        def apply(self, gradients, start=0):
            collected.append(len(gradients))
            return super().apply(gradients, start)

    two = 8 * 2 * parameter_count(network) * 8
    found = EnergyGradients(Counting(64), "per_atom", force_rows=K).further(network, frames, two)
    assert max(collected) <= 2 < sum(collected) == len(frames) * K
    assert far_off(found, GaussianSketch(64).apply(rows.flatten(0, 1)).unflatten(0, rows.shape[:2])) < 1e-7


def test_float32_is_close_to_float64(network, frames, rows):
    single = network.copy()
    single.module.float()
    found = EXACT.further(single, frames)
    assert found.dtype == torch.float32
    assert far_off(found.double(), rows) < 1e-2  # of the shortest row of silicon; of others 5e-4


def test_no_force_rows_are_an_empty_tensor(network, frames):
    width = parameter_count(network)
    assert EnergyGradients(NoSketch()).further(network, frames).shape == (4, 0, width)
    assert EXACT.further(network, []).shape == (0, K, width)
    sketched = EnergyGradients(GaussianSketch(32))
    nothing = sketched.further(network, frames)
    assert nothing.shape == sketched.project(torch.empty(4, 0, width)).shape == (4, 0, 32)
    check_finite(nothing, "training set")
    last = LastLayerFeatures()
    assert last.further(network, frames).shape == (4, 0, last.width(network))
    with pytest.raises(InputError, match="must not be negative"):
        EnergyGradients(force_rows=-1)


def test_a_lone_atom_has_nothing_to_teach(network, frames):
    lone = [Atoms("H"), Atoms("Si", cell=[9, 9, 9], pbc=True), frames[0]]
    found = EXACT.further(network, lone)
    assert float(found[:2].abs().max()) < 1e-9 * float(found[2].norm())
    check_finite(found, "training set")


def test_a_model_that_breaks_down_is_noticed(network, frames):
    broken = network.copy()
    with torch.no_grad():
        dict(broken.parameters())["node_embedding.linear.weight"].fill_(torch.inf)
    with pytest.raises(InputError, match="training set, frame 0"):
        check_finite(EXACT.further(broken, frames), "training set")


def test_blocks_do_not_know_of_them(network, frames):
    plain = EnergyGradients(NoSketch(), "per_atom")
    assert torch.equal(EXACT.extract(network, frames), plain.extract(network, frames))
    assert EXACT.identity(network) == plain.identity(network) == plain.spec(network)
    assert "force_rows" not in plain.spec(network)
    assert EXACT.spec(network)["force_rows"] == K
    assert restore_feature_map(EXACT.spec(network)) == EXACT
    assert EXACT.summary(network) == "full, with 3 force rows of each label"
    both = EnergyGradients(NoSketch(), force_rows=3, strain_rows=1)
    assert both.summary(network) == "full, with 3 force rows and 1 strain row of each label"
    assert restore_feature_map(both.spec(network)) == both


def test_progress_counts_structures(network, frames):
    told = []

    def progress(items, description, total):
        told.append((description, total))
        return iter(items)

    EXACT.further(network, frames, progress=progress)
    assert told == [("force rows", 4)]
