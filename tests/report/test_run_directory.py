"""Reading a run directory, whole or cut off anywhere."""

import json
import shutil

import numpy as np
import pytest

from adaptntk.errors import InputError
from adaptntk.files import locked
from adaptntk.report.run_directory import read_info, read_run
from adaptntk.report.run_progress import progress_of, status_of
from adaptntk.verbs.report import report as write_report
from tests.report.example_run import BATCH, FAILURE, NEW_HOLDOUT, POOL, cut_off

EXPLORED = ("explored.json", "pool.xyz")
PICKED = (*EXPLORED, "picks.json")
LABELLED = (*PICKED, "labels")
# What was on disk when it was killed, and what it was doing then.
CUTS = [
    (0, (), "explore", "round 0: exploring by molecular dynamics"),
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


def test_everything_is_read(run_folder):
    run = read_run(run_folder)
    assert run.name == "ethanol"
    assert [entry.number for entry in run.rounds] == [0, 1, 2]
    assert len(run.finished) == 3
    assert len(run.labels) == run.rounds[-1].summary["labels_spent"] == 50 + 2 * (BATCH + NEW_HOLDOUT)
    picked = [label for label in run.labels if label.chosen_by == "adaptntk"]
    assert len(picked) == 2 * BATCH
    assert all(label.information == pytest.approx(np.log1p(label.score / 0.004)) for label in picked)
    assert {label.temperature for label in run.labels} == {None, 500, 900}
    assert {label.trajectory for label in picked} <= {"start 0, 500 K", "start 0, 900 K"}
    assert [len(wave) for wave in run.rounds[1].waves] == [BATCH, 1]
    assert run.rounds[1].trajectories[1].stopped_by == "conformal threshold"
    assert len(run.quarantine) == 2
    assert run.quarantine[0].errors == (FAILURE, "no result within 60 s")
    assert run.quarantine[0].seconds == 62.5


def test_holdout_columns(run_folder):
    holdout = read_run(run_folder).rounds[0].holdout
    text = (run_folder / "rounds" / "00" / "holdout.csv").read_text().splitlines()[1:]
    assert np.array_equal(holdout.force_error, [float(line.split(",")[1]) for line in text])
    assert np.array_equal(holdout.energy_error, [float(line.split(",")[4]) for line in text])


def test_missing_uncertainties_are_nan(run_folder, tmp_path):
    copy = shutil.copytree(run_folder, tmp_path / "run")
    path = copy / "rounds" / "00" / "holdout.csv"
    path.write_text("hash,force_error,forces_uncertainty,forces_error_bound,energy_error\nab,0.1,,,0.01\n")
    holdout = read_run(copy).rounds[0].holdout
    assert holdout.force_error.tolist() == [0.1]
    assert np.isnan(holdout.uncertainty).all()
    assert np.isnan(holdout.bound).all()


@pytest.mark.parametrize("digits", ["0123456789012345", "12345678901234e5", "00ab"])
def test_a_hash_is_never_a_number(digits):
    info = read_info(f'Properties=species:S:1:pos:R:3 hash={digits} round=2 trajectory="start 0, 600 K" pbc="F F F"')
    assert info["hash"] == digits
    assert info["round"] == 2
    assert info["trajectory"] == "start 0, 600 K"


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


def test_stopped(run_folder):
    run = read_run(run_folder)
    assert progress_of(run).round is None
    assert progress_of(run).text.startswith("stopped: The force RMSE of ")
    assert [row[-1] for row in status_of(run).table.rows] == ["finished"] * 3


def test_what_is_no_run_is_refused(run_folder, tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        read_run(tmp_path / "absent")
    with pytest.raises(InputError, match="not a run directory"):
        read_run(run_folder / "rounds")
    copy = tmp_path / "run"
    copy.mkdir()
    header = json.loads((run_folder / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps(header | {"format": 7}))
    with pytest.raises(InputError, match="format 7"):
        read_run(copy)
    (copy / "run.json").write_text('{"format": ')
    with pytest.raises(InputError, match=r"run\.json: cannot be read"):
        read_run(copy)


@pytest.mark.parametrize("name", ["rounds/01/picks.json", "rounds/01/round.json", "verdict.json"])
def test_damaged_files_are_named(run_folder, tmp_path, name):
    copy = shutil.copytree(run_folder, tmp_path / "run")
    (copy / name).write_text("{")
    with pytest.raises(InputError, match=f"{name}: cannot be read"):
        read_run(copy)


def test_a_damaged_pool_is_named(run_folder, tmp_path):
    copy = shutil.copytree(run_folder, tmp_path / "run")
    path = copy / "rounds" / "01" / "pool.xyz"
    path.write_text(path.read_text().replace("9\n", "nine\n", 1))
    with pytest.raises(InputError, match=r"pool\.xyz: cannot be read"):
        write_report(run=copy)
    assert not (copy / "report.html").exists()


def test_pool_size(run_folder):
    from adaptntk.report.candidates import list_candidates

    assert len(list_candidates(read_run(run_folder))) == 2 * POOL
