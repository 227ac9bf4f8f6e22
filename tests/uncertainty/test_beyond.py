"""Structures of which nothing is known: beyond the calibration, or atoms that have no neighbours."""

import ase.io
import numpy as np
import pytest
from ase import Atoms
from typer.testing import CliRunner

from adaptntk.cli.app import app
from adaptntk.core.calibration import beyond_sentence, lone_sentence
from adaptntk.data.structures import ENERGY, FORCES, read_structures, write_structures
from adaptntk.errors import InputError
from adaptntk.md.dynamics import MDSettings, run_md
from adaptntk.md.exploration import score_of
from adaptntk.md.watch import Watch
from adaptntk.uncertainty.file import load_fitted, save_fitted
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.workbench import GivenModel


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def apart(symbols, distance=20.0):
    """Atoms too far from one another, with their labels."""
    atoms = Atoms(symbols)
    atoms.positions[:, 0] = distance * np.arange(len(atoms))
    atoms.info[ENERGY], atoms.arrays[FORCES] = -10.0 * atoms.numbers.sum(), np.zeros((len(atoms), 3))
    return atoms


def with_one_apart(atoms):
    """The hydrogen atom of the hydroxyl group has left."""
    gone = atoms.copy()
    gone.positions[8] += 50.0
    return gone


@pytest.fixture(scope="module")
def strange(parts):
    """Two known structures, two squeezed ones, one with an atom far away, and three without any neighbours."""
    squeezed = [atoms.copy() for atoms in parts["pool"][2:4]]
    for atoms in squeezed:
        atoms.positions *= 0.7
    return [*parts["valid"][:2], *squeezed, with_one_apart(parts["pool"][4]), apart("H"), apart("C"), apart("CHO")]


@pytest.mark.parametrize("name", ["ntk", "last_layer", "distance", "ensemble"])
def test_flags(name, fit_by_name, strange):
    fitted = fit_by_name(name)
    scores = fitted.score(strange)
    assert scores.lone.tolist() == [False] * 5 + [True] * 3
    assert scores.lone_atoms.tolist() == [0, 0, 0, 0, 1, 1, 1, 3]
    assert not scores.beyond[:2].any()
    assert scores.beyond[4:].all()
    assert np.isnan(scores.sigma[5:]).all()
    assert np.isnan(scores.energy_sigma[5:]).all()
    assert np.isfinite(scores.sigma[:5]).all()
    if name != "distance":
        assert scores.beyond[2:4].all()
        assert (scores.variance[2:4] > fitted.calibration.largest).all()
    for index, (beyond, lone) in enumerate(zip(scores.beyond, scores.lone, strict=True)):
        entries = fitted.entries(scores, index, 0.9)
        assert entries["beyond_calibration"] is bool(beyond)
        assert ("forces_uncertainty" in entries) == ("forces_error_bound" in entries) == (not lone)
        assert entries.get("lone_atoms", 0) == scores.lone_atoms[index]
        _, observed = fitted.observe(strange[index])
        assert fitted.entries(observed, 0, 0.9).keys() == entries.keys()


def test_the_calibration_set_itself_is_not_beyond(fit_by_name, parts):
    for name in ("ntk", "last_layer", "ensemble"):
        assert not fit_by_name(name).score(parts["valid"]).beyond.any()


def test_without_a_calibration(trained, parts, strange):
    fitted = fit(GivenModel(parts["train"], potential=trained))
    scores = fitted.score(strange)
    assert scores.beyond is scores.sigma is None
    assert scores.lone.sum() == 3
    assert fitted.entries(scores, 7, 0.9).keys() == {"ntk_variance", "lone_atoms"}
    assert [*fitted.remarks(scores.beyond, scores.lone, "structures")] == [lone_sentence(3, 8)]


