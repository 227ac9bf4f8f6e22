"""The command line as a user runs it, in this process for speed and once as a real command."""

import csv
import json
import subprocess
import sys

import ase.io
import numpy as np
import pytest
from typer.testing import CliRunner

from adaptntk.cli.app import app
from adaptntk.data.structures import read_structures
from adaptntk.uncertainty.file import load_fitted
from adaptntk.version import __version__


@pytest.fixture
def run():
    def call(*arguments):
        return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)

    return call


@pytest.fixture(scope="session")
def from_command_line(trained, files, tmp_path_factory):
    """A .ntk file made by `adaptntk fit`."""
    path = tmp_path_factory.mktemp("cli") / "ethanol.ntk"
    arguments = ["fit", trained.source, "--train", files["train"], "--valid", files["valid"], "-o", path]
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return path, result.output


def test_fit_reports_ridge_calibration_and_advice(from_command_line):
    _, output = from_command_line
    for word in ("ridge ", "effective", "sigma^2 =", "of new structures like these", "exact scores", "advice "):
        assert word in output


def test_score_writes_standard_deviations(from_command_line, files, parts, fitted, tmp_path, run):
    output = tmp_path / "scored.xyz"
    result = run("score", from_command_line[0], files["pool"], "-o", output)
    assert result.exit_code == 0
    frames = ase.io.read(output, ":")
    expected = fitted.score(parts["pool"])
    assert np.allclose([a.info["ntk_variance"] for a in frames], expected.variance, rtol=1e-5)
    assert np.allclose([a.info["forces_uncertainty"] for a in frames], expected.sigma, rtol=1e-3)
    assert all(a.info["energy_uncertainty"] > 0 for a in frames)
    assert all(a.info["forces_error_bound"] > 0 for a in frames)
    assert all("REF_forces" in a.arrays for a in frames)
    predicted = fitted.potential.predict(parts["pool"])
    assert np.allclose([a.info["predicted_energy"] for a in frames], predicted.energies, atol=1e-4)
    assert np.allclose([a.arrays["predicted_forces"] for a in frames], predicted.forces, atol=1e-4)


@pytest.mark.parametrize("name", ["s.csv", "s.traj", "s.jsonl", "s.extxyz.gz"])
def test_score_writes_what_the_name_says(from_command_line, files, tmp_path, run, name):
    assert run("score", from_command_line[0], files["pool"], "-o", tmp_path / name).exit_code == 0
    content = (tmp_path / name).read_bytes()
    if name == "s.csv":
        rows = list(csv.DictReader(content.decode().splitlines()))
        assert len(rows) == 30
        assert all(float(row["forces_uncertainty"]) > 0 and float(row["predicted_energy"]) < 0 for row in rows)
    else:
        begin = {"s.traj": b"- of Ulm", "s.jsonl": b'{"numbers"', "s.extxyz.gz": b"\x1f\x8b"}[name]
        assert content.startswith(begin)
        frames = read_structures(tmp_path / name, labelled=True)
        assert all(a.arrays["predicted_forces"].shape == (9, 3) for a in frames)


@pytest.mark.parametrize("verb", [("score",), ("select", "-n", 2), ("md", "--steps", 1)])
def test_other_names_are_refused_before_the_work(files, tmp_path, run, verb):
    """Not even the .ntk file is looked for."""
    result = run(verb[0], tmp_path / "no.ntk", files["pool"], *verb[1:], "-o", tmp_path / "s.txt")
    assert result.exit_code == 2
    assert "structures are written as .xyz" in result.stderr


def test_marks_of_an_earlier_score_do_not_stay(ntk_file, parts, tmp_path, run):
    from adaptntk.data.structures import write_structures

    pool = [atoms.copy() for atoms in parts["pool"][:3]]
    for atoms in pool:
        atoms.info |= {"pick": 3, "predicted_energy": 99.0, "lone_atoms": True, "forces_uncertainty": 7.0, "kept": 1}
        atoms.arrays["predicted_forces"] = np.ones((9, 3))
    write_structures(tmp_path / "pool.xyz", pool)
    assert run("score", ntk_file, tmp_path / "pool.xyz", "-o", tmp_path / "s.xyz").exit_code == 0
    for atoms in ase.io.read(tmp_path / "s.xyz", ":"):
        assert not {"pick", "lone_atoms"} & {*atoms.info}
        assert atoms.info["kept"] == 1
        assert atoms.info["predicted_energy"] < 0
        assert atoms.info["forces_uncertainty"] < 7
        assert not np.allclose(atoms.arrays["predicted_forces"], 1)


