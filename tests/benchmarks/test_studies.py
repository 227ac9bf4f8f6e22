"""The studies behind committed records, made small: the real code on less data."""

import json

import numpy as np
import pytest
from benchmarks.monitor import cost, run as monitor, runs
from benchmarks.monitor.run import outcome
from benchmarks.uq import ablation, other_data
from benchmarks.uq.run import PLANS

from adaptntk.data.splits import split_structures
from benchmarks import aspirin
from tests.benchmarks.conftest import succeed


class Told:
    """A recorded run with these errors."""

    def __init__(self, *errors: float) -> None:
        self.errors = np.array(errors)


@pytest.mark.parametrize(
    ("stop", "expected"), [(0, "before"), (1, "same frame"), (2, "late"), (None, "missed")], ids=str
)
def test_what_a_rule_did_in_a_run_that_went_wrong(stop, expected):
    assert outcome(Told(0.1, 0.9, 0.2), stop, 0.5) == expected


def test_what_a_rule_did_in_a_run_that_went_well():
    assert outcome(Told(0.1, 0.2), None, 0.5) == "quiet"
    assert outcome(Told(0.1, 0.2), 1, 0.5) == "false alarm"


@pytest.fixture
def small_plan(monkeypatch, ethanol_frames):
    """140 frames instead of 2,000, and a tiny network."""
    sizes = {"train": 40, "valid": 30, "calibration": 20, "evaluation": 50}
    plan = PLANS["smoke"].__class__(PLANS["smoke"].recipe, sizes)
    monkeypatch.setattr(ablation, "PLAN", plan)
    monkeypatch.setattr(ablation, "load_rmd17", lambda molecule: ethanol_frames)


@pytest.mark.long
def test_ablation(small_plan, tmp_path):
    succeed("ablation", "-o", tmp_path, "--molecule", "ethanol", "--epochs", "2")
    found = json.loads((tmp_path / "ablation-ethanol-0.json").read_text())
    assert {"exact", "centred", "sketch 128"} <= found["features"].keys()
    assert all(-1 <= entry["best"] <= 1 for entry in found["features"].values())
    assert set(found["epochs"]["2"]) == {"force_rmse", "ntk", "ntk effective_dimension", "energy", "ensemble"}


@pytest.mark.long
def test_other_data(small_plan, ethanol_frames, hot_frames, tmp_path, monkeypatch):
    parts = split_structures(ethanol_frames, {"train": 40, "valid": 30}, 0)
    monkeypatch.setattr(other_data, "acetylacetone", lambda: (parts, {"300 K": hot_frames}))
    monkeypatch.setattr(other_data, "with_xtb", lambda molecule, temperature: (parts, {"hot": hot_frames}))
    succeed("other-data", "-o", tmp_path)
    found = json.loads((tmp_path / "other-data.json").read_text())["spearman"]
    assert list(found) == ["acac, 300 K", "ethanol-300, hot", "acetic acid-500, hot"]
    assert set(found["acac, 300 K"]) == {"force_rmse", *other_data.METHODS}


@pytest.mark.long
def test_aspirin(ethanol_frames, tmp_path, monkeypatch):
    monkeypatch.setattr(aspirin, "SIZES", {"train": 40, "valid": 40, "test": 40})
    monkeypatch.setattr(aspirin, "PRESET", "tiny")
    monkeypatch.setattr(aspirin, "load_rmd17", lambda molecule: ethanol_frames)
    succeed("aspirin", "-o", tmp_path)
    found = json.loads((tmp_path / "aspirin.json").read_text())
    assert found["validation_force_rmse"] > 0
    assert found["metrics"]["structures"] == 40
    assert found["ridge"]["lam"] > 0


@pytest.mark.long
def test_monitor(tmp_path, monkeypatch):
    trajectories = {"train": (1, 30), "valid": (1, 20), "calibration": (2, 50), "test": (2, 1)}
    monkeypatch.setattr(runs, "TRAJECTORIES", trajectories)
    monkeypatch.setattr(runs, "SPACING", 2)
    monkeypatch.setattr(runs, "STEPS", 50)
    monkeypatch.setattr(runs, "PRESET", "tiny")
    monkeypatch.setattr(cost, "ROUNDS", 1)
    monkeypatch.setattr(monitor, "COVERAGES", (0.99,))
    monkeypatch.setattr(monitor, "SETS", {"development": range(1), "test": range(1, 2)})
    succeed("monitor", "-o", tmp_path)
    found = json.loads((tmp_path / "md_monitor.json").read_text())
    assert {row["set"] for row in found["chosen"]} == {"development", "test"}
    assert set(found["frames"]["test"]) == {"300 K", "1200 K"}
    assert found["cost"]["ours, monitor every step"]["over_ours_without"]["median"] > 0
