"""Model files are read without running anything of them."""

import contextlib
import io
import os
import pickle

import numpy as np
import pytest
import torch

from adaptntk.errors import ModelError
from adaptntk.models.mace.generated import UnknownCodeError, rebuild
from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.mace.stock import modules, o3, quiet
from adaptntk.models.mace.unpickling import read_network
from adaptntk.models.registry import load_potential
from tests.conftest import tiny_network
from tests.models.mace.hostile import Call, Writer, files, inside, saved
from tests.models.mace.networks import NETWORKS, build, network


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    return folder / "marker", files(folder / "marker", lambda: tiny_network().module)


def test_nothing_of_a_file_is_run(hostile, tmp_path):
    marker, contents = hostile
    for name, content in contents.items():
        (tmp_path / "x.model").write_bytes(content)
        with pytest.raises(ModelError) as caught:
            load_potential(tmp_path / "x.model", "cpu")
        assert "\n" not in str(caught.value), name
        assert "x.model: " in str(caught.value), name
        assert not marker.exists(), name


def test_the_message_says_what_was_found(hostile, tmp_path):
    path = tmp_path / "x.model"
    path.write_bytes(hostile[1]["in a network"])
    system = f"{os.system.__module__}.system"
    with pytest.raises(ModelError, match=rf"names {system}, which no MACE model needs; nothing was run.*--trust-model"):
        load_potential(path)
    path.write_bytes(hostile[1]["torch.hub"])
    with pytest.raises(ModelError, match=r"names torch\.hub\.load_state_dict_from_url, which"):
        load_potential(path)
    for name in ("stack global", "inst"):
        path.write_bytes(hostile[1][name])
        with pytest.raises(ModelError, match=r"names os\.system, which"):
            load_potential(path)
    path.write_bytes(hostile[1]["source"])
    with pytest.raises(ModelError, match="has code in a layer that no MACE model needs"):
        load_potential(path)


def test_the_hostile_files_would_run(hostile, tmp_path):
    """With trust: so the tests above say something."""
    marker, contents = hostile
    for name in ("os.system", "in a network", "source"):
        (tmp_path / "x.model").write_bytes(contents[name])
        with contextlib.suppress(ModelError):
            load_potential(tmp_path / "x.model", trust=True)
        assert marker.exists()
        marker.unlink()


def test_compiled_code_of_a_file_is_never_loaded(tmp_path):
    """A compiled function of a layer is made again from its source; a whole file of compiled code is refused."""
    network, marker = tiny_network().module, tmp_path / "marker"
    with quiet():
        writer = torch.jit.script(Writer(marker))
    network.node_embedding.linear._compiled_main = writer
    module = read_network(saved(network))
    assert "from_file" not in str(module.node_embedding.linear._compiled_main.code)
    torch.jit.save(writer, tmp_path / "script.model")
    with pytest.raises(ModelError, match="a compiled TorchScript model"):
        load_potential(tmp_path / "script.model")
    assert not marker.exists()


@pytest.mark.parametrize(
    "line",
    ["y = self.secret", "y = x.numpy()", "y = torch.save(x, 'a')", "y = [z for z in x]", "import os", "y = lambda: 0",
     "y = torch.functional.einsum(*x)", "y = x if x else x", "del x", "y = f'{x}'", "self.y = x", "y = x.shape.a",
     "y = (z := x).reshape(1)", "y = getattr(x, 'shape')", "y = torch.functional.os.system('a')"],
)  # fmt: skip
def test_source_of_layers_has_operations_on_tensors_alone(line):
    with pytest.raises(UnknownCodeError):
        rebuild(f"def forward(self, x):\n    {line}\n    return x", {})


BLOCKS = {
    name: {"interaction_cls": kind, "interaction_cls_first": kind} for name, kind in modules.interaction_classes.items()
}


def blocks(kind):
    return {"interaction_cls": kind, "interaction_cls_first": kind}


MORE = {
    "tanh, gaussian": {"gate": torch.tanh, "radial_type": "gaussian", "avg_num_neighbors": np.float64(8.0)},
    "abs, chebyshev": {"gate": torch.abs, "radial_type": "chebyshev", "distance_transform": "Soft"},
    "no gate": {"gate": None, "edge_irreps": o3.Irreps("4x0e")},
    "attention": blocks(modules.RealAgnosticAttResidualInteractionBlock),
    "non-linear": blocks(modules.RealAgnosticResidualNonLinearInteractionBlock),
}


@pytest.mark.parametrize("name", [*NETWORKS, *MORE, "MACE", "float32"])
def test_every_kind_of_network_is_read_as_it_was(name, structures):
    """To the last bit, and by its twin to rounding."""
    if name in NETWORKS:
        module = network(name)
    elif name in MORE:
        module = build(MORE[name])
    else:
        module = build({}, kind=modules.MACE) if name == "MACE" else network("plain", torch.float32)
    content = saved(module)
    stock, read = torch.load(io.BytesIO(content), weights_only=False), read_network(content)
    first, second = ([(name, type(part).__name__) for name, part in found.named_modules()] for found in (stock, read))
    assert first == second
    for fast in (True, False):
        first, second = (
            MACEPotential(found, head=found.heads[0], fast=fast).predict(structures) for found in (stock, read)
        )
        # The twin may round otherwise from one network to the next, even if they are the same.
        allowed = fast * (1e-4 if name == "float32" else 1e-12)
        assert np.allclose(first.energies, second.energies, rtol=allowed, atol=0)
        for a, b in zip(first.forces, second.forces, strict=True):
            assert np.abs(a - b).max() <= allowed * np.abs(a).max()


class ScaleShiftMACE(modules.ScaleShiftMACE):
    """A network of somebody's own class."""


def test_an_exotic_network_is_loaded_on_purpose(tmp_path, ethanol_frames):
    module = tiny_network().module
    module.__class__ = ScaleShiftMACE
    torch.save(module, tmp_path / "own.model")
    with pytest.raises(ModelError, match=r"names tests\.models\.mace\.test_unpickling\.ScaleShiftMACE"):
        load_potential(tmp_path / "own.model")
    potential = load_potential(tmp_path / "own.model", "cpu", trust=True)
    assert potential.predict(ethanol_frames[:1]).energies == tiny_network().predict(ethanol_frames[:1]).energies


def test_hooks_and_attributes_can_only_be_what_a_file_may_name(tmp_path):
    module = inside(tiny_network().module, Call(pickle.loads, b"."))
    torch.save(module, tmp_path / "x.model")
    with pytest.raises(ModelError, match=r"names _?pickle\.loads"):
        load_potential(tmp_path / "x.model")
