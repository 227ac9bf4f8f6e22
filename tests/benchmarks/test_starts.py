"""``python -m benchmarks starts``: rounds in several ways, all from one first model."""

import json

import pytest
from benchmarks.starts import PLANS, WAYS, starts_table

from tests.benchmarks.conftest import succeed


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("starts")
    succeed("starts", "--preset", "smoke", "--seeds", "1", "-o", folder)
    return folder


def test_every_way_is_measured(finished):
    results = json.loads((finished / "results.json").read_text())
    seconds = json.loads((finished / "timings.json").read_text())["cpu_seconds"]
    assert [row["way"] for row in results["rows"]] == [WAYS[0].name, *(way.name for way in WAYS)]
    assert [row["steps"] for row in results["rows"]] == [8, 8, 8, 4, 2, 2]
    assert len({row["force_rmse"] for row in results["rows"]}) == len(seconds) == 6
    assert starts_table(results, seconds) == (finished / "table.md").read_text()
    assert (finished / "starts.png").stat().st_size > 1000


def test_what_is_done_is_not_done_again(finished):
    models = {path: path.stat().st_mtime_ns for path in finished.rglob("*.model")}
    before = (finished / "results.json").read_bytes()
    (lost,) = finished.glob("seed-0/continued-0.5-1/8.json")
    lost.unlink()
    succeed("starts", "--preset", "smoke", "--seeds", "1", "-o", finished)
    assert (finished / "results.json").read_bytes() == before
    changed = [path for path in models if path.stat().st_mtime_ns != models[path]]
    assert changed == [lost.with_suffix(".model")]
    assert len(models) == len(WAYS) + len(PLANS["smoke"].labels) - 1
