"""Networks and fits that the tests of methods share."""

import shutil

import pytest

from adaptntk.models.mace.family import TINY
from adaptntk.training.recipe import Recipe
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.folder_workbench import FolderWorkbench
from adaptntk.uncertainty.workbench import GivenModel
from tests.conftest import PAPER

RECIPE = Recipe(TINY, 3e-2, "cosine", epochs=12, batch_size=5)
OPTIONS = {
    "ntk": PAPER,
    "ensemble": {"members": 2},
    "dropout": {"passes": 4},
    "swag": {"draws": 4},
    "evidential": {"steps": 50},
}


@pytest.fixture(scope="session")
def workbench(parts, shared, tmp_path_factory):
    """A folder with all trained networks that methods need, in a copy for each process."""

    def work_in(folder):
        return FolderWorkbench(parts["train"], parts["valid"], 1, folder=folder, recipe=RECIPE, device="cpu")

    def train_all(folder):
        bench = work_in(folder)
        bench.member(1), bench.snapshots(), bench.dropout_member(0.1)

    folder = tmp_path_factory.mktemp("bench")
    shutil.copytree(shared("bench", train_all), folder, dirs_exist_ok=True)
    return work_in(folder)


@pytest.fixture(scope="session")
def fit_by_name(workbench):
    """Every method, fitted and calibrated once."""
    found = {}

    def by_name(name):
        if name not in found:
            found[name] = fit(workbench, name, OPTIONS.get(name))
        return found[name]

    return by_name


@pytest.fixture(scope="session")
def given(trained, parts):
    """A workbench with one trained model; what was extracted and predicted once is found again."""
    return GivenModel(parts["train"], parts["valid"], potential=trained)