def test_every_verb_says_so(ntk_file, fitted, strange, parts, tmp_path):
    write_structures(tmp_path / "strange.xyz", strange)
    output = run("score", ntk_file, tmp_path / "strange.xyz", "-o", tmp_path / "scored.xyz")
    largest = f"{fitted.calibration.largest:.4g}"
    assert f"3 of 8 structures lie beyond what was calibrated (largest known U {largest})" in output
    assert "3 of 8 structures consist of atoms without neighbours only" in output
    scored = ase.io.read(tmp_path / "scored.xyz", ":")
    assert [bool(atoms.info["beyond_calibration"]) for atoms in scored] == [False] * 2 + [True] * 6
    assert [int(atoms.info.get("lone_atoms", 0)) for atoms in scored] == [0, 0, 0, 0, 1, 1, 1, 3]
    assert ["forces_uncertainty" in atoms.info for atoms in scored] == [True] * 5 + [False] * 3

    output = run("select", ntk_file, tmp_path / "strange.xyz", "-n", 2, "-o", tmp_path / "batch.xyz")
    assert "3 of 8 candidates lie beyond what was calibrated" in output
    assert "2 of the 2 picks lie there: their sigma is extrapolated" in output
    assert all(atoms.info["beyond_calibration"] for atoms in ase.io.read(tmp_path / "batch.xyz", ":"))
    output = run("select", ntk_file, tmp_path / "strange.xyz", "-n", 1, "-o", tmp_path / "batch.xyz")
    assert "1 of the 1 picks lies there: its sigma is extrapolated" in output

    write_structures(tmp_path / "known.xyz", parts["valid"])
    output = run("score", ntk_file, tmp_path / "known.xyz", "-o", tmp_path / "scored.xyz")
    assert "beyond" not in output
    assert "neighbours" not in output
    write_structures(tmp_path / "alone.xyz", strange[5:6])
    output = run("score", ntk_file, tmp_path / "alone.xyz", "-o", tmp_path / "scored.xyz")
    assert "1 of 1 structures consists of atoms without neighbours only" in output


def test_a_simulation_that_flies_apart_is_lost_and_not_certain(ntk_file, fitted, tmp_path):
    write_structures(tmp_path / "start.xyz", [apart("CHO")])
    arguments = ("--steps", 20, "--every", 5, "--keep-going")
    output = run("md", ntk_file, tmp_path / "start.xyz", "-o", tmp_path / "run.xyz", *arguments)
    assert "stopped at step 0: no atom has a neighbour that the model sees" in output
    assert "1 of 1 frames consists of atoms without neighbours only" in output
    (frame,) = read_structures(tmp_path / "run.xyz")
    assert frame.info["lone_atoms"] == 3
    assert frame.info["beyond_calibration"]
    assert "forces_uncertainty" not in frame.info
    assert score_of(frame) == np.inf
    assert Watch(0.9).not_lost([frame], fitted.calibration) == []


def test_frames_of_a_simulation_carry_flags(fitted, parts):
    hot = run_md(fitted, parts["train"][0], MDSettings(temperature=3000, steps=60, interval=5), [], seed=1)
    flags = [frame.info["beyond_calibration"] for frame in hot.frames]
    assert flags == [frame.info["ntk_variance"] > fitted.calibration.largest for frame in hot.frames]
    assert any(flags)
    told = [*fitted.remarks_of(hot.frames)][-1]  # after what is said of the calibration itself
    assert told == beyond_sentence(sum(flags), len(flags), fitted.calibration.largest, "frames")


def test_isolated_atoms_in_training_and_validation(trained, parts, caplog):
    """They may be there, and say nothing about errors."""
    alone = [apart("H"), apart("C"), apart("O")]
    bench = GivenModel([*parts["train"], *alone], [*parts["valid"], *alone], potential=trained)
    with caplog.at_level("INFO"):
        found = fit(bench)
    assert "3 isolated atoms are left out of the calibration" in caplog.text
    assert len(found.calibration.variances) == len(parts["valid"])
    assert not found.calibration.lone_atoms
    plain = fit(GivenModel([*parts["train"], *alone], parts["valid"], potential=trained))
    assert vars(found.calibration.forces) == pytest.approx(vars(plain.calibration.forces), rel=1e-4)
    assert found.features.ridge == plain.features.ridge
    with pytest.raises(InputError, match="training set: all features are zero"):
        fit(GivenModel(alone, parts["valid"], potential=trained))
    few = [*parts["valid"][:8], *(apart("H" * n) for n in range(2, 6))]
    with pytest.raises(InputError, match="needs at least 10 labelled structures, better 100, not 8"):
        fit(GivenModel(parts["train"], few, potential=trained))


def test_some_lone_atoms_are_known_if_the_calibration_had_some(trained, parts, tmp_path):
    query = with_one_apart(parts["pool"][4])
    known = [with_one_apart(atoms) for atoms in parts["valid"][:10]]
    for frames, expected in ((parts["valid"], True), ([*parts["valid"][10:], *known], False)):
        found = fit(GivenModel(parts["train"], frames, potential=trained))
        save_fitted(found, tmp_path / "a.ntk")
        for each in (found, load_fitted(tmp_path / "a.ntk", potential=trained)):
            assert each.calibration.lone_atoms is not expected
            scores = each.score([query])
            assert scores.beyond.tolist() == [expected or bool(scores.variance[0] > each.calibration.largest)]
