"""Batched gradients against one backward pass per structure."""

import logging

import pytest
import torch

from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.mace.stock import modules
from adaptntk.models.protocol import energy_gradients_one_by_one
from tests.models.mace.networks import NETWORKS, network, potential


@pytest.mark.parametrize("name", NETWORKS)
def test_batched_gradients_are_exact(name, structures):
    fast = potential(name, fast=True)
    assert fast.network.unknown_parameters() == []
    graphs = [fast.graph(atoms) for atoms in structures]
    rows = fast.energy_gradients(graphs)
    expected = energy_gradients_one_by_one(potential(name, fast=False), graphs)
    assert float((rows - expected).abs().max() / expected.abs().max()) < 1e-12
    # Every parameter that matters is reached, each by its own number.
    assert torch.equal(rows.abs().sum(0) > 0, expected.abs().sum(0) > 0)


def test_batched_gradients_in_single_precision(structures):
    name = "degree 3, l = 3"
    fast = potential(name, fast=True, dtype=torch.float32)
    graphs = [fast.graph(atoms) for atoms in structures]
    rows, expected = fast.energy_gradients(graphs), energy_gradients_one_by_one(fast, graphs)
    assert float(((rows - expected).norm(dim=1) / expected.norm(dim=1).clamp_min(1e-9)).max()) < 1e-5


def test_a_batch_gives_what_single_structures_give(structures):
    fast = potential("plain", fast=True)
    graphs = [fast.graph(atoms) for atoms in structures]
    together = fast.energy_gradients(graphs)
    single = torch.cat([fast.energy_gradients([graph]) for graph in graphs])
    assert torch.allclose(together, single, rtol=0, atol=1e-12 * float(single.abs().max()))
    shuffled = fast.energy_gradients(graphs[::-1]).flip(0)
    assert torch.allclose(together, shuffled, rtol=0, atol=1e-12 * float(single.abs().max()))


def test_frozen_parameters_have_no_columns(structures):
    module = network("one layer")
    weight = module.interactions[0].linear.weight
    weight.requires_grad_(False)
    try:
        fast = MACEPotential(module, "0" * 64)
        graphs = [fast.graph(atoms) for atoms in structures[:2]]
        rows = fast.energy_gradients(graphs)
        assert rows.shape[1] == sum(tensor.numel() for _, tensor in fast.parameters())
        assert torch.allclose(rows, energy_gradients_one_by_one(fast, graphs), rtol=1e-9, atol=1e-12)
    finally:
        weight.requires_grad_(True)


def test_an_unknown_block_falls_back_and_says_so_once(structures, caplog):
    NETWORKS["attention"] = {"interaction_cls": modules.RealAgnosticAttResidualInteractionBlock}
    try:
        fast, stock = potential("attention", fast=True), potential("attention", fast=False)
    finally:
        del NETWORKS["attention"]
    graphs = [fast.graph(atoms) for atoms in structures]
    with caplog.at_level(logging.WARNING):
        rows = [fast.energy_gradients(graphs) for _ in range(2)]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "one structure at a time" in caplog.text
    assert "layer 2 (RealAgnosticAttResidualInteractionBlock)" in caplog.text
    expected = energy_gradients_one_by_one(stock, graphs)
    assert torch.allclose(rows[0], expected, rtol=1e-9, atol=1e-12 * float(expected.abs().max()))


def test_devices(structures, device):
    module = network.__wrapped__("density").to(device)
    fast = MACEPotential(module, "0" * 64)
    graphs = [fast.graph(atoms) for atoms in structures]
    rows = fast.energy_gradients(graphs)
    assert rows.device.type == device
    expected = energy_gradients_one_by_one(fast, graphs)
    assert torch.allclose(rows, expected, rtol=1e-8, atol=1e-10 * float(expected.abs().max()))


def test_a_structure_with_nan_does_not_spoil_its_batch(structures):
    fast = potential("plain", fast=True)
    broken = fast.graph(structures[2])
    broken.positions[0] = torch.nan
    rows = fast.energy_gradients([broken, *(fast.graph(atoms) for atoms in (structures[0], structures[3]))])
    assert torch.isfinite(rows).all(1).tolist() == [False, True, True]


def test_without_gradients_enabled_and_after_inference_mode(structures):
    fast = MACEPotential(network.__wrapped__("plain"), "0" * 64)
    graphs = [fast.graph(atoms) for atoms in structures[:2]]
    with torch.inference_mode():
        fast.energies(graphs)
    with torch.no_grad():
        rows = fast.energy_gradients(graphs)
    assert torch.allclose(rows, energy_gradients_one_by_one(fast, graphs), rtol=1e-9, atol=1e-12)