def test_select_writes_picks_in_order(from_command_line, files, parts, fitted, tmp_path, run):
    output, figure = tmp_path / "batch.xyz", tmp_path / "picks.png"
    result = run("select", from_command_line[0], files["pool"], "-n", 8, "-o", output, "--figure", figure)
    assert result.exit_code == 0
    assert "picked 8 of 30 candidates" in result.output
    frames = ase.io.read(output, ":")
    expected = fitted.select(parts["pool"], 8)
    assert [a.info["pool_index"] for a in frames] == expected.indices
    assert [a.info["pick"] for a in frames] == list(range(1, 9))
    assert np.allclose([a.info["pick_score"] for a in frames], expected.scores, rtol=1e-4)
    assert all("predicted_forces" in a.arrays and "predicted_energy" in a.info for a in frames)
    assert figure.stat().st_size > 10_000
    rows = list(csv.DictReader((tmp_path / "picks.csv").read_text().splitlines()))
    assert sum(row["pick_score"] != "" for row in rows) == 8
    assert all((row["pick_score"] == "") == (row["pick"] == "0") for row in rows)


def test_select_options(from_command_line, files, parts, tmp_path, run):
    from adaptntk.data.structures import structure_hash, write_structures

    pool = [atoms.copy() for atoms in parts["pool"]]
    for index, atoms in enumerate(pool):
        atoms.info["run"] = f"run{index % 3}"
    write_structures(tmp_path / "pool.xyz", pool)
    write_structures(tmp_path / "known.xyz", pool[:10])
    output = tmp_path / "batch.xyz"
    for method in ("adaptntk", "topb", "random"):
        result = run(
            "select", from_command_line[0], tmp_path / "pool.xyz", "-n", 6, "-o", output, "--method", method,
            "--exclude", tmp_path / "known.xyz", "--per-group-max", "run", 2, "--min-separation", 0.01,
        )  # fmt: skip
        assert result.exit_code == 0
        batch = ase.io.read(output, ":")
        groups = [a.info["run"] for a in batch]
        assert max(groups.count(g) for g in groups) <= 2
        known = {structure_hash(a) for a in pool[:10]}
        assert not known & {structure_hash(a) for a in batch}


def test_broken_frames_are_below_no_ceiling(from_command_line, parts, tmp_path, run):
    """Of a simulation that explodes: the most uncertain of all, and no label is worth their price."""
    from adaptntk.data.structures import write_structures

    broken = [atoms.copy() for atoms in parts["pool"][:3]]
    for number, atoms in enumerate(broken):
        atoms.rattle(0.4, seed=number)
    write_structures(tmp_path / "pool.xyz", [*parts["pool"], *broken])
    command = "select", from_command_line[0], tmp_path / "pool.xyz", "-n", 5, "-o", tmp_path / "batch.xyz"
    for ceiling, left_out in (((), False), (("--ceiling", 3), True), (("--max-error", 2), True)):
        result = run(*command, *ceiling)
        assert result.exit_code == 0, result.output
        assert ("3 candidates above the ceiling were left out" in result.output) is left_out
        picked = [atoms.info["pool_index"] for atoms in ase.io.read(tmp_path / "batch.xyz", ":")]
        assert bool({30, 31, 32} & set(picked)) is not left_out


def test_evaluate_writes_a_report(from_command_line, files, tmp_path, run):
    result = run("evaluate", from_command_line[0], files["test"], "-o", tmp_path / "report")
    assert result.exit_code == 0
    for word in ("Spearman", "Pearson", "AURC_n", "ENCE", "bound at 90 %", "predicted energy alone"):
        assert word in result.output
    for word in (
        "energies: MAE",
        "  offset ",
        "cancels in differences",
        "within 2 sigma",
        "the uncertainty is of what remains",
    ):
        assert word in result.output
    metrics = json.loads((tmp_path / "report" / "evaluation.json").read_text())
    assert f"{metrics['spearman']:.3f}" in result.output
    assert (tmp_path / "report" / "evaluation.png").stat().st_size > 10_000
    rows = list(csv.DictReader((tmp_path / "report" / "evaluation.csv").open()))
    assert len(rows) == 40
    assert {float(row["energy_error"]) > 0 for row in rows} == {True, False}


