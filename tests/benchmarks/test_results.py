"""The committed results: tables are what the code makes of the numbers, and the page shows these tables."""

import json
from pathlib import Path

import pytest
from benchmarks.al.report import al_table
from benchmarks.al.timing import timing_table
from benchmarks.starts import starts_table
from benchmarks.training.report import training_table
from benchmarks.uq.report import uq_table

from adaptntk.report.comparison import Curve, compare_curves, comparison_table

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def load(name: str):
    return json.loads((RESULTS / name).read_text())


def table(name: str) -> str:
    return (RESULTS / name / "table.md").read_text()


@pytest.mark.parametrize("name", ["al", "al-reactions", "sketch"])
def test_learning_curves(name):
    assert al_table(load(f"{name}/results.json")) == table(name)


def test_uncertainty_methods():
    assert uq_table(load("uq/results.json"), load("uq/timings.json")["ratios to one training"]) == table("uq")
    rows = [line for line in table("uq").splitlines() if line.startswith("|")]
    page = (ROOT / "docs" / "benchmarks.md").read_text().splitlines()
    assert [row for row in rows if row not in page] == []


def test_uncertainty_methods_where_labels_are_the_limit():
    timings = load("uq-converged/timings.json")["ratios to one training"]
    assert uq_table(load("uq-converged/results.json"), timings) == table("uq-converged")


def test_test_error_against_time_of_training():
    assert training_table(load("training/training.json")) == (RESULTS / "training" / "training.md").read_text()


def test_the_time_of_a_round():
    assert timing_table(load("timing/timing.json")) == table("timing")


def test_campaigns():
    results = load("campaign/results.json")
    curves = {
        method: [Curve(content.pop("labels"), content) for content in found]
        for method, found in results["curves"].items()
    }
    assert comparison_table(curves, compare_curves(curves)) == table("campaign")
    rows = [line for line in table("campaign").splitlines() if line.startswith("|")]
    page = (ROOT / "docs" / "benchmarks.md").read_text().splitlines()
    assert [row for row in rows if row not in page] == []


def test_rounds_from_scratch_or_from_the_model_before():
    assert starts_table(load("starts/results.json"), load("starts/timings.json")["cpu_seconds"]) == table("starts")
    rows = [line for line in table("starts").splitlines() if line.startswith("|")]
    page = (ROOT / "docs" / "benchmarks.md").read_text().splitlines()
    assert [row for row in rows if row not in page] == []


def test_malformed_inputs():
    """The page counts what the records count, and nothing failed."""
    records = [json.loads(path.read_text()) for path in sorted((RESULTS / "fuzz").glob("*.json"))]
    assert [record["seed"] for record in records] == list(range(6))
    assert not any(sum(record["failures"].values()) for record in records)
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    for kind in records[0]["kinds"]:
        counts = [sum(record["kinds"][kind][name] for record in records) for name in ("cases", "refused", "accepted")]
        assert f" | {' | '.join(f'{count:,}' for count in counts)} |" in page
