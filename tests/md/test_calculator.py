"""The calculator against the naive computations, and inside ASE."""

import copy

import ase.io
import numpy as np
import pytest
import torch
from ase import Atoms, units
from ase.calculators.calculator import CalculationFailed, PropertyNotImplementedError
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io.trajectory import Trajectory as ASETrajectory
from ase.md.verlet import VelocityVerlet
from ase.mep import NEB
from ase.optimize import BFGS

from adaptntk.data.structures import ENERGY, read_structures
from adaptntk.errors import InputError
from adaptntk.md.calculator import UncertaintyCalculator
from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.torch_module import TorchModulePotential
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.workbench import GivenModel
from tests.conftest import PAPER, tiny_network

KEYS = {"ntk_variance", "energy_uncertainty", "forces_uncertainty", "forces_error_bound", "energy_error_bound"}


@pytest.fixture(scope="module")
def exact(parts):
    """Calibrated in float64, where 1e-9 can be asked for."""
    bench = GivenModel(parts["train"], parts["valid"], potential=tiny_network())
    return fit(bench, "ntk", PAPER | {"criterion": "fixed"})


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("ntk", PAPER | {"criterion": "fixed", "normalise": "none"}),
        ("ntk", PAPER | {"criterion": "fixed", "normalise": "per_atom"}),
        ("ntk", PAPER | {"criterion": "fixed", "sketch": "none"}),
        ("ntk", {}),
        ("last_layer", {"criterion": "fixed"}),
        ("distance", {}),
    ],
)
def test_numbers_are_those_of_score_and_predict(parts, method, options):
    bench = GivenModel(parts["train"], parts["valid"], potential=tiny_network())
    uncertainty = fit(bench, method, options)
    frames = parts["test"][:4]
    scores, predicted = uncertainty.score(frames), uncertainty.potential.predict(frames)
    bound = uncertainty.calibration.error_bound(scores.of_forces, 0.8)
    # Force changes of a committee are differences, which multiply what rounding leaves.
    tolerance = 1e-5 if uncertainty.asks_committee else 1e-9
    calculator = UncertaintyCalculator(uncertainty, coverage=0.8)
    for index, frame in enumerate(frames):
        atoms = frame.copy()
        atoms.calc = calculator
        assert atoms.get_potential_energy() == pytest.approx(predicted.energies[index], rel=1e-12)
        assert np.allclose(atoms.get_forces(), predicted.forces[index], rtol=0, atol=1e-10)
        assert atoms.calc.results["free_energy"] == atoms.calc.results["energy"]
        expected = {
            f"{method}_variance": scores.variance[index],
            "forces_uncertainty": scores.sigma[index],
            "energy_uncertainty": scores.energy_sigma[index],
            "forces_error_bound": bound[index],
        }
        for key, value in expected.items():
            assert calculator.results[key] == pytest.approx(value, rel=tolerance), key


def stock_calculator(potential: MACEPotential):
    from mace.calculators import MACECalculator

    return MACECalculator(models=copy.deepcopy(potential.module), device="cpu", default_dtype="float64")


@pytest.mark.parametrize("every", [1, None])
def test_stress_and_forces_are_those_of_mace(silicon, every):
    potential = tiny_network(numbers=(14,))
    others = [silicon.copy() for _ in range(3)]
    for seed, atoms in enumerate(others):
        atoms.rattle(0.1, seed=seed)
    calculator = UncertaintyCalculator(fit(GivenModel(others, potential=potential)), every)
    stock = stock_calculator(potential)
    for atoms in (silicon, silicon * (2, 1, 1)):
        atoms.set_cell(atoms.cell @ np.array([[1, 0.02, 0], [0, 1.03, 0], [0.01, 0, 0.98]]), scale_atoms=True)
        atoms.calc = calculator
        ours = atoms.get_potential_energy(), atoms.get_forces(), atoms.get_stress()
        assert ("ntk_variance" in calculator.results) == (every == 1)
        atoms.calc = stock
        assert ours[0] == pytest.approx(atoms.get_potential_energy(), rel=1e-12)
        assert np.allclose(ours[1], atoms.get_forces(), rtol=0, atol=1e-10)
        assert np.allclose(ours[2], atoms.get_stress(), rtol=1e-8, atol=1e-12)
        assert np.abs(ours[2]).max() > 1e-6


def test_molecules_have_no_stress(exact, parts):
    atoms = parts["test"][0].copy()
    atoms.calc = UncertaintyCalculator(exact)
    atoms.get_forces()
    with pytest.raises(PropertyNotImplementedError):
        atoms.get_stress()
    assert set(atoms.calc.results) >= KEYS


