"""Campaigns beside one another, and the demo, which is one seed of them."""

import json

import pytest
from typer.testing import CliRunner

from adaptntk.cli.app import app
from tests.benchmarks.conftest import invoke, succeed


@pytest.mark.long
def test_demo_and_campaigns_beside_one_another(tmp_path):
    """Two campaigns on the smallest molecule, with real labels; under its other name nothing is repeated."""
    folder = tmp_path / "demo"
    asked = ["-o", str(folder), "--molecule", "water", "--preset", "smoke"]
    result = CliRunner().invoke(app, ["demo", *asked])
    assert result.exit_code == 0, result.output
    assert "| selection | 22 labels | 28 labels | 34 labels | area, over random |" in result.output
    assert f"open {folder / 'report.html'}" in result.output
    assert (folder / "report.html").stat().st_size > 500_000
    written = {path: path.stat().st_mtime_ns for path in (folder / "runs").glob("*-0/labels/*.xyz")}
    assert len(written) == 2 * 34
    assert "labels to random's last" in succeed("campaign", *asked, "--seeds", "1")
    assert written == {path: path.stat().st_mtime_ns for path in (folder / "runs").glob("*-0/labels/*.xyz")}
    results = json.loads((folder / "results.json").read_text())
    assert set(results["curves"]) == {"adaptntk", "random"}
    for found in results["curves"].values():
        assert found[0]["labels"] == [22, 28, 34]
    # Both began with the same labels and the same model.
    first = [results["curves"][method][0]["force_rmse"][0] for method in ("adaptntk", "random")]
    assert first[0] == first[1]
    assert results["summary"]["random"]["final_over_random"]["mean"] == 1.0
    (needed,) = results["summary"]["adaptntk"]["labels_to_random"]
    told = "34 labels did not bring" if needed is None else f"{needed:.0f} labels of AdaptNTK do what 34 random ones do"
    assert told in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--preset", "huge"], "choose one of cpu, smoke"),
        (["--methods", "adaptntk"], "random must be among"),
        (["--methods", "oracle,random"], "unknown selection method 'oracle'"),
    ],
)
def test_bad_options(options, message, tmp_path):
    result = invoke("campaign", "-o", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert message in result.output
