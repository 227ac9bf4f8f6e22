"""What an option cannot be: numbers out of range, pipes in place of models, keys that no frame has."""

import os

import pytest
from typer.testing import CliRunner

from adaptntk.cli.app import app
from adaptntk.errors import InputError
from adaptntk.verbs import evaluate


@pytest.fixture
def fit_arguments(files, trained, tmp_path):
    return ["fit", trained.source, "--train", files["train"], "--valid", files["valid"], "-o", tmp_path / "a.ntk"]


@pytest.mark.parametrize(
    ("option", "value", "cause"),
    [
        ("--seed", 2**64, "--seed must be at most"),
        ("--seed", "9" * 400, "--seed must be at most"),
        ("--sketch-seed", 2**64, "--sketch-seed must be at most"),
        ("--alpha", "1e300", "alpha must be positive, and between"),
        ("--device", "meta", "device 'meta' cannot be used"),
        ("--executor", "magic", "unknown executor 'magic'"),
        ("--scheduler", "tcp://127.0.0.1:1", "a scheduler belongs to the executor dask"),
        ("--forces-key", "positions", "'positions' cannot be the forces"),
    ],
)
def test_of_a_fit(refused, fit_arguments, option, value, cause):
    refused(*fit_arguments, option, value, cause=cause)


@pytest.mark.parametrize("option", ["--temperature", "--timestep", "--friction"])
def test_of_dynamics(refused, ntk_file, files, tmp_path, option):
    arguments = "md", ntk_file, files["pool"], "-o", tmp_path / "o.xyz", "--coverage", 0.9, option, "1e308"
    refused(*arguments, cause=f"the {option[2:]} of the dynamics must be positive and at most")


def test_a_seed_below_zero(ntk_file, files, tmp_path):
    with pytest.raises(InputError, match="--seed must be at least 0, not -1"):
        evaluate(ntk=ntk_file, test=files["test"], output=tmp_path / "report", seed=-1)
    arguments = [str(word) for word in ("evaluate", ntk_file, files["test"], "-o", tmp_path / "report", "--seed", -1)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "--seed" in result.stderr


def test_the_table_of_a_figure_is_an_output_too(refused, ntk_file, files, tmp_path):
    arguments = "select", ntk_file, files["pool"], "-n", 2, "-o", tmp_path / "o.csv", "--figure", tmp_path / "o.png"
    refused(*arguments, cause="also the table beside the figure")


@pytest.mark.parametrize("name", ["pipe", "pipe.model"])
def test_a_pipe_is_no_model(refused, fit_arguments, ntk_file, files, tmp_path, name):
    pipe = tmp_path / name
    os.mkfifo(pipe)
    refused("fit", pipe, *fit_arguments[2:], cause=f"{pipe}: is no ordinary file")
    refused("fit", f"mace:{pipe}", *fit_arguments[2:], cause=f"{pipe}: is no ordinary file")
    arguments = "score", ntk_file, files["pool"], "-o", tmp_path / "o.xyz", "--model", pipe
    refused(*arguments, cause=f"{pipe}: is no ordinary file")
    refused("score", pipe, files["pool"], "-o", tmp_path / "o.xyz", cause="is no ordinary file; give a .ntk file")


def test_a_key_that_is_named_must_be_there(refused, ntk_file, files, tmp_path):
    arguments = "evaluate", ntk_file, files["test"], "-o", tmp_path / "report", "--energy-key", "dft_enregy"
    refused(*arguments, cause="frame 0: no label 'dft_enregy'")
