"""All methods side by side, from nothing; and again after a kill."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from benchmarks.settings import listed
from benchmarks.uq.run import PLANS
from benchmarks.uq.summary import summarise

from adaptntk.core import metrics
from adaptntk.files import locked
from adaptntk.uncertainty.folder_workbench import FolderWorkbench
from tests.benchmarks.conftest import invoke, succeed

COMMAND = ["uq", "--preset", "smoke", "--seeds", "1", "--error-model", "--device", "cpu"]


@pytest.fixture(scope="module")
def finished(shared) -> Path:
    """A smoke run from an empty folder, without interruption."""
    folder = shared("uq", lambda folder: succeed(*COMMAND, "-o", folder / "out")) / "out"
    table = (folder / "table.md").read_text()
    for row in ("NTK + error model", "ensemble of 3", "predicted energy", "constant sigma"):
        assert row in table
    return folder


@pytest.mark.long
def test_what_it_leaves(finished):
    results = json.loads((finished / "results.json").read_text())
    methods = results["molecules"]["ethanol"]["methods"]
    assert set(methods) == {*listed(PLANS["smoke"].methods), "error_model"}
    for name, entry in methods.items():
        for which in ("own", "common"):
            found = entry[which]
            assert found["spearman"]["low"] < found["spearman"]["mean"] < found["spearman"]["high"], name
            assert 0 < found["ence_cross_fitted"]["mean"] < 1
            assert found["ence"]["mean"] > 0
            assert 0.5 < found["coverage_0.9"]["mean"] <= 1
    # Methods on the same single model have the same error both ways, a committee has not.
    for name in ("ntk", "last_layer", "energy"):
        own, common = (methods[name][which]["force_rmse"]["mean"] for which in ("own", "common"))
        assert own == pytest.approx(common, rel=1e-6)  # predicted in batches of other sizes
    assert methods["ensemble"]["own"]["force_rmse"] != methods["ensemble"]["common"]["force_rmse"]
    assert methods["ntk"]["own"]["difference_to_ntk"]["spearman"]["mean"] == 0
    costs = json.loads((finished / "timings.json").read_text())["ratios to one training"]["ethanol"]
    assert costs["ntk"]["training"] == 1
    spent = FolderWorkbench.read_seconds(finished / "ethanol" / "seed-0" / "networks")
    members = sum(seconds for name, seconds in spent.items() if name.startswith("member-"))
    assert costs["ensemble"]["training"] == pytest.approx(members / spent["member-0"])
    assert (finished / "table.md").read_text().count("| NTK ") == 4
    for figure in ("scatter", "risk-coverage", "reliability"):
        assert (finished / f"{figure}-ethanol.png").stat().st_size > 20_000


@pytest.mark.long
def test_growth_goes_on_with_the_networks_that_are_there(finished, tmp_path):
    folder = tmp_path / "out"
    shutil.copytree(finished, folder)
    networks = folder / "ethanol" / "seed-0" / "networks"
    before = {path.name: path.stat().st_mtime_ns for path in networks.glob("member-0*")}
    succeed("growth", "--preset", "smoke", "--seeds", "1", "--jobs", "2", "--device", "cpu", "-o", folder)
    assert {path.name: path.stat().st_mtime_ns for path in networks.glob("member-0*")} == before
    found = json.loads((folder / "growth" / "growth.json").read_text())
    (scan,), sizes = found["scans"]["ethanol"], found["sizes"]["ethanol"]
    # No force rows is the score of the paper, but for the ridge and the sketch: far from that of many rows.
    assert scan["rows"]["0"] < scan["rows"]["16"]
    assert scan["ridge"]["gain"] == pytest.approx(
        scan["ridge"]["ranks"][scan["ridge"]["alphas"].index(scan["ridge"]["chosen"])] - scan["rows"]["16"], abs=1e-6
    )
    assert scan["members"]["64"]["atoms"] > scan["members"]["4"]["atoms"]
    assert scan["displaced"]["64"]["it or bonded to it"] >= scan["displaced"]["64"]["it"] > 1 / 9
    assert sorted((size["labels"], size["channels"]) for size in sizes) == [(16, 4), (48, 4), (48, 8)]
    assert (folder / "growth" / "growth.png").stat().st_size > 20_000


@pytest.mark.long
def test_the_splits_are_disjoint_and_shared(finished):
    with np.load(finished / "ethanol" / "seed-0" / "common.npz") as common:
        sets = {part: set(common[f"{part}_structures"]) for part in ("train", "valid", "calibration", "evaluation")}
    assert len(set.union(*sets.values())) == sum(len(found) for found in sets.values())
    rows = (finished / "ethanol" / "seed-0" / "evaluation.csv").read_text().splitlines()
    assert {row.split(",")[0] for row in rows[1:]} == sets["evaluation"]


@pytest.mark.long
def test_killed_half_way_and_resumed(finished, tmp_path):
    """SIGKILL in the middle of the third training; then the same results, to the last digit."""
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "benchmarks", *COMMAND, "-o", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    progress = folder / "ethanol" / "seed-0" / "networks" / "member-2.seconds"
    deadline = time.monotonic() + 600
    while not (progress.exists() and len(progress.read_text().split()) >= 4):
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (folder / "results.json").exists()
    assert (folder / "ethanol" / "seed-0" / "ntk.npz").exists()
    assert not (folder / "ethanol" / "seed-0" / "ensemble.npz").exists()
    ntk = os.stat(folder / "ethanol" / "seed-0" / "ntk.npz").st_mtime_ns
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "resuming after step" in again.stderr
    assert os.stat(folder / "ethanol" / "seed-0" / "ntk.npz").st_mtime_ns == ntk
    assert (folder / "results.json").read_bytes() == (finished / "results.json").read_bytes()


@pytest.mark.long
def test_two_at_once_and_other_experiments_are_refused(finished, files):
    with locked(finished):
        result = invoke(*COMMAND, "-o", finished)
    assert result.exit_code == 2
    assert "another process is working there" in result.output
    result = invoke(*COMMAND, "-o", finished, "--data", files["train"])
    assert result.exit_code == 2
    assert "another experiment" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--preset", "huge"], "choose one of cpu, converged, paper, smoke"),
        (["--methods", "ntk,oracle"], "unknown method 'oracle'"),
        (["--methods", "ensemble"], "ntk must be among"),
        (["--seeds", "0"], "at least one seed"),
        (["--data", "nowhere.xyz"], "choose rmd17, xtb, sets or a labelled extxyz file"),
        (["--molecules", "unobtainium"], "unknown molecule"),
    ],
)
def test_bad_options(options, message, tmp_path):
    result = invoke(*COMMAND, "-o", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert message in result.output


def test_a_file_that_is_too_small(tmp_path, files):
    result = invoke(*COMMAND, "-o", tmp_path / "out", "--data", files["train"])
    assert result.exit_code == 2
    assert "structures are needed, but there are only 40" in result.output


def test_the_summary_by_hand():
    """Two seeds of two methods whose scores are known: the error itself, and noise."""
    rng = np.random.default_rng(0)

    def seed():
        errors = {part: rng.uniform(0.1, 0.3, 100) for part in ("calibration", "evaluation")}
        common = {f"{part}_error": error for part, error in errors.items()} | {"evaluation_atoms": np.full(100, 9)}

        def method(variance):
            return {
                f"{part}_{key}": value
                for part, error in errors.items()
                for key, value in {
                    "score": variance(error),
                    "variance": variance(error),
                    "kind": "variance",
                    "error": 2 * error,
                    "energy_error": error,
                }.items()
            }

        return {"common": common, "ntk": method(np.square), "noise": method(lambda e: rng.uniform(1, 2, len(e)))}

    loaded = [seed(), seed()]
    found = summarise(loaded, ["ntk", "noise"])
    oracle = found["methods"]["ntk"]
    assert oracle["own"]["spearman"]["mean"] == pytest.approx(1)
    assert oracle["own"]["pearson"]["mean"] == pytest.approx(1)
    assert oracle["own"]["aurc_n"]["mean"] == pytest.approx(0)
    assert oracle["own"]["ence_cross_fitted"]["mean"] < 0.01
    assert oracle["own"]["force_rmse"]["mean"] == pytest.approx(2 * found["force_rmse"]["mean"])
    noise = found["methods"]["noise"]["common"]
    expected = [metrics.spearman(s["noise"]["evaluation_variance"], s["common"]["evaluation_error"]) for s in loaded]
    assert noise["spearman"]["by_seed"] == pytest.approx(expected)
    assert noise["spearman"]["mean"] == pytest.approx(np.mean(expected))
    difference = noise["difference_to_ntk"]["spearman"]
    assert difference["mean"] == pytest.approx(np.mean(expected) - 1)
    assert difference["high"] < 0
