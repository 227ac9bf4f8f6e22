"""The benchmarks run and write what they promise; times themselves are not tested."""

import json
import re

import pytest
from typer.testing import CliRunner

from adaptntk.cli.app import app
from adaptntk.core.selection.registry import SELECTORS


@pytest.mark.parametrize("verb", ["features", "selection", "training"])
@pytest.mark.long
def test_a_benchmark_runs_and_is_recorded(verb, tmp_path, files):
    command = ["benchmark", verb, "--preset", "smoke", "-o", str(tmp_path / "out")]
    if verb != "selection":
        command += ["--structures", str(files["train"])]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "out" / f"{verb}.json").read_text())
    assert {"date", "commit", "machine", "versions", "preset"} <= content.keys()
    if verb == "features":
        network = content["networks"]["small"]
        assert network["largest_relative_error"] < 1e-5
        assert {"loop", "torch.func", "gradients"} <= network["milliseconds"].keys()
        assert 0 < network["sketches"]["adaptntk srht"]["distance_error"] < 0.6
    elif verb == "selection":
        assert all(content["same_picks"].values())
        assert content["same_picks"].keys() == {"naive", "bmdal_reg"}
        assert content["selectors"].keys() == SELECTORS.keys()
        assert all(found["seconds"] > 0 and found["peak_gibibytes"] > 0.05 for found in content["selectors"].values())
        # Ten times the pool, and memory within a tenth.
        assert content["peak_memory"]["ratio"] < 1.1
    else:
        ours, theirs = (
            content["networks"]["small"]["best_validation_force_rmse_mev"][k] for k in ("adaptntk", "mace_run_train")
        )
        assert ours == pytest.approx(theirs, rel=0.2)
    if verb != "training":
        assert (tmp_path / "out" / f"{verb}.png").stat().st_size > 5_000


def test_unknown_preset(tmp_path):
    result = CliRunner().invoke(app, ["benchmark", "selection", "--preset", "huge", "-o", str(tmp_path)])
    assert result.exit_code == 2
    assert "choose one of full, smoke" in result.output


@pytest.mark.long
def test_demo_and_campaigns_beside_one_another(tmp_path):
    """Two campaigns on the smallest molecule, with real labels; under its other name nothing is repeated."""
    folder = tmp_path / "demo"
    asked = ["-o", str(folder), "--molecule", "water", "--preset", "smoke"]
    result = CliRunner().invoke(app, ["demo", *asked])
    assert result.exit_code == 0, result.output
    assert re.search(r"\d+ labels (of AdaptNTK do what 34 random ones do|did not bring AdaptNTK)", result.output)
    assert f"open {folder / 'report.html'}" in result.output
    assert (folder / "report.html").stat().st_size > 500_000
    results = json.loads((folder / "results.json").read_text())
    labels = {
        method: sorted((folder / "runs" / f"{method}-0" / "labels").glob("*.xyz")) for method in results["curves"]
    }
    assert set(labels) == {"adaptntk", "random"}
    for method in labels:
        assert results["curves"][method][0]["labels"] == [22, 28, 34]
        assert len(labels[method]) == 34
    # Both began with the same labels and the same model.
    first = [results["curves"][method][0]["force_rmse"][0] for method in ("adaptntk", "random")]
    assert first[0] == first[1]
    assert results["summary"]["random"]["final_over_random"]["mean"] == 1.0
    written = {path: path.stat().st_mtime_ns for path in labels["adaptntk"]}
    again = CliRunner().invoke(app, ["benchmark", "campaign", *asked, "--seeds", "1"])
    assert again.exit_code == 0, again.output
    assert "labels to random's last" in again.output
    assert written == {path: path.stat().st_mtime_ns for path in labels["adaptntk"]}
    assert json.loads((folder / "results.json").read_text()) == results
