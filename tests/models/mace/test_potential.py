import sys

import ase.io
import numpy as np
import pytest
import torch
from ase import Atoms
from mace.calculators import MACECalculator
from mace.cli import eval_configs

from adaptntk.models.family import EnergyReference
from adaptntk.models.mace.family import TINY, build_network
from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.protocol import parameter_count
from adaptntk.models.registry import load_potential
from adaptntk.testing import check_potential
from tests.conftest import tiny_network


@pytest.fixture
def molecules(ethanol_frames):
    water = Atoms("OH2", positions=[[0, 0, 0], [0.96, 0, 0.1], [-0.24, 0.93, 0]])
    return [ethanol_frames[0], water, ethanol_frames[1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_contract(molecules, silicon, dtype, device):
    potential = tiny_network(dtype, numbers=(1, 6, 8, 14))
    potential.module.to(device)
    check_potential(potential, molecules, periodic=silicon)


def test_agrees_with_the_mace_calculator(trained, parts):
    atoms = parts["test"][0].copy()
    predicted = trained.predict([atoms])
    atoms.calc = MACECalculator(models=load_potential(trained.source).module, device="cpu", default_dtype="float32")
    assert predicted.energies[0] == pytest.approx(atoms.get_potential_energy(), abs=1e-4)
    assert np.allclose(predicted.forces[0], atoms.get_forces(), atol=1e-5)
    assert predicted.atom_energies[0].sum() == pytest.approx(predicted.energies[0])
    assert predicted.node_features[0].shape[0] == len(atoms)


def test_gradients_equal_finite_differences(tiny, ethanol_frames):
    """In the direction of a random change of all parameters."""
    graph = tiny.graph(ethanol_frames[0])
    row = tiny.energy_gradients([graph])[0]
    direction = torch.randn(row.shape, dtype=row.dtype, generator=torch.Generator().manual_seed(0))
    step = 1e-5

    def moved(sign):
        network = tiny_network()
        start = 0
        with torch.no_grad():
            for _, p in network.parameters():
                p += sign * step * direction[start : start + p.numel()].reshape(p.shape)
                start += p.numel()
        return float(network.energies([graph])[0].detach())

    assert float(row @ direction) == pytest.approx((moved(1) - moved(-1)) / (2 * step), rel=1e-6)


def test_the_gradient_covers_every_parameter(tiny):
    assert parameter_count(tiny) == sum(p.numel() for p in tiny.module.parameters())


def test_one_atom_without_neighbours(tiny):
    predicted = tiny.predict([Atoms("O", positions=[[50.0, 0, 0]])])
    assert np.isfinite(predicted.energies).all()
    assert np.allclose(predicted.forces[0], 0)


def test_a_molecule_far_from_the_origin(tiny, ethanol_frames):
    far = ethanol_frames[0].copy()
    far.translate((1e5, 0, 0))
    energies = tiny.predict([ethanol_frames[0], far]).energies
    assert energies[0] == pytest.approx(energies[1], abs=1e-6)


def test_mace_eval_configs_gives_the_same_numbers(trained, files, parts, tmp_path, monkeypatch):
    output = tmp_path / "evaluated.xyz"
    command = [
        "mace_eval_configs", f"--configs={files['test']}", f"--model={trained.source}",
        f"--output={output}", "--default_dtype=float32", "--device=cpu",
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", command)
    eval_configs.main()
    evaluated = ase.io.read(output, ":")
    predicted = trained.predict(parts["test"])
    # float32 resolves the total of -310 eV to 3e-5 eV.
    assert np.allclose([a.info["MACE_energy"] for a in evaluated], predicted.energies, rtol=0, atol=2e-4)
    for atoms, forces in zip(evaluated, predicted.forces, strict=True):
        assert np.allclose(atoms.arrays["MACE_forces"], forces, rtol=0, atol=5e-5)


def test_a_network_of_millions_of_parameters(ethanol_frames):
    """Foundation-model width: the gradient is 3.6 million long and still one row."""
    from dataclasses import replace

    from adaptntk.core.sketch.gaussian import GaussianSketch
    from adaptntk.features.energy_gradients import EnergyGradients

    wide = replace(TINY, hidden_irreps="512x0e + 512x1o", radial_mlp=(64, 64))
    reference = EnergyReference((1, 6, 8), (0.0,) * 3, 1.0, 0.0)
    potential = MACEPotential(build_network(wide, reference, 8.0, torch.float32, 0), "0" * 64)
    assert parameter_count(potential) > 3_000_000
    rows = EnergyGradients(GaussianSketch(16)).extract(potential, ethanol_frames[:2], memory_budget=2**27)
    assert torch.isfinite(rows).all()
    assert rows.shape == (2, 1, 16)
