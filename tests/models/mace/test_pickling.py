"""The bytes of a model file depend on the network alone."""

import copy
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from adaptntk.models.mace.pickling import network_bytes
from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.mace.unpickling import read_network
from adaptntk.models.registry import load_potential
from tests.models.mace.hostile import saved
from tests.models.mace.networks import network

TRAIN = """
import sys
from adaptntk.data.structures import read_structures
from adaptntk.training.loop import train
from adaptntk.training.recipe import PRESETS

sets = [read_structures(name, labelled=True) for name in sys.argv[1:3]]
train(*sets, sys.argv[3], PRESETS["tiny"], seed=3, device="cpu")
"""


@pytest.mark.parametrize("name", ["plain", "foundation", "two heads"])
def test_wherever_a_network_comes_from(name):
    built = network(name)
    content = network_bytes(built)
    assert network_bytes(copy.deepcopy(built)) == content
    for written in (content, saved(built)):
        assert network_bytes(read_network(written)) == content
        assert network_bytes(torch.load(io.BytesIO(written), weights_only=False)) == content


def test_stock_mace_reads_them(structures):
    """With the same results, to the last bit, and by the twin to rounding."""
    first, second = network("plain"), torch.load(io.BytesIO(network_bytes(network("plain"))), weights_only=False)
    for fast in (True, False):
        a, b = (MACEPotential(module, fast=fast).predict(structures) for module in (first, second))
        allowed = 1e-12 * fast
        assert np.allclose(a.energies, b.energies, rtol=allowed, atol=0)
        assert all(np.abs(x - y).max() <= allowed * np.abs(x).max() for x, y in zip(a.forces, b.forces, strict=True))


def test_another_process_makes_the_same_bytes(files, trained, tmp_path):
    """The same training, with other hashes of strings and under another name; then loaded, used and saved again."""
    environment = os.environ | {"PYTHONHASHSEED": "1234", "OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, "-W", "ignore", "-c", TRAIN, files["train"], files["valid"], tmp_path / "other.model"]
    subprocess.run(command, check=True, env=environment)
    content = Path(trained.source).read_bytes()
    assert (tmp_path / "other.model").read_bytes() == content
    load_potential(trained.source, "cpu").save(tmp_path / "again.model")
    assert (tmp_path / "again.model").read_bytes() == content


def test_other_weights_are_other_bytes():
    other = copy.deepcopy(network("plain"))
    with torch.no_grad():
        next(other.parameters()).view(-1)[0] += 1e-9
    assert network_bytes(other) != network_bytes(network("plain"))
