import dataclasses

import pytest

from adaptntk.errors import InputError
from adaptntk.training.recipe import PRESETS
from tests.conftest import TINY_RECIPE

SHORT = dataclasses.replace(TINY_RECIPE, epochs=4)


@pytest.mark.parametrize("change", [{"epochs": 0}, {"batch_size": -1}, {"learning_rate": -1.0}])
def test_impossible_recipes(change):
    with pytest.raises(InputError, match="must be positive"):
        dataclasses.replace(SHORT, **change)


def test_paper_recipe_is_the_papers():
    paper = PRESETS["paper"]
    assert (paper.epochs, paper.batch_size, paper.learning_rate, paper.cosine) == (500, 16, 1e-4, False)
    assert (paper.energy_weight, paper.forces_weight) == (0.01, 0.99)
    assert not paper.gradient_clip
    assert not paper.element_energies
    assert not paper.force_scale
    assert not paper.centre_energies
