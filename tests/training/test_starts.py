"""Trainings that begin with a network that somebody has: all but its weights stays as it is."""

import copy
import dataclasses
import logging
import subprocess
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from adaptntk.cli.app import app
from adaptntk.data.structures import write_structures
from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.mace.stock import modules, o3
from adaptntk.models.registry import load_potential
from adaptntk.training.checkpoint import training_identity
from adaptntk.training.loop import TrainingOptions, train
from tests.conftest import TINY_RECIPE
from tests.models.mace.networks import NUMBERS, build

SHORT = dataclasses.replace(TINY_RECIPE, epochs=2)
HEADS = ["dft", "ccsd"]
ODD = {
    "radial_type": "gaussian",
    "gate": torch.tanh,
    "r_max": 3.7,
    "num_polynomial_cutoff": 7,
    "avg_num_neighbors": 5.3,
    "pair_repulsion": True,
    "distance_transform": "Agnesi",
    "interaction_cls_first": modules.RealAgnosticDensityInteractionBlock,
    "interaction_cls": modules.RealAgnosticDensityResidualInteractionBlock,
    "hidden_irreps": o3.Irreps("6x0e + 6x1o"),
    "radial_MLP": [6, 7],
    "heads": HEADS,
    "atomic_energies": np.array([[-1.5 * z for z in NUMBERS], [-11.0 * z for z in NUMBERS]]),
    "atomic_inter_scale": [0.5, 1.5],
    "atomic_inter_shift": [0.1, 0.2],
}
UNKNOWN = {"interaction_cls": modules.RealAgnosticResidualNonLinearInteractionBlock, "edge_irreps": o3.Irreps("4x0e")}
PLAIN = (bool, int, float, str, tuple, list, type(None), o3.Irreps)


def settings(module) -> dict:
    """Everything of a network but what a training may change: the trainable weights, and the shift of its energies."""
    found = {}
    for place, part in module.named_modules():
        written = vars(part).items() if type(part).__module__.startswith(("mace", "e3nn")) else ()
        values = {name: value for name, value in written if isinstance(value, PLAIN) and name != "training"}
        found[place] = type(part).__name__, sorted(values.items())
    for name, tensor in module.state_dict(keep_vars=True).items():
        kept = None if tensor.requires_grad or name == "scale_shift.shift" else tensor.tolist()
        found[f"tensor {name}"] = tensor.dtype, tuple(tensor.shape), tensor.requires_grad, kept
    return found


def saved(module, path):
    torch.save(module, path)
    return path


def continued(parts, path, output, **how):
    """What comes of a short training from a file."""
    start = load_potential(path, "cpu", head=how.pop("head", None))
    options = TrainingOptions(start=start, **how)
    return start, train(parts["train"][:10], parts["valid"], output, SHORT, device="cpu", options=options).potential


def test_all_settings_of_a_network_stay(parts, tmp_path, caplog):
    module = build(ODD)
    frozen = ["node_embedding.linear.weight", "interactions.0.linear_up.weight"]
    for name in frozen:
        module.get_parameter(name).requires_grad_(False)
    path = saved(module, tmp_path / "theirs.model")
    with caplog.at_level(logging.WARNING):
        start, ours = continued(parts, path, tmp_path / "ours.model", head="ccsd")
    assert "training changes what all heads share" in caplog.text
    assert (ours.head, ours.dtype, ours.cutoff) == ("ccsd", torch.float64, 3.7)
    assert ours.isolated_energies == start.isolated_energies
    before, after = settings(module), settings(ours.module)
    assert before.keys() == after.keys()
    assert {name: (before[name], after[name]) for name in before if before[name] != after[name]} == {}
    assert all(torch.equal(module.get_parameter(name), ours.module.get_parameter(name)) for name in frozen)
    moved = [name for name, p in ours.parameters() if not torch.equal(p, module.get_parameter(name))]
    assert moved == [name for name, _ in start.parameters()]
    # Stock MACE reads it and says the same.
    stock = torch.load(tmp_path / "ours.model", weights_only=False)
    assert stock.heads == HEADS
    predicted = (p.predict(parts["test"][:2]).energies for p in (ours, MACEPotential(stock, head="ccsd", fast=False)))
    assert np.allclose(*predicted)


def test_what_only_other_heads_use_is_not_touched(parts, tmp_path):
    """Whatever the recipe's weight decay."""
    module = build(ODD)
    _, ours = continued(parts, saved(module, tmp_path / "theirs.model"), tmp_path / "ours.model", head="ccsd")
    for name in ("readouts.0.linear.weight", "readouts.1.linear_1.weight", "readouts.1.linear_2.weight"):
        old, new = (
            network.get_parameter(name).view(-1, 2, 4)
            if "1.linear_1" in name
            else network.get_parameter(name).view(-1, 2, 1)
            for network in (module, ours.module)
        )
        assert torch.equal(old[:, 0], new[:, 0]), name
        assert not torch.equal(old[:, 1], new[:, 1]), name
    assert ours.module.scale_shift.shift[0] == 0.1
    assert ours.module.scale_shift.shift[1] != 0.2


