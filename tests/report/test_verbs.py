"""`adaptntk report` and `adaptntk status` as a user runs them."""

import pytest
from typer.testing import CliRunner

from adaptntk.cli.app import app
from tests.report.example_run import cut_off


@pytest.fixture
def run():
    def call(*arguments):
        return CliRunner().invoke(app, [str(a) for a in arguments])

    return call


def test_report(run, run_folder, other_folder, tmp_path):
    page = tmp_path / "page.html"
    result = run("report", run_folder, "--beside", other_folder, "-o", page)
    assert result.exit_code == 0
    assert result.output.startswith(f"wrote {page} (1.")
    assert 1e6 < page.stat().st_size < 3e6
    assert not (run_folder / "report.html").exists()


def test_report_goes_into_the_folder(run, run_folder, tmp_path):
    copy = cut_off(run_folder, tmp_path / "run", 1, ("explored.json", "pool.xyz"))
    assert run("report", copy).exit_code == 0
    assert "Round 1: selecting candidates" in (copy / "report.html").read_text()


def test_status(run, run_folder, tmp_path):
    result = run("status", run_folder)
    assert result.exit_code == 0
    for words in ("campaign ethanol", "force RMSE (meV/Å)", "80 labels, 2 failed; 6 min 38 s in all", "stopped: The"):
        assert words in result.output
    assert "…" not in result.output, "something does not fit into 80 columns"
    copy = cut_off(run_folder, tmp_path / "run", 2, ("explored.json", "pool.xyz", "picks.json"))
    assert "round 2: labelling, 0 of 11 picks" in run("status", copy).output


@pytest.mark.parametrize("verb", ["report", "status"])
def test_no_run_directory(run, run_folder, verb):
    result = run(verb, run_folder / "labels")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "not a run directory" in result.stderr
    assert not (run_folder / "labels" / "report.html").exists()


def test_unwritable_output(run, run_folder, tmp_path):
    result = run("report", run_folder, "-o", tmp_path / "absent" / "page.html")
    assert result.exit_code == 2
    assert "does not exist" in result.stderr