def test_a_lone_atom_feels_nothing(exact):
    atoms = Atoms("O")
    atoms.calc = UncertaintyCalculator(exact)
    assert not atoms.get_forces().any()
    assert atoms.calc.results["ntk_variance"] == pytest.approx(exact.score([atoms]).variance[0], rel=1e-9)


def test_one_pass_serves_all(exact, parts):
    """Counted at the network's last readout."""
    passes = []
    readout = exact.potential.network._twin.readouts[-1]
    handle = readout.register_forward_hook(lambda *_: passes.append(1))
    atoms = parts["test"][0].copy()
    atoms.calc = UncertaintyCalculator(exact)
    atoms.get_forces(), atoms.get_potential_energy(), atoms.calc.get_property("forces_uncertainty", atoms)
    handle.remove()
    assert len(passes) == 1


def test_every_third_geometry_and_no_stale_numbers(exact, parts):
    calculator = UncertaintyCalculator(exact, every=3)
    atoms = parts["test"][0].copy()
    atoms.calc = calculator
    found = []
    for frame in parts["test"][:8]:
        atoms.positions = frame.positions
        atoms.get_forces()
        atoms.get_potential_energy()  # the same geometry is not counted twice
        found.append(set(calculator.results) >= KEYS)
        assert found[-1] or not KEYS & set(calculator.results)
    assert found == [True, False, False, True, False, False, True, False]


@pytest.mark.parametrize("every", [3, None])
def test_asked_for_it_is_computed_in_between(exact, parts, every):
    calculator = UncertaintyCalculator(exact, every=every)
    frames = parts["test"][:5]
    expected = exact.score(frames).sigma
    for frame, sigma in zip(frames, expected, strict=True):
        atoms = frame.copy()
        atoms.calc = calculator
        atoms.get_forces()
        assert calculator.get_property("forces_uncertainty", atoms) == pytest.approx(sigma, rel=1e-9)


def test_uncalibrated_there_is_only_the_score(tiny, parts):
    calculator = UncertaintyCalculator(fit(GivenModel(parts["train"], potential=tiny)))
    atoms = parts["test"][0].copy()
    atoms.calc = calculator
    atoms.get_forces()
    assert set(calculator.results) & KEYS == {"ntk_variance"}
    with pytest.raises(PropertyNotImplementedError):
        calculator.get_property("forces_uncertainty", atoms)


def test_frames_keep_everything_through_a_file(fitted, parts, tmp_path):
    calculator = UncertaintyCalculator(fitted)
    atoms = parts["test"][0].copy()
    atoms.info["forces_uncertainty"] = -1.0  # of a geometry long gone
    atoms.calc = calculator
    ase.io.write(tmp_path / "frame.xyz", calculator.frame(atoms))
    read = ase.io.read(tmp_path / "frame.xyz")
    assert {key: read.info[key] for key in KEYS} == pytest.approx({key: calculator.results[key] for key in KEYS})
    assert read.get_potential_energy() == pytest.approx(atoms.get_potential_energy())
    assert np.allclose(read.get_forces(), atoms.get_forces(), atol=1e-7)


@pytest.mark.parametrize("periodic", [False, True])
def test_frames_of_a_file_with_labels_of_its_own(fitted, parts, silicon, tmp_path, periodic):
    """Written twice over: what the file said stays what the file said."""
    if periodic:
        fitted = fit(GivenModel([silicon, silicon * (2, 1, 1)], potential=tiny_network(numbers=(14,))))
    labelled = (silicon if periodic else parts["test"][0]).copy()
    labels = {"energy": -7.0, "forces": np.full((len(labelled), 3), 0.5)}
    labels |= {"stress": np.arange(6.0), "free_energy": -8.0} if periodic else {}
    labelled.calc = SinglePointCalculator(labelled, **labels)
    ase.io.write(tmp_path / "labelled.xyz", labelled)
    calculator = UncertaintyCalculator(fitted)
    path = tmp_path / "labelled.xyz"
    for turn in range(2):
        atoms = read_structures(path)[0]
        frame = calculator.frame(atoms)
        assert frame.info[ENERGY] == labelled.info[ENERGY]
        assert "energy" in atoms.info  # what was given is not changed
        path = tmp_path / f"{turn}.xyz"
        ase.io.write(path, frame)
        read = ase.io.read(path)
        assert read.get_potential_energy() == pytest.approx(calculator.results["energy"])
        assert np.allclose(read.get_forces(), calculator.results["forces"], atol=1e-7)
        assert read.info["file_energy"] == -7.0
        assert np.allclose(read.arrays["file_forces"], 0.5)
        if periodic:
            assert np.allclose(read.get_stress(), calculator.results["stress"], atol=1e-7)
            assert read.info["file_free_energy"] == -8.0
            assert np.ravel(read.info["file_stress"]).tolist() == list(range(6))


