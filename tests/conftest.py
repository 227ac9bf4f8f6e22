"""Shared ingredients: real xTB frames and real, tiny MACE networks, made once per run."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import ase.build
import numpy as np
import pytest
import torch
from filelock import FileLock

from adaptntk.data.splits import split_structures
from adaptntk.data.structures import ENERGY, FORCES, read_structures, write_structures
from adaptntk.models.family import EnergyReference
from adaptntk.models.mace.family import TINY, build_network
from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.registry import load_potential
from adaptntk.training.loop import train
from adaptntk.training.recipe import PRESETS
from adaptntk.uncertainty.file import load_fitted, save_fitted
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.fitted import Fitted
from adaptntk.uncertainty.workbench import GivenModel

TINY_RECIPE = PRESETS["tiny"]
PAPER = {"features": "energy"}
DATA_FILES = Path(__file__).parent / "data_files"

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """``shared(name, make)``: the folder ``name``, filled by ``make(folder)`` once for all processes of this run.

    Nothing in the folder may be changed by a test.
    """
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    root.mkdir(exist_ok=True)

    def folder_of(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = root / name, root / f"{name}.done"
        with FileLock(root / f"{name}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # what a process left that failed
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return folder_of


@pytest.fixture(scope="session")
def ethanol_frames():
    """140 labelled frames of ethanol at 500 K, made by tests/data_files/make.py."""
    return read_structures(DATA_FILES / "ethanol.xyz", labelled=True)


@pytest.fixture(scope="session")
def hot_frames():
    """20 labelled frames of ethanol at 900 K."""
    return read_structures(DATA_FILES / "ethanol_hot.xyz", labelled=True)


@pytest.fixture(scope="session")
def parts(ethanol_frames):
    return split_structures(ethanol_frames, {"train": 40, "valid": 30, "test": 40, "pool": 30}, seed=0)


@pytest.fixture(scope="session")
def files(parts, shared) -> dict[str, Path]:
    """The parts as extxyz files."""

    def write(folder):
        for name, frames in parts.items():
            write_structures(folder / f"{name}.xyz", frames)

    folder = shared("data", write)
    return {name: folder / f"{name}.xyz" for name in parts}


def tiny_network(dtype=torch.float64, seed=0, numbers=(1, 6, 8)) -> MACEPotential:
    reference = EnergyReference(tuple(numbers), tuple(-10.0 * z for z in numbers), 1.0, 0.0)
    return MACEPotential(build_network(TINY, reference, 8.0, dtype, seed), fingerprint="0" * 64)


@pytest.fixture(scope="session")
def tiny() -> MACEPotential:
    """An untrained network in float64: enough wherever only gradients matter."""
    return tiny_network()


@pytest.fixture(scope="session")
def trained(parts, shared) -> MACEPotential:
    """A trained tiny network, read from its file."""

    def make(folder):
        train(parts["train"], parts["valid"], folder / "ethanol.model", TINY_RECIPE, seed=3, device="cpu")

    return load_potential(shared("model", make) / "ethanol.model", "cpu")


@pytest.fixture(scope="session")
def ntk_file(trained, parts, shared) -> Path:
    """The file of ``fitted``."""
    return shared("ntk", lambda folder: write_ntk(folder, trained, parts)) / "ethanol.ntk"


@pytest.fixture(scope="session")
def paper_file(trained, parts, shared) -> Path:
    """The file of ``paper``."""
    return shared("paper", lambda folder: write_ntk(folder, trained, parts, **PAPER)) / "ethanol.ntk"


def write_ntk(folder, trained, parts, **options):
    shutil.copy(trained.source, folder)
    potential = load_potential(folder / "ethanol.model", "cpu")
    bench = GivenModel(parts["train"], parts["valid"], potential=potential)
    save_fitted(fit(bench, "ntk", options), folder / "ethanol.ntk")


@pytest.fixture(scope="session")
def fitted(ntk_file) -> Fitted:
    """What a user gets who chooses nothing: joint features and a committee."""
    return load_fitted(ntk_file, device="cpu")


@pytest.fixture(scope="session")
def paper(paper_file) -> Fitted:
    """The score of the paper: features of energies, no committee."""
    return load_fitted(paper_file, device="cpu")


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
