import dataclasses

import pytest

from adaptntk.errors import InputError
from adaptntk.models.family import resized
from adaptntk.training.recipe import PRESETS
from tests.conftest import TINY_RECIPE

SHORT = dataclasses.replace(TINY_RECIPE, epochs=4)


@pytest.mark.parametrize("change", [{"epochs": 0}, {"batch_size": -1}, {"learning_rate": -1.0}])
def test_impossible_recipes(change):
    with pytest.raises(InputError, match="must be positive"):
        dataclasses.replace(SHORT, **change)


def test_paper_recipe_is_the_papers():
    paper = PRESETS["paper"]
    assert (paper.epochs, paper.batch_size, paper.learning_rate, paper.schedule) == (500, 16, 1e-4, "constant")
    assert (paper.energy_weight, paper.forces_weight) == (0.01, 0.99)
    assert not paper.gradient_clip
    assert not paper.element_energies
    assert not paper.force_scale
    assert not paper.centre_energies


def test_a_recipe_has_one_length():
    for change in ({"steps": 100}, {"epochs": None}):
        with pytest.raises(InputError, match="steps or of epochs, and not both"):
            dataclasses.replace(SHORT, **change)
    assert SHORT.lasting() is SHORT
    assert (SHORT.lasting(steps=7).steps, SHORT.lasting(steps=7).epochs) == (7, None)
    assert (PRESETS["fast"].lasting(epochs=7).steps, PRESETS["fast"].lasting(epochs=7).epochs) == (None, 7)
    with pytest.raises(InputError, match="unknown schedule 'sine': choose one of settle, cosine, constant"):
        dataclasses.replace(SHORT, schedule="sine")


def test_networks_are_resized():
    standard = PRESETS["standard"].architecture
    assert standard.resized(channels=32).hidden_irreps == "32x0e + 32x1o + 32x2e"
    assert standard.resized(hidden_ell=0).hidden_irreps == "16x0e"
    assert standard.resized(cutoff=6.0, correlation=2) == dataclasses.replace(standard, cutoff=6.0, correlation=2)
    for change, message in (
        ({"hidden_ell": 4}, "must be 0 to 3, the highest order"),
        ({"channels": 0}, "channels must be positive, not 0"),
        ({"cutoff": -1.0}, "cutoff must be positive, not -1"),
    ):
        with pytest.raises(InputError, match=message):
            standard.resized(**change)


def test_a_family_without_sizes_says_so():
    @dataclasses.dataclass(frozen=True)
    class Fixed:
        family = "fixed"

    assert resized(Fixed(), {}) == Fixed()
    with pytest.raises(InputError, match="sizes of networks of the family 'fixed' cannot be chosen"):
        resized(Fixed(), {"channels": 3})


def test_a_restart_is_slower_and_shorter():
    standard = PRESETS["standard"]
    found = standard.restarted()
    assert (found.learning_rate, found.steps) == (pytest.approx(9e-3), 5000)
    assert standard.restarted(lower=False).learning_rate == standard.learning_rate
    assert standard.restarted(shorter=False).steps == standard.steps
    assert dataclasses.replace(found, learning_rate=standard.learning_rate, steps=standard.steps) == standard
    assert standard.lasting(epochs=10).restarted().epochs == 2
    # Its length and rate are those of the paper, whatever it starts from.
    assert PRESETS["paper"].restarted() == PRESETS["paper"]
