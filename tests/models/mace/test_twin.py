"""The fast twin against the stock network."""

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from adaptntk.models.mace.geometry import Harmonics
from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.mace.stock import o3
from tests.models.mace.networks import NETWORKS, network, potential


@pytest.mark.parametrize("name", NETWORKS)
def test_the_twin_is_the_same_function(name, structures):
    stock, fast = potential(name, fast=False), potential(name, fast=True)
    assert type(fast.network._twin.interactions[0].conv_tp).__name__ == "Convolution"
    graphs = [stock.graph(atoms) for atoms in structures]
    options = {"training": True, "compute_force": True, "compute_stress": True, "compute_virials": True}
    expected, found = (p.evaluate(graphs, **options) for p in (stock, fast))
    for key in ("energy", "node_energy", "forces", "stress", "virials", "node_feats", "interaction_energy"):
        assert torch.allclose(expected[key], found[key], rtol=1e-10, atol=1e-11), key
    parameters = [tensor for _, tensor in stock.parameters()]
    losses = [out["forces"].square().sum() + out["energy"].square().sum() for out in (expected, found)]
    gradients = [torch.autograd.grad(loss, parameters, allow_unused=True) for loss in losses]
    for (label, _), a, b in zip(stock.parameters(), *gradients, strict=True):
        assert (a is None and b is None) or torch.allclose(a, b, rtol=1e-8, atol=1e-9 * float(a.abs().max())), label


def test_a_network_beyond_degree_3_is_left_alone(ethanol_frames):
    NETWORKS["degree 4"] = {"correlation": 4, "max_ell": 1}
    try:
        fast, stock = potential("degree 4", fast=True), potential("degree 4", fast=False)
    finally:
        del NETWORKS["degree 4"]
    predicted, expected = (p.predict(ethanol_frames[:2]) for p in (fast, stock))
    assert np.allclose(predicted.energies, expected.energies, rtol=0, atol=1e-10)


def test_the_saved_model_is_the_stock_one(tmp_path, structures):
    module = network("plain")
    before = {name: type(child).__name__ for name, child in module.named_modules()}
    fast = MACEPotential(module, "0" * 64)
    fast.energy_gradients([fast.graph(atoms) for atoms in structures])
    fast.save(tmp_path / "a.model")
    content = torch.load(tmp_path / "a.model", weights_only=False)
    assert {name: type(child).__name__ for name, child in content.named_modules()} == before
    assert not hasattr(content.interactions[0], "conv_fusion")
    again = MACEPotential(content, fast=False).predict(structures)
    assert np.allclose(again.energies, fast.predict(structures).energies, rtol=0, atol=1e-10)


def test_the_twin_follows_its_network(structures):
    """Weights changed in place, and a network moved to another precision."""
    module = network.__wrapped__("plain")
    fast = MACEPotential(module, "0" * 64)
    with torch.no_grad():
        for _, tensor in fast.parameters():
            tensor.mul_(1.1)
    stock = MACEPotential(module, "0" * 64, fast=False)
    assert np.allclose(fast.predict(structures).energies, stock.predict(structures).energies, rtol=0, atol=1e-10)
    module.to(torch.float32)
    assert np.allclose(fast.predict(structures).energies, stock.predict(structures).energies, rtol=1e-6)
    assert fast.energy_gradients([fast.graph(structures[0])]).dtype == torch.float32


def test_threads_do_not_disturb_each_other(structures):
    """The twin keeps the layout of its batch while it works: calls must wait for one another."""
    fast = potential("plain", fast=True)
    graphs = [[fast.graph(atoms)] for atoms in structures[:4]]
    expected = [float(fast.energies(graph).detach()) for graph in graphs]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda graph: float(fast.energies(graph).detach()), graphs * 10))
    assert np.allclose(found, expected * 10, rtol=0, atol=1e-10)


def test_a_copy_is_a_network_of_its_own(structures):
    fast = potential("plain", fast=True)
    copied = copy.deepcopy(fast)
    with torch.no_grad():
        for _, tensor in copied.parameters():
            tensor.zero_()
    assert not np.allclose(fast.predict(structures[:1]).energies, copied.predict(structures[:1]).energies)


def test_the_slopes_of_the_harmonics_are_the_same_bits_each_time():
    """Whatever lies in memory: a committee multiplies what the last bit of the forces decides."""
    rng, beside, found = np.random.default_rng(0), [], set()
    for _ in range(12):
        beside.append(np.zeros(rng.integers(1, 5000)))
        stock = o3.SphericalHarmonics([0, 1, 2, 3], normalize=True, normalization="component")
        found.add(Harmonics(stock).constant.numpy().tobytes())
    assert len(found) == 1