@pytest.mark.parametrize(("kept", "told"), [("energy", "forces: no labels"), ("forces", "energies: no labels")])
def test_one_kind_of_label_from_fit_to_figure(trained, files, tmp_path, run, kept, told):
    """Neither forces nor energies need be labelled everywhere; what is missing is named."""
    paths = {}
    for name in ("valid", "test"):
        frames = ase.io.read(files[name], ":")
        for atoms in frames:
            del (atoms.arrays if kept == "energy" else atoms.info)["REF_forces" if kept == "energy" else "REF_energy"]
        paths[name] = tmp_path / f"{name}.xyz"
        ase.io.write(paths[name], frames)
    ntk = tmp_path / "one.ntk"
    result = run("fit", trained.source, "--train", files["train"], "--valid", paths["valid"], "-o", ntk)
    assert result.exit_code == 0
    assert f"no {'force' if kept == 'energy' else 'energy'} labels" in result.output
    result = run("evaluate", ntk, paths["test"], "-o", tmp_path / "report")
    assert result.exit_code == 0, result.output
    assert told in result.output
    assert (tmp_path / "report" / "evaluation.png").stat().st_size > 10_000
    result = run("evaluate", ntk, files["test"], "-o", tmp_path / "both")
    assert "it was calibrated without" in result.output
    result = run("score", ntk, files["pool"], "-o", tmp_path / "scored.xyz")
    assert result.exit_code == 0
    assert (f"{kept}_uncertainty" in ase.io.read(tmp_path / "scored.xyz").info) is True
    result = run("select", ntk, files["pool"], "-n", 4, "-o", tmp_path / "batch.xyz", "--figure", tmp_path / "p.png")
    assert result.exit_code == 0


def test_exact_mode(trained, files, tmp_path, run):
    ntk = tmp_path / "exact.ntk"
    result = run(
        "fit", trained.source, "--train", files["train"], "--valid", files["valid"], "-o", ntk, "--sketch", "none"
    )
    assert result.exit_code == 0
    assert "features full" in result.output
    assert run("select", ntk, files["pool"], "-n", 4, "-o", tmp_path / "batch.xyz").exit_code == 0
    assert run("score", ntk, files["pool"], "-o", tmp_path / "scored.xyz").exit_code == 0


@pytest.mark.parametrize("kind", ["srht", "sparse"])
def test_structured_sketches(trained, files, parts, paper, tmp_path, run, kind):
    """From the command line into the file and back, with the scores of the Gaussian sketch up to the sketch error."""
    output = run(
        "fit", trained.source, "--train", files["train"], "--valid", files["valid"], "-o", tmp_path / "s.ntk",
        "--features", "energy", "--sketch", kind, "--lam", paper.features.ridge.lam,
    ).output  # fmt: skip
    assert f"sketched to 512 by {kind} (the theorem is for gaussian)" in output
    assert "(exact scores)" in output
    loaded = load_fitted(tmp_path / "s.ntk", model=trained.source)
    scores, expected = (uncertainty.score(parts["test"]).variance for uncertainty in (loaded, paper))
    assert np.max(np.abs(scores - expected) / (paper.features.ridge.lam + expected)) < 0.3
    assert np.corrcoef(scores, expected)[0, 1] > 0.98


def test_a_sketch_too_large_to_check_is_estimated(trained, files, tmp_path, run):
    result = run(
        "fit", trained.source, "--train", files["train"], "--valid", files["valid"], "-o", tmp_path / "a.ntk",
        "--memory", 0.0003, "--sketch-dim", 32,
    )  # fmt: skip
    assert result.exit_code == 0
    assert "estimate from its two halves" in result.output


def test_train_and_data(tmp_path, run):
    result = run(
        "data", "md", "water", "-o", tmp_path, "--train", 8, "--valid", 4, "--test", 2, "--pool", 0, "--interval", 5
    )
    assert result.exit_code == 0
    assert len(ase.io.read(tmp_path / "train.xyz", ":")) == 8
    assert not (tmp_path / "pool.xyz").exists()
    result = run(
        "train", "--train", tmp_path / "train.xyz", "--valid", tmp_path / "valid.xyz", "--epochs", 1,
        "-o", tmp_path / "water.model",
    )  # fmt: skip
    assert result.exit_code == 0
    assert "validation force RMSE" in result.output


def test_help_is_quick_and_complete(run):
    verbs = "train fit score select evaluate md run status report demo config data"
    for verb in verbs.split():
        result = run(verb, "--help")
        assert result.exit_code == 0
        assert "Usage" in result.output
    heavy = {"torch", "mace", "matplotlib", "ase", "jinja2", "chemiscope"}
    code = f"import sys, adaptntk.cli.app; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_version(run):
    assert run("--version").output.strip() == __version__
