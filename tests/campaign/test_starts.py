"""Campaigns that begin with a model of several heads."""

import numpy as np
import pytest
import torch

from adaptntk import verbs
from adaptntk.campaign.config_file import check_content, read_config
from adaptntk.campaign.loop import run_campaign
from adaptntk.data.structures import write_structures
from adaptntk.errors import AdaptNTKError
from adaptntk.models.registry import load_potential
from adaptntk.uncertainty.file import load_fitted
from tests.campaign.conftest import SMALL, write_config
from tests.models.mace.networks import NUMBERS, build

HEADS = ["dft", "ccsd"]


@pytest.fixture
def folder(tmp_path, ethanol_frames):
    """A model in float64 whose heads count energies differently, and structures to begin with."""
    energies = np.array([[-10.0 * z for z in NUMBERS], [-11.0 * z for z in NUMBERS]])
    torch.save(build({"heads": HEADS, "atomic_energies": energies}), tmp_path / "heads.model")
    write_structures(tmp_path / "start.xyz", ethanol_frames[:3])
    return tmp_path


def config_of(folder, start=(), **changes):
    begin = {"molecule": None, "structures": "start.xyz", "model": "heads.model", "displacement": 0.02}
    return write_config(folder, start=begin | dict(start), stop={"rounds": 1}, **changes)


@pytest.mark.parametrize("mode", ["fine-tune", "scratch"])
def test_a_head_is_chosen_by_name(folder, mode):
    run, _ = run_campaign(config_of(folder, {"head": "ccsd"}, train={"mode": mode, "epochs": 1}))
    first, last = (load_fitted(run / "rounds" / number / "model.ntk", device="cpu") for number in ("00", "01"))
    assert first.potential.head == "ccsd"
    assert first.potential.isolated_energies[6] == -66.0
    given = load_potential(folder / "heads.model", head="ccsd")
    assert torch.equal(first.potential.weights(), given.weights())
    if mode == "scratch":  # a network of our own, with one head
        assert (last.potential.head, last.potential.dtype) == ("Default", torch.float32)
    else:
        assert (last.potential.head, last.potential.dtype) == ("ccsd", torch.float64)
        assert last.potential.module.heads == HEADS
        assert not torch.equal(last.potential.weights(), given.weights())


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({}, r"heads.model: the model has several heads: choose one with .* start.head of a campaign \(dft, ccsd\)"),
        ({"head": "mp2"}, r"heads.model: the model has no head 'mp2': choose one of dft, ccsd"),
        ({"head": "dft", "model": None}, "a head is one of a model: give model"),
    ],
)
def test_a_head_that_cannot_be_is_refused_before_labels_are_paid_for(folder, start, message):
    config = config_of(folder, start)
    for check in (lambda: verbs.config.check(config=config), lambda: run_campaign(config)):
        with pytest.raises(AdaptNTKError, match=message) as caught:
            check()
        assert "\n" not in str(caught.value)
    assert not (folder / "runs").exists()


def test_a_network_that_is_kept_has_the_sizes_it_has(folder):
    config = config_of(folder, {"head": "dft"}, train={"mode": "fine-tune", "channels": 8, "cutoff": 3.0})
    with pytest.raises(AdaptNTKError, match=r"train\.channels, train\.cutoff: fine-tuning keeps the network"):
        verbs.config.check(config=config)


def test_the_sketch_is_compared_with_the_network_that_there_will_be(folder):

    def check(mode, dim):
        config = config_of(folder, {"head": "dft"}, train={"mode": mode}, uncertainty={"sketch_dim": dim})
        return verbs.config.check(config=config, no_label=True).text

    with pytest.raises(AdaptNTKError, match="more than the 788 parameters of the network tiny"):
        check("scratch", 1000)
    with pytest.raises(AdaptNTKError, match=r"more than the 1,256 parameters of the network of .*, head dft"):
        check("fine-tune", 1500)
    assert "heads.model, head dft, 1,256 parameters in float64; sketch sparse of 1000" in check("fine-tune", 1000)


def test_runs_that_wrote_the_precision_down_go_on(tmp_path):
    """Before, it was float32 where nobody chose it."""
    config = read_config(write_config(tmp_path))
    before = config.model_dump(mode="json")
    before["train"]["dtype"] = "float32"
    del before["start"]["head"]
    assert check_content(before, tmp_path / "run.json").identity() == config.identity()
    assert SMALL["train"].get("dtype") is None