def test_the_precision_may_be_chosen(parts, tmp_path):
    path = saved(build({}), tmp_path / "theirs.model")
    for dtype, expected in ((None, torch.float64), ("float32", torch.float32)):
        assert continued(parts, path, tmp_path / "ours.model", dtype=dtype)[1].dtype == expected


def test_layers_without_a_twin_are_trained_too(parts, tmp_path, caplog):
    path = saved(build(UNKNOWN), tmp_path / "theirs.model")
    with caplog.at_level(logging.WARNING):
        start, ours = continued(parts, path, tmp_path / "ours.model")
    assert "several times slower than others" in caplog.text
    assert settings(start.module) == settings(ours.module)
    assert not torch.equal(start.weights(), ours.weights())


def test_a_head_has_a_checkpoint_of_its_own(parts, tmp_path):
    """Two trainings from one file in two heads are not the same."""
    path, identities = saved(build(ODD), tmp_path / "theirs.model"), set()
    for head in HEADS:
        start = load_potential(path, head=head)
        identities.add(training_identity(parts["train"], parts["valid"], SHORT, 0, "float64", start))
    assert len(identities) == 2


@pytest.mark.long
def test_a_training_of_mace_run_train_is_continued(parts, tmp_path):
    for name in ("train", "valid"):
        write_structures(tmp_path / f"{name}.xyz", parts[name][:10])
    command = [
        sys.executable, "-W", "ignore", "-m", "mace.cli.run_train", "--name=theirs", "--train_file=train.xyz",
        "--valid_file=valid.xyz", "--E0s={1: -10.7, 6: -48.8, 8: -102.6}", "--hidden_irreps=6x0e + 6x1o", "--max_ell=2",
        "--correlation=2", "--r_max=3.9", "--batch_size=5", "--max_num_epochs=2", "--device=cpu", "--work_dir=.",
        "--radial_MLP=[8]", "--gate=tanh", "--num_radial_basis=5", "--num_cutoff_basis=6",
        "--pair_repulsion", "--distance_transform=Agnesi", "--scaling=std_scaling", "--eval_interval=1", "--ema",
        "--interaction=RealAgnosticDensityResidualInteractionBlock", "--seed=1", "--swa", "--start_swa=1",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    for name in ("theirs.model", "theirs_stagetwo.model"):
        start, ours = continued(parts, tmp_path / name, tmp_path / "ours.model")
        assert ours.dtype == torch.float64
        theirs = copy.deepcopy(torch.load(tmp_path / name, weights_only=False)).requires_grad_(True)
        before, after = settings(theirs), settings(ours.module)
        assert {name: (before[name], after[name]) for name in before if before[name] != after.get(name)} == {}
        assert ours.isolated_energies[6] == -48.8
        assert not torch.equal(start.weights(), ours.weights())


def command_line(files, folder, *words):
    command = ["train", "--train", str(files["train"]), "--valid", str(files["valid"]), "--preset", "tiny"]
    return CliRunner().invoke(app, [*command, "--epochs", "1", "-o", str(folder / "ours.model"), *map(str, words)])


def test_from_the_command_line(files, tmp_path):
    path = saved(build(ODD), tmp_path / "theirs.model")
    done = command_line(files, tmp_path, "--start", path, "--head", "ccsd")
    assert done.exit_code == 0, done.output
    assert "training changes what all heads share" in done.stderr
    ours = load_potential(tmp_path / "ours.model", head="ccsd")
    assert (ours.cutoff, ours.dtype, ours.heads) == (3.7, torch.float64, HEADS)


def test_a_start_that_is_trusted(files, tmp_path):
    """What it brings is needed again to read what was made of it."""
    module = build({})
    module.stranger = Stranger()
    path = saved(module, tmp_path / "theirs.model")
    assert "pass --trust-model" in command_line(files, tmp_path, "--start", path).output
    done = command_line(files, tmp_path, "--start", path, "--trust-model")
    assert done.exit_code == 0, done.output


class Stranger(torch.nn.Module):
    """No layer of MACE."""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--start", "theirs.model", "--channels", "8"], "--channels is for new networks"),
        (["--start", "theirs.model", "--cutoff", "3"], "--cutoff is for new networks"),
        (["--start", "theirs.model", "--energy-reference", "mean"], "--energy-reference is for new networks"),
        (["--start", "theirs.model", "--e0s", "H:-1"], "--e0s is for new networks"),
        (["--head", "dft"], "--head is about the model of --start"),
        (["--trust-model"], "--trust-model is about the model of --start"),
        (["--start", "theirs.model"], "choose one with --head"),
        (["--start", "theirs.model", "--head", "mp2"], "theirs.model: the model has no head 'mp2'"),
        (["--start", "absent.model"], "absent.model"),
        (["--start", "ours.model"], "it is also the start of this command"),
    ],
)
def test_what_does_not_go_with_a_start(files, tmp_path, monkeypatch, words, message):
    saved(build(ODD), tmp_path / "theirs.model")
    monkeypatch.chdir(tmp_path)
    done = command_line(files, tmp_path, *words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "ours.model").exists()
