"""Starts, displacements, normal modes and what is worth a label."""

import numpy as np
import pytest
from ase import Atoms, units
from ase.calculators.calculator import Calculator

from adaptntk.data.structures import ENERGY, structure_hash
from adaptntk.data.xtb_md import build_molecule
from adaptntk.errors import InputError
from adaptntk.md.distinct import structure_distance
from adaptntk.md.dynamics import MDSettings, run_md
from adaptntk.md.exploration import (
    MDJob,
    collect,
    displaced,
    normal_modes,
    plan_trajectories,
    sift,
    vibrations,
)


def test_every_start_at_every_temperature(parts):
    jobs = plan_trajectories(parts["train"][:2], [300, 600, 900], MDSettings(steps=5), seed=3)
    assert [(job.start_index, job.settings.temperature) for job in jobs] == [
        (0, 300), (0, 600), (0, 900), (1, 300), (1, 600), (1, 900),
    ]  # fmt: skip
    assert len({job.seed for job in jobs}) == 6
    again = plan_trajectories(parts["train"][:2], [300, 600, 900], MDSettings(steps=5), seed=3)
    assert [job.seed for job in again] == [job.seed for job in jobs]
    assert all(isinstance(job, MDJob) and job.settings.steps == 5 for job in jobs)
    with pytest.raises(InputError):
        plan_trajectories([], [300], MDSettings())


def test_displacements_have_the_amplitude(parts):
    start = parts["train"][0]
    moved = displaced(start, 200, 0.1, seed=1)
    offsets = np.array([atoms.positions - start.positions for atoms in moved])
    assert offsets.std() == pytest.approx(0.1, rel=0.05)
    assert ENERGY not in moved[0].info
    assert np.array_equal(displaced(start, 200, 0.1, seed=1)[7].positions, moved[7].positions)
    assert not np.array_equal(displaced(start, 1, 0.1, seed=2)[0].positions, moved[0].positions)


def water_with_springs():
    """A molecule whose Hessian is known: harmonic in the three distances."""
    atoms = build_molecule("water")
    return atoms, Springs(atoms)


class Springs(Calculator):
    implemented_properties = ("energy", "forces")

    def __init__(self, atoms, strength=30.0):
        super().__init__()
        self.pairs = np.array([(0, 1), (0, 2), (1, 2)])
        self.lengths = np.array([atoms.get_distance(*pair) for pair in self.pairs])
        self.strength = strength

    def calculate(self, atoms=None, properties=None, system_changes=None):
        super().calculate(atoms, properties, system_changes)
        forces = np.zeros((len(atoms), 3))
        energy = 0.0
        for (i, j), length in zip(self.pairs, self.lengths, strict=True):
            arm = atoms.positions[j] - atoms.positions[i]
            stretch = np.linalg.norm(arm) - length
            energy += 0.5 * self.strength * stretch**2
            pull = self.strength * stretch * arm / np.linalg.norm(arm)
            forces[i] += pull
            forces[j] -= pull
        self.results = {"energy": energy, "forces": forces}


def test_vibrations_are_those_of_the_analytic_hessian():
    atoms, calculator = water_with_springs()
    atoms.calc = calculator
    hessian = np.zeros((9, 9))
    for i, j in calculator.pairs:
        arm = atoms.positions[j] - atoms.positions[i]
        gradient = np.zeros((3, 3))
        gradient[j], gradient[i] = arm / np.linalg.norm(arm), -arm / np.linalg.norm(arm)
        hessian += calculator.strength * np.outer(gradient, gradient)
    weights = np.repeat(np.sqrt(atoms.get_masses()), 3)
    expected = np.sqrt(np.linalg.eigvalsh(hessian / np.outer(weights, weights))[-3:])
    frequencies, modes = vibrations(atoms)
    assert frequencies == pytest.approx(expected, rel=1e-3)
    assert np.allclose(modes.T @ modes, np.eye(3), atol=1e-8)


