"""A campaign that is killed at random moments ends as one that nobody disturbs."""

import json

import pytest
from benchmarks.kills.campaign import Patient

from tests.benchmarks.conftest import invoke, succeed
from tests.benchmarks.test_results import load


@pytest.mark.long
def test_some_kills(tmp_path):
    said = succeed("kills", "--count", 5, "--seed", 3, "-o", tmp_path)
    assert "5 kills" in said
    assert "0 faults" in said
    record = json.loads((tmp_path / "kills.json").read_text())
    assert sum(record["kills"].values()) == 5
    assert record["calculations"] - record["labels"] == record["in flight when all processes were killed"]
    assert [path.name for path in tmp_path.iterdir()] == ["kills.json"]


def test_what_was_lost_or_charged_twice_is_seen(tmp_path):
    patient = Patient(tmp_path / "one")
    patient.prepare()
    patient.run.files.labels.mkdir(parents=True)
    for name in ("aa", "bb"):
        patient.run.files.label(name).write_text(name)
    (patient.folder / "log").write_text("aa\nbb\ncc\n")
    patient.look()
    assert [patient.killed_labels(), patient.killed_labels()] == [1, 0]
    (patient.folder / "log").write_text("aa\nbb\ncc\ncc\n")
    assert patient.killed_labels() == 1
    patient.run.files.label("aa").unlink()
    patient.run.files.label("bb").write_text("edited")
    patient.look()
    assert sorted(patient.lost) == ["aa.xyz", "bb.xyz"]
    (patient.run.path / ".adaptntk-tmp-12345678").mkdir()
    assert [name.rsplit("/", 1)[1] for name in patient.left_over()] == [".adaptntk-tmp-12345678"]


def test_another_runs_campaigns_are_left_alone(tmp_path):
    (tmp_path / "campaigns").mkdir()
    result = invoke("kills", "-o", tmp_path)
    assert result.exit_code == 2


def test_the_committed_record():
    record = load("kills/kills.json")
    assert sum(record["kills"].values()) == record["count"] == 100
    assert record["faults"] == []
    assert record["calculations"] - record["labels"] == record["in flight when all processes were killed"]
