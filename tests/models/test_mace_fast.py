"""The fast twin against the stock network, and batched gradients against one backward pass per structure."""

import copy
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import ase.build
import numpy as np
import pytest
import torch
from ase import Atoms

from adaptntk.models.mace.layout import Groups, Layout, Order
from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.mace.stock import modules, o3, quiet, readouts
from adaptntk.models.protocol import energy_gradients_one_by_one

NUMBERS = [1, 6, 7, 8, 14]

NETWORKS = {
    "plain": {},
    "degree 1": {"correlation": 1},
    "degree 3, l = 3": {"correlation": 3, "max_ell": 3},
    "l = 2 hidden": {"hidden_irreps": o3.Irreps("4x0e + 4x1o + 4x2e"), "correlation": 3, "max_ell": 2},
    "scalars only": {"hidden_irreps": o3.Irreps("8x0e")},
    "one layer": {"num_interactions": 1},
    "three layers": {"num_interactions": 3},
    "many channels": {"hidden_irreps": o3.Irreps("40x0e + 40x1o")},
    "residual first": {"interaction_cls_first": modules.RealAgnosticResidualInteractionBlock},
    "density": {
        "interaction_cls_first": modules.RealAgnosticDensityInteractionBlock,
        "interaction_cls": modules.RealAgnosticDensityResidualInteractionBlock,
    },
    "agnostic product": {"use_agnostic_product": True},
    "no parity": {"use_so3": True, "correlation": 3, "hidden_irreps": o3.Irreps("4x0e + 4x1e")},
    "an output that nothing reaches": {"use_so3": True},
    "full couplings": {"use_reduced_cg": False, "correlation": 3},
    "foundation": {"pair_repulsion": True, "distance_transform": "Agnesi", "radial_MLP": [8, 8, 8]},
    "cutoff on the weights": {"apply_cutoff": False},
    "last readout": {"use_last_readout_only": True},
    "biased readout": {"readout_cls": readouts[2]},
    "two heads": {"heads": ["one", "two"]},
}


@cache
def network(name: str, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    options = NETWORKS[name]
    heads = options.get("heads", ["Default"])
    settings = {
        "r_max": 4.0,
        "num_bessel": 4,
        "num_polynomial_cutoff": 5,
        "max_ell": 2,
        "interaction_cls": modules.RealAgnosticResidualInteractionBlock,
        "interaction_cls_first": modules.RealAgnosticInteractionBlock,
        "num_interactions": 2,
        "num_elements": len(NUMBERS),
        "hidden_irreps": o3.Irreps("4x0e + 4x1o"),
        "MLP_irreps": o3.Irreps("4x0e"),
        "atomic_energies": np.array([[-float(z) for z in NUMBERS]] * len(heads)),
        "avg_num_neighbors": 8.0,
        "atomic_numbers": NUMBERS,
        "correlation": 2,
        "gate": torch.nn.functional.silu,
        "radial_MLP": [8],
        "atomic_inter_scale": [1.3] * len(heads),
        "atomic_inter_shift": [0.2] * len(heads),
    }
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with quiet(), torch.random.fork_rng():
            torch.manual_seed(0)
            module = modules.ScaleShiftMACE(**(settings | options))
            for parameter in module.parameters():  # biases begin at zero
                parameter.data += 0.1 * torch.randn_like(parameter) * parameter.requires_grad
            return module
    finally:
        torch.set_default_dtype(default)


def potential(name: str, fast: bool, dtype: torch.dtype = torch.float64) -> MACEPotential:
    head = NETWORKS[name].get("heads", [None])[-1]
    return MACEPotential(network(name, dtype), "0" * 64, head=head, fast=fast)


@pytest.fixture(scope="module")
def structures(ethanol_frames) -> list[Atoms]:
    """Different sizes and elements, open and periodic, one atom without neighbours."""
    silicon = ase.build.bulk("Si", cubic=True)
    silicon.rattle(0.05, rng=np.random.default_rng(0))
    slab = ase.build.bulk("Si")
    slab.pbc = (True, True, False)
    ammonia = ase.build.molecule("NH3")
    lonely = Atoms("OH", positions=[[0, 0, 0], [9.0, 0, 0]])
    return [*ethanol_frames[:2], silicon, ammonia, slab, lonely, Atoms("H")]


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


def test_devices(structures, device):
    module = network.__wrapped__("density").to(device)
    fast = MACEPotential(module, "0" * 64)
    graphs = [fast.graph(atoms) for atoms in structures]
    rows = fast.energy_gradients(graphs)
    assert rows.device.type == device
    expected = energy_gradients_one_by_one(fast, graphs)
    assert torch.allclose(rows, expected, rtol=1e-8, atol=1e-10 * float(expected.abs().max()))


def test_threads_do_not_disturb_each_other(structures):
    """The twin keeps the layout of its batch while it works: calls must wait for one another."""
    fast = potential("plain", fast=True)
    graphs = [[fast.graph(atoms)] for atoms in structures[:4]]
    expected = [float(fast.energies(graph).detach()) for graph in graphs]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda graph: float(fast.energies(graph).detach()), graphs * 10))
    assert np.allclose(found, expected * 10, rtol=0, atol=1e-10)


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


