"""``adaptntk fit --method`` and what the other verbs make of its files."""

import json

import ase.io
import numpy as np
import pytest
from typer.testing import CliRunner

from adaptntk.cli.app import app
from adaptntk.data.structures import ENERGY, FORCES, write_structures
from adaptntk.training.loop import train
from adaptntk.uncertainty.file import load_fitted
from tests.conftest import TINY_RECIPE

PAPER = ("--features", "energy")


@pytest.fixture(scope="module")
def second(parts, shared):
    """Another member of the committee."""

    def make(folder):
        train(parts["train"], parts["valid"], folder / "second.model", TINY_RECIPE, seed=4, device="cpu")

    return shared("second", make) / "second.model"


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def fit(trained, files, output, *more):
    return run("fit", trained.source, "--train", files["train"], "--valid", files["valid"], "-o", output, *more)


@pytest.mark.long
def test_members_trained_side_by_side_are_those_trained_one_after_another(trained, files, parts, tmp_path):
    scores = []
    for executor in ("serial", "local"):
        options = ["--method", "ensemble", "--option", "members=3", "--preset", "tiny", "--epochs", 1]
        output = tmp_path / f"{executor}.uq"
        result = fit(trained, files, output, *options, "--executor", executor, "--workers", 2)
        assert result.exit_code == 0, result.output
        assert len(list((tmp_path / f"{executor}.uq.networks").glob("*.model"))) == 2
        scores.append(load_fitted(output, device="cpu").score(parts["pool"]).variance)
    assert scores[1] == pytest.approx(scores[0], rel=1e-2)


def test_an_ensemble_from_files(trained, second, files, tmp_path):
    """Fit, score, evaluate and select with a committee of two given networks; nothing is trained."""
    fitted = tmp_path / "committee.uq"
    result = fit(trained, files, fitted, "--method", "ensemble", "--option", "members=2", "--member", second)
    assert result.exit_code == 0, result.output
    assert "method       ensemble, networks: " in result.output
    assert not list((tmp_path / "committee.uq.networks").glob("*.model"))

    result = run("score", fitted, files["pool"], "-o", tmp_path / "scored.xyz")
    assert result.exit_code == 0, result.output
    frames = ase.io.read(tmp_path / "scored.xyz", ":")
    assert all({"ensemble_variance", "forces_uncertainty", "forces_error_bound"} <= a.info.keys() for a in frames)
    means = load_fitted(fitted, device="cpu").assess(ase.io.read(files["pool"], ":"))
    assert np.allclose([a.info["predicted_energy"] for a in frames], means.energies, atol=1e-4)
    assert np.allclose([a.arrays["predicted_forces"] for a in frames], means.forces, atol=1e-4)

    result = run("evaluate", fitted, files["test"], "-o", tmp_path / "report")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "report" / "evaluation.json").read_text())
    assert found["method"] == "ensemble"
    assert (tmp_path / "report" / "evaluation.png").stat().st_size > 10_000

    result = run("select", fitted, files["pool"], "-n", 5, "--method", "topb", "-o", tmp_path / "batch.xyz")
    assert result.exit_code == 0, result.output
    batch = ase.io.read(tmp_path / "batch.xyz", ":")
    highest = sorted((a.info["ensemble_variance"] for a in frames), reverse=True)[:5]
    assert [a.info["ensemble_variance"] for a in batch] == pytest.approx(highest)

    for options in (["--method", "adaptntk"], ["--method", "topb", "--min-separation", "0.1"]):
        result = run("select", fitted, files["pool"], "-n", 5, "-o", tmp_path / "batch.xyz", *options)
        assert result.exit_code == 2
        assert "ensemble has only scores" in result.output
    result = run("score", fitted, files["pool"], "-o", tmp_path / "scored.xyz", "--store", tmp_path / "store")
    assert result.exit_code == 2
    assert "--store keeps features, and ensemble has none" in result.output


def test_a_method_that_needs_nothing_else(trained, files, tmp_path):
    result = fit(trained, files, tmp_path / "a.uq", "--method", "last_layer", "--option", "alpha=1e-3")
    assert result.exit_code == 0, result.output
    assert "sigma^2 = " in result.output
    # It has features, so every rule can select with it.
    for rule in ("adaptntk", "lcmd"):
        result = run("select", tmp_path / "a.uq", files["pool"], "-n", 5, "-o", tmp_path / "b.xyz", "--method", rule)
        assert result.exit_code == 0, result.output
        batch = ase.io.read(tmp_path / "b.xyz", ":")
        assert [atoms.info["pick"] for atoms in batch] == [1, 2, 3, 4, 5]
        assert all("last_layer_variance" in atoms.info for atoms in batch)


def test_what_the_validation_set_cannot_tell_is_said(trained, files, parts, tmp_path):
    result = fit(trained, files, tmp_path / "a.ntk", "--alpha", "1e-3")
    assert "ridge        alpha 0.001, lam " in result.output
    assert "(given)" in result.output
    result = fit(trained, files, tmp_path / "a.uq", "--method", "last_layer", "--option", "alpha=1e-8")
    assert "ridge        alpha 1e-08, lam " in result.output
    assert "edge" not in result.output
    # Among twelve structures, none can be told from the others.
    write_structures(tmp_path / "few.xyz", parts["valid"][:12])
    edges = [
        fit(trained, files, tmp_path / "a.ntk", *PAPER, "--alpha", alpha, "--lam-criterion", "spearman").output
        for alpha in ("1e-8", "0.1")
    ]
    assert any("at the edge of its grid" in output for output in edges)
    result = fit(trained, files, tmp_path / "a.ntk", *PAPER, "--valid", tmp_path / "few.xyz")
    assert "12 validation structures are too few to choose, alpha 1e-0" in result.output
    result = fit(trained, files, tmp_path / "a.uq", "--method", "random")
    assert "note         the score says nothing about the force error on the calibration set" in result.output


@pytest.mark.parametrize("method", ["ntk", "last_layer", "energy"])
def test_labels_in_kcal_are_refused_whatever_the_method(method, trained, files, parts, tmp_path, refused):
    frames = [atoms.copy() for atoms in parts["valid"]]
    for atoms in frames:
        atoms.info[ENERGY] *= 23.06
        atoms.arrays[FORCES] *= 23.06
    write_structures(tmp_path / "kcal.xyz", frames)
    refused(
        "fit", trained.source, "--train", files["train"], "--valid", tmp_path / "kcal.xyz", "-o", tmp_path / "a.uq",
        "--method", method, cause="kcal/mol",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "oracle"], "unknown method 'oracle': choose one of ntk, error_model"),
        (["--method", "dropout", "--option", "rate=much"], "must be of type float"),
        (["--method", "dropout", "--option", "rate=2"], "must lie between 0 and 1"),
        (["--method", "ensemble", "--option", "members=1"], "at least two members"),
        (["--method", "dropout"], "not built like the networks of this preset"),
        (["--method", "swag", "--preset", "huge"], "choose one of fast, standard"),
        (["--option", "dim=64"], "--option is for other methods than ntk"),
        (["--method", "energy", "--sketch", "none"], "--sketch is for the method ntk alone"),
        (["--method", "energy", "--member", "a.model"], "further members are for an ensemble"),
        (["--method", "swag", "--option", "scale=-1"], "scale of SWAG must be positive"),
        (["--method", "evidential", "--option", "steps=3"], "at least 10 steps"),
    ],
)
def test_bad_options(options, message, trained, files, tmp_path):
    result = fit(trained, files, tmp_path / "a.uq", *options)
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert not (tmp_path / "a.uq").exists()
