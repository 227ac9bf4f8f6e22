"""The benchmarks of cost run and write what they promise; times themselves are not tested."""

import json

import pytest
import torch
from benchmarks.cost.selection import bmdal_maxdet, naive, random_features

from adaptntk.core.posterior import Posterior
from adaptntk.core.selection.greedy import greedy
from adaptntk.core.selection.problem import Problem
from adaptntk.core.selection.registry import SELECTORS
from tests.benchmarks.conftest import succeed


def test_the_same_picks_by_three_ways():
    train, candidates = random_features(100, 300, 16)
    lam = 1e-4 * float(train.square().sum(1).mean())
    posterior = Posterior.fit(train, lam)
    picks = greedy(Problem.of_features(posterior, train, candidates, 8)).indices
    assert picks == naive(train, candidates, lam, 8)
    assert picks == bmdal_maxdet(posterior, candidates, 8)()
    assert torch.equal(random_features(100, 300, 16)[1], candidates)


@pytest.mark.long
def test_features(tmp_path, files):
    shown = succeed("features", "--preset", "smoke", "--structures", files["train"], "-o", tmp_path / "out")
    content = json.loads((tmp_path / "out" / "features.json").read_text())
    assert {"date", "commit", "machine", "versions", "preset"} <= content.keys()
    network = content["networks"]["small"]
    assert network["largest_relative_error"] < 1e-5
    assert {"loop", "torch.func", "gradients"} <= network["milliseconds"].keys()
    assert 0 < network["sketches"]["adaptntk srht"]["distance_error"] < 0.6
    assert (tmp_path / "out" / "features.png").stat().st_size > 5_000
    assert "loop + sketch / features = " in shown


@pytest.mark.long
def test_selection(tmp_path):
    shown = succeed("selection", "--preset", "smoke", "-o", tmp_path / "out")
    content = json.loads((tmp_path / "out" / "selection.json").read_text())
    assert content["same_picks"] == {"naive": True, "bmdal_reg": True}
    assert content["selectors"].keys() == SELECTORS.keys()
    assert all(found["seconds"] > 0 and found["peak_gibibytes"] > 0.05 for found in content["selectors"].values())
    # Ten times the pool, and memory within a tenth.
    assert content["peak_memory"]["ratio"] < 1.1
    assert (tmp_path / "out" / "selection.png").stat().st_size > 5_000
    assert "same picks: naive yes, bmdal_reg yes" in shown


@pytest.mark.long
def test_scores(tmp_path):
    shown = succeed("scores", "--preset", "smoke", "-o", tmp_path / "out")
    found = json.loads((tmp_path / "out" / "scores.json").read_text())["networks"]["tiny, water"]
    assert found["milliseconds"].keys() == {"prediction", "energy row", "joint row", "committee"}
    assert found["ratios"]["committee of 16 / prediction"]["median"] > 1
    assert "joint row / energy row = " in shown


@pytest.mark.long
def test_step(tmp_path):
    shown = succeed("step", "--preset", "smoke", "-o", tmp_path / "out")
    content = json.loads((tmp_path / "out" / "step.json").read_text())
    (found,) = content["milliseconds"]
    assert all(found[ratio]["median"] > 0 for ratio in ("ours / recorded", "stock / recorded", "stock / ours"))
    assert content["stacked over separate"].keys() == {"2"}
    assert "2 stacked networks / separate ones = " in shown