def test_normal_modes_have_the_thermal_energy():
    """Classically kT/2 for each of the three modes; the springs are not quite harmonic along straight lines."""
    atoms, calculator = water_with_springs()
    sampled = normal_modes(calculator, atoms, 400, 100.0, seed=0)
    energies = []
    for frame in sampled:
        frame.calc = calculator
        energies.append(frame.get_potential_energy())
    assert np.mean(energies) == pytest.approx(1.5 * units.kB * 100.0, rel=0.1)
    centres = np.array([frame.get_center_of_mass() for frame in sampled])
    assert np.ptp(centres, axis=0).max() < 1e-8


def test_normal_modes_of_the_model(fitted, parts):
    sampled = normal_modes(fitted.potential, parts["train"][0], 5, 300.0, seed=0)
    assert len(sampled) == 5
    again = normal_modes(fitted.potential, parts["train"][0], 5, 300.0, seed=0)
    assert np.allclose(sampled[3].positions, again[3].positions)
    assert 0.005 < np.mean([structure_distance(sampled[0], frame) for frame in sampled[1:]]) < 0.5


def test_no_minimum_is_said():
    atoms, calculator = water_with_springs()
    with pytest.raises(InputError, match="imaginary"):
        normal_modes(Springs(atoms, strength=-30.0), atoms, 3, 300.0, relax=False)
    with pytest.raises(InputError, match="temperature"):
        normal_modes(calculator, atoms, 3, 0.0)


def test_collect(fitted, parts):
    frames = [atoms.copy() for atoms in parts["test"]]
    for atoms, score in zip(frames, fitted.score(frames).variance, strict=True):
        atoms.info["ntk_variance"] = float(score)
    threshold = float(np.median([atoms.info["ntk_variance"] for atoms in frames]))
    chosen = collect(frames, threshold, min_distance=0.0)
    assert 0 < len(chosen) == sum(atoms.info["ntk_variance"] > threshold for atoms in frames)
    assert collect(frames, None, min_distance=0.0) == frames
    assert collect(frames, None, [structure_hash(a) for a in frames[:5]], min_distance=0.0) == frames[5:]
    assert collect([frames[0], frames[0].copy()], min_distance=0.0) == [frames[0]]
    with pytest.raises(InputError, match="no ntk_variance"):
        collect([parts["test"][0]], 1.0)
    for atoms in frames:
        atoms.info["swag_variance"] = -atoms.info["ntk_variance"]
    assert len(collect(frames, -threshold, min_distance=0.0, key="swag_variance")) == len(frames) - len(chosen)


def test_collect_leaves_out_what_is_nearly_the_same_or_broken(parts):
    first = parts["test"][0]
    nearly, other, fused, broken = (first.copy() for _ in range(4))
    nearly.rattle(0.01, seed=1)
    other.rattle(0.1, seed=2)
    fused.positions[3] = fused.positions[4] + [0.3, 0, 0]
    broken.positions[0] = np.nan
    frames = [first, nearly, fused, other, broken, Atoms("H"), Atoms("H", positions=[[1, 0, 0]])]
    # Frames of another composition do not compete.
    assert collect(frames, min_distance=0.05) == [first, other, frames[5]]
    assert collect(frames, min_distance=0.0) == [first, nearly, other, *frames[5:]]
    found = sift(frames, known_hashes=[structure_hash(other)])
    assert str(found) == (
        "7 frames: 2 taken, 2 too near to another (0.05 Å), 1 with fused atoms, 1 labelled already, 1 not finite"
    )


def test_a_job_is_all_that_a_trajectory_needs(fitted, parts):
    """So it may run anywhere, in any order."""
    jobs = plan_trajectories(parts["train"][:1], [200, 400], MDSettings(steps=10, interval=5))
    first, second = ([run_md(fitted, j.start, j.settings, seed=j.seed) for j in order] for order in (jobs, jobs[::-1]))
    for run, other in zip(first, second[::-1], strict=True):
        assert np.array_equal(run.frames[-1].positions, other.frames[-1].positions)