def test_a_copy_is_a_network_of_its_own(structures):
    fast = potential("plain", fast=True)
    copied = copy.deepcopy(fast)
    with torch.no_grad():
        for _, tensor in copied.parameters():
            tensor.zero_()
    assert not np.allclose(fast.predict(structures[:1]).energies, copied.predict(structures[:1]).energies)


@pytest.mark.parametrize("labels", [[0, 0, 1, 1], [2, 0, 1, 0, 2, 2], [1, 1, 1], [0], [3, 3, 0]])
def test_groups_sum_as_a_loop_does(labels):
    labels = np.array(labels)
    count = int(labels.max()) + 2
    rows = torch.randn(len(labels), 3, dtype=torch.float64)
    groups = Groups(labels, count, torch.device("cpu"))
    expected = torch.zeros(count, 3, dtype=torch.float64)
    for row, label in zip(rows, labels.tolist(), strict=True):
        expected[label] += row
    assert torch.allclose(groups.collect_padded(rows).sum(1), expected)
    # An outer product is right as long as one of its factors is padded with zeros.
    outer = groups.collect_padded(rows).transpose(1, 2) @ groups.collect(rows)
    expected = torch.zeros(count, 3, 3, dtype=torch.float64)
    for row, label in zip(rows, labels.tolist(), strict=True):
        expected[label] += torch.outer(row, row)
    assert torch.allclose(outer, expected)


def test_order_is_undone():
    labels = np.array([2, 0, 1, 0, 2])
    order = Order(labels, torch.device("cpu"))
    rows = torch.arange(5.0)[:, None]
    assert order.sort(rows).ravel().tolist() == [1, 3, 2, 0, 4]
    assert torch.equal(order.restore(order.sort(rows)), rows)
    assert (order.values, order.sizes) == ([0, 1, 2], [2, 1, 2])


def test_every_edge_has_one_slot():
    rng = np.random.default_rng(0)
    neighbours = rng.integers(0, 30, size=50)
    layout = Layout(np.zeros(50, int), np.zeros(50, int), neighbours, 1, torch.device("cpu"))
    slots = layout.padded_edges.numpy()
    edges = int(neighbours.sum())
    assert sorted(slots[slots < edges].tolist()) == list(range(edges))
    receiver = np.repeat(np.arange(50), neighbours)
    owner = np.where(slots < edges, receiver[np.minimum(slots, edges - 1)], slots - edges)
    first = 0
    atoms = layout.by_width.order.numpy()
    for count, width in layout.width_groups:
        for _ in range(count):
            assert set(owner[first : first + width]) == {atoms[0]}
            first, atoms = first + width, atoms[1:]
    assert first == len(slots) < 1.4 * edges
