"""What a run is doing, told from a directory that is whole or cut off anywhere."""

import shutil

import pytest

from adaptntk.campaign.layout import read_run
from adaptntk.files import locked, write_json
from adaptntk.report.run_progress import progress_of, status_of
from adaptntk.verbs.report import report as write_report
from tests.report.example_run import BATCH, cut_off

EXPLORED = ("explored.json", "pool.xyz")
PICKED = (*EXPLORED, "picks.json")
LABELLED = (*PICKED, "labels")
# What was on disk when it was killed, and what it was doing then.
CUTS = [
    (0, (), "label", "round 0: labelling, 0 labels so far"),
    (0, ("labels",), "label", "round 0: labelling, 50 labels so far"),
    (0, ("labels", "model.model"), "train", "round 0: training the model"),
    (1, (), "explore", "round 1: exploring by molecular dynamics"),
    (1, EXPLORED, "select", "round 1: selecting candidates"),
    (1, PICKED, "label", "round 1: labelling, 0 of 11 picks"),
    (1, LABELLED, "train", "round 1: training the model"),
    (1, (*LABELLED, "model.model"), "train", "round 1: training the model"),
    (1, (*LABELLED, "model.model", "model.ntk"), "evaluate", "round 1: evaluating on the hold-out structures"),
    (
        2,
        (*LABELLED, "model.model", "model.ntk", "holdout.csv"),
        "evaluate",
        "round 2: evaluating on the hold-out structures",
    ),
]


@pytest.mark.parametrize(("number", "keep", "step", "text"), CUTS, ids=lambda value: str(value)[:40])
def test_killed_anywhere(run_folder, tmp_path, number, keep, step, text):
    run = read_run(cut_off(run_folder, tmp_path / "run", number, keep))
    progress = progress_of(run)
    assert (progress.round, progress.step, progress.text) == (number, step, text)
    status = status_of(run, now=run.changed + 125)
    assert len(status.table.rows) == number + 1
    assert status.table.rows[-1][-1] == step
    written = "the newest file was written 2 min 5 s ago; "
    assert status.lines[-1] == f"{written}start it again with --resume: no process is working on it"
    with locked(run.folder):
        assert status_of(run, now=run.changed + 125).lines[-1] == f"{written}a process is working on it"
    page = write_report(run=run.folder).path.read_text()
    assert f"{text[0].upper()}{text[1:]}." in page
    assert "Not finished" in page


def test_killed_while_labelling(run_folder, tmp_path):
    copy = cut_off(run_folder, tmp_path / "run", 1, LABELLED)
    run = read_run(copy)
    picked = [label for label in run.labels if label.round == 1 and label.chosen_by == "adaptntk"]
    (copy / "labels" / f"{picked[0].hash}.xyz").unlink()
    (copy / "labels" / f".{picked[0].hash}.xyz.tmp.xyz").write_text("9\nhalf a fi")
    progress = progress_of(read_run(copy))
    assert progress.text == f"round 1: labelling, {BATCH} of {BATCH + 1} picks"


def test_between_rounds_and_before_the_first(run_folder, tmp_path):
    copy = shutil.copytree(run_folder, tmp_path / "run")
    (copy / "verdict.json").unlink()
    assert progress_of(read_run(copy)).text == "round 2 is finished, round 3 has not begun"
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(run_folder / "run.json", bare)
    assert progress_of(read_run(bare)).text == "round 0 has not begun"
    assert "No round is finished yet" in write_report(run=bare).path.read_text()


def test_the_status_says_what_limits_the_last_model(run_folder, tmp_path):
    evidence, advice = status_of(read_run(run_folder)).lines[-2:]
    assert evidence.startswith("the model of round 2 is limited by the network: force RMSE ")
    assert "--channels" in advice
    earlier = read_run(cut_off(run_folder, tmp_path / "run", 2, LABELLED))
    assert any(line.startswith("the model of round 1 is limited by labels") for line in status_of(earlier).lines)


def test_advice_that_the_verdict_gives_is_not_repeated(run_folder, tmp_path):
    copy = shutil.copytree(run_folder, tmp_path / "run")
    advice = read_run(copy).summaries[-1].limit.advice
    write_json(copy / "verdict.json", {"reason": "rounds", "text": f"all 2 rounds are done; {advice}"})
    assert sum(advice in line for line in status_of(read_run(copy)).lines) == 1


def test_stopped(run_folder):
    run = read_run(run_folder)
    assert progress_of(run).round is None
    assert progress_of(run).text.startswith("stopped: The force RMSE of ")
    assert [row[-1] for row in status_of(run).table.rows] == ["finished"] * 3
