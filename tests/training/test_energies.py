"""Energies of what was trained: never worse than a constant for each element, and right for isolated atoms."""

import dataclasses
import logging

import pytest
from ase import Atoms
from typer.testing import CliRunner

from adaptntk.cli.app import app
from adaptntk.data.labels import ENERGY
from adaptntk.data.structures import write_structures
from adaptntk.models.registry import load_potential
from adaptntk.training.loop import TrainingOptions, train
from adaptntk.training.recipe import PRESETS
from tests.conftest import TINY_RECIPE
from tests.crystals import strained_metals


def check_energies(recipe, metals, tmp_path, caplog):
    frames = strained_metals(36, metals, strain=0.05, sizes=(1, 2), stress=False)
    trained = train(frames[:24], frames[24:], tmp_path / "a.model", recipe, device="cpu")
    assert trained.energy_rmse_per_atom < trained.record.energy_spread
    assert "if all were the same" not in caplog.text


@pytest.mark.parametrize("metals", [("Cu",), ("Cu", "Au")])
def test_energies_of_crystals_are_better_than_a_constant(metals, tmp_path, caplog):
    """A few labels of cells of two sizes under strain, and a short training of a toy."""
    check_energies(TINY_RECIPE, metals, tmp_path, caplog)


@pytest.mark.long
@pytest.mark.parametrize("metals", [("Cu",), ("Cu", "Au")])
def test_energies_by_the_default_in_few_steps(metals, tmp_path, caplog):
    check_energies(PRESETS["standard"].lasting(steps=300), metals, tmp_path, caplog)


def test_energies_that_are_worse_are_told(tmp_path, caplog):
    frames = strained_metals(12, stress=False)
    spoilt = dataclasses.replace(TINY_RECIPE, epochs=1, learning_rate=1e-9, centre_energies=False)
    start = train(frames[:8], frames[8:], tmp_path / "a.model", spoilt, device="cpu").potential
    start.shift_energies(3.0)
    start.save(tmp_path / "b.model")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        options = TrainingOptions(start=load_potential(tmp_path / "b.model", "cpu"))
        train(frames[:8], frames[8:], tmp_path / "c.model", spoilt, device="cpu", options=options)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "if all were the same" in line


def test_a_file_with_isolated_atoms_by_the_command_line(parts, tmp_path):
    """They give the energies of elements and are no structures, for every verb that reads them."""
    energies = {"H": -10.0, "C": -45.0, "O": -110.0}
    alone = [Atoms(s, info={ENERGY: e, "config_type": "IsolatedAtom"}) for s, e in energies.items()]
    files = {name: tmp_path / f"{name}.xyz" for name in ("train", "valid", "test")}
    for name, path in files.items():
        write_structures(path, [*alone, *parts[name]])

    def run(*words):
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == 0, result.output
        return result

    given = "--train", files["train"], "--valid", files["valid"]
    model = tmp_path / "a.model"
    done = run("train", *given, "--preset", "tiny", "--epochs", "2", "-o", model)
    assert "isolated atoms of H, C, O: are no training structures" in done.stderr
    potential = load_potential(model, "cpu")
    assert potential.isolated_energies == pytest.approx({1: -10.0, 6: -45.0, 8: -110.0})
    run("fit", model, *given, "-o", tmp_path / "a.ntk", "--sketch-dim", "64")
    run("fit", model, *given, "-o", tmp_path / "e.uq", "--method", "ensemble", "--preset", "tiny", "--epochs", "2")
    member = load_potential(tmp_path / "e.uq.networks" / "member-1.model", "cpu")
    assert member.isolated_energies == pytest.approx(potential.isolated_energies)
    run("evaluate", tmp_path / "a.ntk", files["test"], "-o", tmp_path / "report")
    run("train", *given, "--preset", "tiny", "--epochs", "1", "-o", tmp_path / "b.model", "--e0s", "H=-9 C=-40 O=-100")
    assert load_potential(tmp_path / "b.model", "cpu").isolated_energies == pytest.approx({1: -9, 6: -40, 8: -100})
