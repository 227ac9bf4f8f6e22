"""Stress as a label: errors, the loss and its gradient, and a training that learns from it."""

import dataclasses
import logging

import numpy as np
import pytest
import torch

from adaptntk.data.labels import STRESS
from adaptntk.training.checkpoint import training_identity
from adaptntk.training.labelled import LabelledSet
from adaptntk.training.loop import train
from adaptntk.training.recipe import PRESETS
from adaptntk.training.steps import Stepper, validate
from adaptntk.training.weights import Weights
from tests.conftest import TINY_RECIPE, tiny_network
from tests.crystals import strained_metals

RECIPE = dataclasses.replace(TINY_RECIPE, stress_weight=0.5)


def mixed_frames():
    """Crystals of two sizes: one has no label of the stress, and one is not periodic in all directions."""
    frames = strained_metals(4, sizes=(1, 2))
    del frames[1].info[STRESS]
    frames[2].pbc = (True, True, False)
    return frames


def test_errors_are_virials_per_atom_of_what_is_labelled():
    potential, frames = tiny_network(numbers=(29,)), mixed_frames()
    data = LabelledSet.make(potential, frames, RECIPE)
    errors = data.errors(potential, [3, 1, 2, 0], training=False)
    expected = []
    for atoms in (frames[3], frames[0]):
        error = potential.single_point(atoms).stress - atoms.info[STRESS]
        expected.append(error * atoms.get_volume() / len(atoms))
    assert np.allclose(errors.stress.detach(), expected, atol=1e-8)
    assert data.stressed
    assert data.errors(potential, [1, 2], training=False).stress is None
    without = LabelledSet.make(potential, frames)
    assert not without.stressed
    plain = without.errors(potential, [3, 1, 2, 0], training=False)
    assert plain.stress is None
    assert torch.allclose(plain.forces, errors.forces, atol=1e-10)
    assert torch.allclose(plain.energies, errors.energies, atol=1e-10)


def test_gradient_of_the_loss_is_its_slope():
    potential, frames = tiny_network(numbers=(29,)), mixed_frames()
    data = LabelledSet.make(potential, frames, RECIPE)
    stepper = Stepper(potential, Weights(potential, RECIPE), data, RECIPE, 0)

    def loss():
        return stepper._loss([0, 1, 2, 3], 0.1)

    parameters = [tensor for _, tensor in potential.parameters()]
    gradients = torch.autograd.grad(loss(), parameters)
    rng = np.random.default_rng(0)
    for _ in range(6):
        which = int(rng.integers(len(parameters)))
        place = int(rng.integers(parameters[which].numel()))
        slopes, flat = [], parameters[which].data.view(-1)
        for sign in (1, -1):
            flat[place] += sign * 1e-5
            slopes.append(loss().item() * sign / 2e-5)
            flat[place] -= sign * 1e-5
        assert float(gradients[which].flatten()[place]) == pytest.approx(sum(slopes), rel=1e-4, abs=1e-6)


def test_the_loss_of_a_batch_and_of_the_validation_are_the_same():
    potential, frames = tiny_network(numbers=(29,)), mixed_frames()
    data = LabelledSet.make(potential, frames, RECIPE)
    recipe = dataclasses.replace(RECIPE, batch_size=4)
    stepper = Stepper(potential, Weights(potential, recipe), data, recipe, 0)
    found = validate(potential, data, recipe)
    assert found.loss == pytest.approx(stepper._loss([0, 1, 2, 3], recipe.energy_weight).item())
    errors = [potential.single_point(frames[i]).stress - frames[i].info[STRESS] for i in (0, 3)]
    assert found.stress_rmse == pytest.approx(np.sqrt(np.mean(np.square(errors))))
    assert validate(potential, LabelledSet.make(potential, frames), recipe).stress_rmse is None


def test_a_training_learns_from_stress(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    frames = strained_metals(50)
    frames[0].pbc = (True, True, False)
    frames[1].info["REF_virials"] = np.zeros((3, 3))
    del frames[1].info[STRESS]
    recipe = dataclasses.replace(RECIPE, epochs=12)
    found = {}
    for weight in (0.0, 0.5):
        recipe = dataclasses.replace(recipe, stress_weight=weight)
        output = tmp_path / f"{weight}.model"
        trained = train(frames[:20], frames[20:30], output, recipe, seed=1, device="cpu")
        test = [trained.potential.single_point(atoms).stress - atoms.info[STRESS] for atoms in frames[30:]]
        found[weight] = np.sqrt(np.mean(np.square(test)))
        assert (trained.stress_rmse is None) == (weight == 0)
    assert trained.stress_rmse == pytest.approx(found[0.5], rel=0.5)
    assert found[0.5] < 0.8 * found[0.0]
    assert "stress of 1 structures that are not periodic in all directions is left out" in caplog.text
    assert "REF_virials is not read" in caplog.text


def test_labels_of_stress_are_part_of_the_identity():
    frames = strained_metals(4)
    others = [atoms.copy() for atoms in frames]
    others[0].info[STRESS] = 2 * others[0].info[STRESS]

    def identity(frames, recipe):
        return training_identity(frames[:2], frames[2:], recipe, 0, "float32", None)

    assert identity(frames, RECIPE) != identity(others, RECIPE)
    assert identity(frames, TINY_RECIPE) == identity(others, TINY_RECIPE)


def test_which_presets_learn_from_stress():
    assert {name for name, recipe in PRESETS.items() if recipe.stress_weight} == {"standard", "fast"}
