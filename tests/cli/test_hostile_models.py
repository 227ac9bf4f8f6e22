"""Files of strangers that name a model: what the model brings is not run."""

import os
import shutil

import pytest
import torch
from typer.testing import CliRunner

from adaptntk.cli.app import app
from adaptntk.errors import MismatchError
from adaptntk.models.registry import file_hash, load_potential
from adaptntk.uncertainty.file import load_fitted, read_header
from adaptntk.uncertainty.file_header import NO_CHECKSUM, write_checksum
from tests.conftest import tiny_network
from tests.models.mace.hostile import Call, inside
from tests.models.mace.test_unpickling import ScaleShiftMACE


@pytest.fixture
def hostile(tmp_path):
    """Where a model lies that would make the file ``marker``."""

    def write(path):
        network = tiny_network().module
        torch.save(inside(network, Call(os.system, f"touch {tmp_path / 'marker'}")), path)
        return path

    yield write
    assert not (tmp_path / "marker").exists()


@pytest.fixture
def folder(ntk_file, tmp_path):
    """As it might be downloaded."""
    shutil.copy(ntk_file, tmp_path)
    shutil.copy(ntk_file.with_name("ethanol.model"), tmp_path)
    return tmp_path


def test_another_model_is_refused_before_it_is_read(folder, hostile):
    """The hash of the bytes is compared first: the message is of another model, not of what is in it."""
    found = file_hash(hostile(folder / "ethanol.model"))
    with pytest.raises(MismatchError, match="was fitted for another model: model SHA-256") as caught:
        load_fitted(folder / "ethanol.ntk")
    assert found in str(caught.value)
    with pytest.raises(MismatchError, match="another model than the one that is asked for"):
        load_potential(folder / "ethanol.model", sha256="0" * 64)


def test_a_hostile_model_beside_a_file_that_names_it(folder, hostile, files, refused):
    """With the right hash in the file."""
    found = file_hash(hostile(folder / "ethanol.model"))
    about = read_header(folder / "ethanol.ntk")
    content = (folder / "ethanol.ntk").read_bytes()
    for old, new in ((about["networks"][0]["sha256"], found), (about["checksum"], NO_CHECKSUM)):
        content = content.replace(old.encode(), new.encode())
    (folder / "ethanol.ntk").write_bytes(content)
    write_checksum(folder / "ethanol.ntk")
    system = f"{os.system.__module__}.system"
    for verb, options in {
        "score": ["-o", "s.xyz"],
        "select": ["-n", 2, "-o", "s.xyz"],
        "evaluate": ["-o", "r"],
    }.items():
        line = refused(verb, folder / "ethanol.ntk", files["pool"], *options, cause=f"names {system}, which")
        assert "nothing was run" in line
    refused("score", folder / "ethanol.ntk", files["pool"], "-o", "s.xyz", "--trust-model", cause="--model FILE")


def test_fit_does_not_run_a_model_either(tmp_path, hostile, files, refused):
    path = hostile(tmp_path / "x.model")
    sets = ["--train", files["train"], "--valid", files["valid"]]
    refused("fit", path, *sets, "-o", tmp_path / "x.ntk", cause="nothing was run")


def test_an_exotic_model_is_used_on_purpose(tmp_path, files, refused, trained):
    module = load_potential(trained.source, "cpu").module
    module.__class__ = ScaleShiftMACE
    model = tmp_path / "own.model"
    torch.save(module, model)
    sets = ["--train", files["train"], "--valid", files["valid"], "--sketch-dim", 32]
    refused("fit", model, *sets, "-o", tmp_path / "own.ntk", cause="--trust-model")

    def run(*arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    assert run("fit", model, *sets, "-o", tmp_path / "own.ntk", "--trust-model").exit_code == 0
    scored = ["score", tmp_path / "own.ntk", files["pool"], "-o", tmp_path / "s.xyz"]
    assert run(*scored).exit_code == 2
    result = run(*scored, "--model", model, "--trust-model")
    assert result.exit_code == 0, result.output
