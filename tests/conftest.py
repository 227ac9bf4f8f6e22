"""Shared ingredients: real xTB frames and real, tiny MACE networks, made once per run."""

import os
from pathlib import Path

import ase.build
import numpy as np
import pytest
import torch

from adaptntk.data.splits import split_structures
from adaptntk.data.structures import ENERGY, FORCES, write_structures
from adaptntk.data.xtb_md import build_molecule, sample_md
from adaptntk.models.mace.network import TINY, EnergyReference, build_network
from adaptntk.models.mace.potential import MACEPotential
from adaptntk.training.loop import PRESETS, train
from adaptntk.uncertainty.ntk import NTKUncertainty
from adaptntk.uncertainty.ntk_file import save_uncertainty

TINY_RECIPE = PRESETS["tiny"]

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(scope="session")
def ethanol_frames():
    """140 labelled frames of ethanol at 500 K."""
    return sample_md(build_molecule("ethanol"), frames=140, temperature=500, interval=5, seed=1)


@pytest.fixture(scope="session")
def parts(ethanol_frames):
    return split_structures(ethanol_frames, {"train": 40, "valid": 30, "test": 40, "pool": 30}, seed=0)


@pytest.fixture(scope="session")
def files(parts, tmp_path_factory) -> dict[str, Path]:
    """The parts as extxyz files."""
    folder = tmp_path_factory.mktemp("data")
    for name, frames in parts.items():
        write_structures(folder / f"{name}.xyz", frames)
    return {name: folder / f"{name}.xyz" for name in parts}


def tiny_network(dtype=torch.float64, seed=0, numbers=(1, 6, 8)) -> MACEPotential:
    reference = EnergyReference(tuple(numbers), tuple(-10.0 * z for z in numbers), 1.0, 0.0, 8.0)
    return MACEPotential(build_network(TINY, reference, dtype, seed), fingerprint="0" * 64)


@pytest.fixture(scope="session")
def tiny() -> MACEPotential:
    """An untrained network in float64: enough wherever only gradients matter."""
    return tiny_network()


@pytest.fixture(scope="session")
def trained(parts, tmp_path_factory):
    """A trained tiny network, read from its file."""
    path = tmp_path_factory.mktemp("model") / "ethanol.model"
    return train(parts["train"], parts["valid"], path, TINY_RECIPE, seed=3, device="cpu").potential


@pytest.fixture(scope="session")
def fitted(trained, parts):
    return NTKUncertainty.fit(trained, parts["train"]).calibrate(parts["valid"])


@pytest.fixture(scope="session")
def ntk_file(fitted, tmp_path_factory) -> Path:
    path = Path(fitted.potential.source).parent / "ethanol.ntk"
    save_uncertainty(fitted, path)
    return path


@pytest.fixture
def silicon():
    """A periodic structure, slightly distorted."""
    atoms = ase.build.bulk("Si", cubic=True)
    atoms.rattle(0.05, rng=np.random.default_rng(0))
    atoms.info[ENERGY] = -40.0
    atoms.arrays[FORCES] = np.zeros((len(atoms), 3))
    return atoms


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with published data sets; tests that need it are skipped where it is absent."""
    folder = os.environ.get("ADAPTNTK_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("ADAPTNTK_DATA does not point to the published data sets")
    return Path(folder)


@pytest.fixture
def features():
    """Training rows, candidate rows and a ridge, with a decaying spectrum as real features have."""
    generator = torch.Generator().manual_seed(0)
    spectrum = torch.logspace(0, -2, 40, dtype=torch.float64)
    rows = torch.randn(560, 40, generator=generator, dtype=torch.float64) * spectrum
    return rows[:60], rows[60:], 1e-3
