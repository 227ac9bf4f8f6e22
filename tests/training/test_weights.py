import copy
import dataclasses

import pytest
import torch

from adaptntk.training.weights import Weights
from tests.conftest import TINY_RECIPE

RECIPE = dataclasses.replace(TINY_RECIPE, average=0.1, weight_decay=0.0)


@pytest.fixture
def network(trained):
    return trained.copy()


def loss_of(potential):
    return sum((parameter - 1).square().sum() for parameter in potential.module.parameters())


def vector(potential):
    return torch.cat([parameter.detach().flatten() for parameter in potential.module.parameters()])


def test_the_average_is_that_of_the_last_tenth(network):
    weights, seen, expected = Weights(network, RECIPE), [], vector(network).double()
    for step in range(60):
        weights.step(loss_of(network), step, 1.0)
        seen.append(vector(network).double())
        expected = expected + (seen[-1] - expected) / (1 + 0.1 * step)
    moving = vector(network)
    with weights.averaged():
        assert torch.allclose(vector(network).double(), expected, atol=1e-5)
    assert torch.equal(vector(network), moving)
    # Between the mean of the last tenth and that of the last third.
    late, early = torch.stack(seen[-6:]).mean(0), torch.stack(seen[-20:]).mean(0)
    assert (expected - late).norm() < (early - late).norm()


def test_without_an_average_the_weights_are_validated(network):
    weights = Weights(network, dataclasses.replace(RECIPE, average=0.0))
    weights.step(loss_of(network), 0, 1.0)
    moving = vector(network)
    with weights.averaged():
        assert torch.equal(vector(network), moving)


def test_a_state_brings_everything_back(network):
    weights = Weights(network, RECIPE)
    for step in range(3):
        weights.step(loss_of(network), step, 1.0)
    state = copy.deepcopy(weights.state())

    def go_on():
        weights.load(copy.deepcopy(state))
        for step in range(3, 6):
            weights.step(loss_of(network), step, 0.5)
        with weights.averaged():
            return vector(network)

    assert torch.equal(go_on(), go_on())


def test_weight_decay_is_for_what_the_family_chooses(network):
    recipe = dataclasses.replace(RECIPE, weight_decay=0.1, chosen_decay=True)
    before = {name: parameter.detach().clone() for name, parameter in network.module.named_parameters()}
    Weights(network, recipe).step(0 * loss_of(network), 0, 1.0)
    shrunk = {name for name, parameter in network.module.named_parameters() if not torch.equal(parameter, before[name])}
    assert any("symmetric_contractions" in name for name in shrunk)
    assert any("interactions.0.linear.weight" in name for name in shrunk)
    assert not any("readouts" in name or "embedding" in name or "conv_tp_weights" in name for name in shrunk)
    Weights(network, dataclasses.replace(recipe, chosen_decay=False)).step(0 * loss_of(network), 0, 1.0)
    assert not any(torch.equal(p, before[name]) for name, p in network.module.named_parameters() if p.abs().max() > 0)


def test_frozen_parameters_stay(network):
    frozen = network.module.node_embedding.linear.weight.requires_grad_(False)
    before = frozen.clone()
    Weights(network, dataclasses.replace(RECIPE, weight_decay=0.1)).step(loss_of(network), 0, 1.0)
    assert torch.equal(frozen, before)
