"""``python -m benchmarks``: all commands, with options that are written once."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.commands import COMMANDS
from benchmarks.settings import listed

from tests.benchmarks.conftest import invoke, succeed


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_explains_its_options(command):
    shown = succeed(command.name, "--help")
    for field in dataclasses.fields(command.settings):
        assert f"--{field.name.replace('_', '-')}" in shown


def test_from_a_clone(tmp_path):
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "benchmarks", "reactions", "--only", "alchemy", "-o", str(tmp_path / "none.h5")]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == "adaptntk: no reaction has a name with 'alchemy' in it\n"


@pytest.mark.parametrize("name", ["features", "selection", "training"])
def test_unknown_preset(name, tmp_path):
    result = invoke(name, "--preset", "huge", "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "choose one of full, smoke" in result.output


def test_words_between_commas():
    assert listed("a, b,,c ") == ["a", "b", "c"]
    assert listed("") == []
