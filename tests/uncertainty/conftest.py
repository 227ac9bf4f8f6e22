"""Networks that the tests of methods share."""

import shutil

import pytest

from adaptntk.models.mace.architecture import TINY
from adaptntk.training.recipe import Recipe
from adaptntk.uncertainty.folder_workbench import FolderWorkbench

RECIPE = Recipe(TINY, epochs=12, batch_size=5, learning_rate=3e-2, cosine=True)


@pytest.fixture(scope="session")
def workbench(parts, shared, tmp_path_factory):
    """A folder with two trained networks; what else is asked for, each process trains in a copy of its own."""

    def work_in(folder):
        return FolderWorkbench(parts["train"], parts["valid"], 1, folder=folder, recipe=RECIPE, device="cpu")

    def train_two(folder):
        work_in(folder).member(0)
        work_in(folder).member(1)

    folder = tmp_path_factory.mktemp("bench")
    shutil.copytree(shared("bench", train_two), folder, dirs_exist_ok=True)
    return work_in(folder)