def test_plain_writing_works_without_the_uncertainty(fitted, parts, tmp_path):
    """ase drops what it does not know; the page on simulations says so."""
    atoms = parts["test"][0].copy()
    atoms.calc = UncertaintyCalculator(fitted)
    atoms.get_forces()
    ase.io.write(tmp_path / "plain.xyz", atoms)
    read = ase.io.read(tmp_path / "plain.xyz")
    assert not KEYS & set(read.info)
    assert read.get_potential_energy() == pytest.approx(atoms.get_potential_energy())
    with ASETrajectory(tmp_path / "plain.traj", "w", atoms) as file:
        file.write()
    assert ase.io.read(tmp_path / "plain.traj").get_forces() == pytest.approx(atoms.get_forces())
    assert atoms.get_properties(["energy", "forces"])["energy"] == pytest.approx(atoms.get_potential_energy())


def test_dynamics_relaxation_and_neb(fitted, parts):
    atoms = parts["test"][0].copy()
    atoms.calc = UncertaintyCalculator(fitted, every=2)
    steps = []
    dynamics = VelocityVerlet(atoms, 0.5 * units.fs)
    dynamics.attach(lambda: steps.append("forces_uncertainty" in atoms.calc.results), interval=1)
    dynamics.run(4)
    assert steps == [True, False, True, False, True]

    calculator = UncertaintyCalculator(fitted)
    ends = [parts["test"][0].copy(), parts["test"][0].copy()]
    ends[1].rattle(0.02, seed=0)
    images = [ends[0], ends[0].copy(), ends[0].copy(), ends[1]]
    for image in images:
        image.calc = calculator
    band = NEB(images, allow_shared_calculator=True, method="improvedtangent")
    band.interpolate()
    before = np.abs(band.get_forces()).max()
    BFGS(band, logfile=None).run(fmax=0.01, steps=3)
    assert np.abs(band.get_forces()).max() != before
    assert calculator.frame(images[1]).info["forces_uncertainty"] > 0


class Springs(torch.nn.Module):
    """A toy with one parameter for each pair of elements."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(1.0, 10.0, dtype=torch.float64).reshape(3, 3))

    def forward(self, positions, numbers):
        kind = torch.div(numbers, 4, rounding_mode="floor").clamp(max=2)
        i, j = torch.triu_indices(len(numbers), len(numbers), 1)
        distances = (positions[i] - positions[j]).square().sum(1).sqrt()
        return (self.weight[kind[i], kind[j]] * torch.exp(-distances)).sum()


def test_other_potentials(parts):
    uncertainty = fit(GivenModel(parts["train"], potential=TorchModulePotential(Springs())), options={"sketch": "none"})
    atoms = parts["test"][0].copy()
    atoms.calc = UncertaintyCalculator(uncertainty)
    assert np.allclose(atoms.get_forces(), uncertainty.potential.predict([atoms]).forces[0])
    assert atoms.calc.results["ntk_variance"] == pytest.approx(uncertainty.score([atoms]).variance[0], rel=1e-9)


def test_stock_network_without_a_twin(parts):
    """No shared pass, but the same numbers."""
    module = tiny_network().module
    quick, plain = (MACEPotential(module, "0" * 64, fast=fast) for fast in (True, False))
    points = [potential.single_point(parts["test"][0], gradient=True) for potential in (quick, plain)]
    assert points[0].energy == pytest.approx(points[1].energy, rel=1e-12)
    assert np.allclose(points[0].forces, points[1].forces, atol=1e-10)
    assert torch.allclose(points[0].gradient, points[1].gradient, atol=1e-8)


def test_what_cannot_be_computed(exact, parts):
    atoms = parts["test"][0].copy()
    atoms.calc = UncertaintyCalculator(exact)
    atoms.positions[0] = np.nan
    with pytest.raises(CalculationFailed, match="NaN"):
        atoms.get_forces()
    chlorine = Atoms("HCl", positions=[[0, 0, 0], [1.3, 0, 0]], calculator=UncertaintyCalculator(exact))
    with pytest.raises(InputError, match="Cl"):
        chlorine.get_forces()
    for options in ({"every": 0}, {"coverage": 1.0}):
        with pytest.raises(InputError):
            UncertaintyCalculator(exact, **options)


@pytest.mark.parametrize("distance", [1e3, 1e6, 1e12])
def test_an_atom_that_flew_away_costs_nothing(exact, parts, distance):
    """The neighbour search of mace would take gigabytes."""
    atoms = parts["test"][0].copy()
    atoms.positions[-1] += distance
    atoms.calc = UncertaintyCalculator(exact)
    assert np.isfinite(atoms.get_forces()).all()
    assert not atoms.get_forces()[-1].any()
