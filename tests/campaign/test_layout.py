"""Reading a run directory: what a campaign wrote is read back, and what was edited or damaged is named."""

import json
import re
import shutil

import numpy as np
import pytest

from adaptntk.campaign.layout import RunDirectory, read_run
from adaptntk.campaign.records import Holdout
from adaptntk.errors import InputError
from adaptntk.labelers.record import read_info
from tests.report.example_run import BATCH, FAILURE, NEW_HOLDOUT


def test_everything_is_read(run_folder):
    run = read_run(run_folder)
    assert run.name == "ethanol"
    assert [entry.number for entry in run.rounds] == [0, 1, 2]
    assert len(run.summaries) == 3
    assert len(run.labels) == run.summaries[-1].labels_spent == 50 + 2 * (BATCH + NEW_HOLDOUT)
    picked = [label for label in run.labels if label.chosen_by == "adaptntk"]
    assert len(picked) == 2 * BATCH
    assert all(label.information == pytest.approx(np.log1p(label.score / 0.004)) for label in picked)
    assert {label.temperature for label in run.labels} == {None, 500, 900}
    assert {label.trajectory for label in picked} <= {"start 0, 500 K", "start 0, 900 K"}
    assert [len(wave.picks) for wave in RunDirectory(run_folder).round(1).picks.get().waves] == [BATCH, 1]
    assert run.rounds[1].explored.trajectories[1].stopped_by == "conformal threshold"
    assert len(run.quarantine) == 2
    assert tuple(attempt.error for attempt in run.quarantine[0].attempts) == (FAILURE, "no result within 60 s")
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
    assert np.isnan(holdout.forces_uncertainty).all()
    assert np.isnan(holdout.forces_error_bound).all()
    assert np.isnan(holdout.energy_uncertainty).all()  # files of before have no such column


@pytest.mark.parametrize("digits", ["0123456789012345", "12345678901234e5", "00ab"])
def test_a_hash_is_never_a_number(digits):
    info = read_info(f'Properties=species:S:1:pos:R:3 hash={digits} round=2 trajectory="start 0, 600 K" pbc="F F F"')
    assert info["hash"] == digits
    assert info["round"] == 2
    assert info["trajectory"] == "start 0, 600 K"


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


ROUND = "rounds/01/"


@pytest.mark.parametrize(
    ("name", "pattern", "replacement", "message"),
    [
        (
            ROUND + "picks.json",
            r'"score": \S+',
            '"score": "high",',
            "waves.0.picks.0.score: Input should be a",
        ),
        (ROUND + "round.json", r'"labels_spent": \d+,', "", "labels_spent: Field required"),
        (ROUND + "round.json", r'"force_rmse_low": \S+', "", "errors.force_rmse_low: Field required"),
        (
            ROUND + "explored.json",
            '"steps": 2000',
            '"steps": 0.5',
            "trajectories.0.steps: Input should be a",
        ),
        (ROUND + "seconds.json", "41.0", '"long"', "explore: Input should be a valid number"),
        (ROUND + "holdout.csv", "force_error", "error", "there is no column 'force_error'"),
        (ROUND + "holdout.csv", r"(?s)\Z", "abc,one,two,3,4\n", "could not convert string to float: 'one'"),
        ("verdict.json", '"text"', '"words"', "text: Field required"),
        ("run.json", '"config": {', '"settings": {', "config: Field required"),
        ("labels/*.xyz", "role=train", "role=teacher", "role: Input should be 'train', 'valid' or 'holdout'"),
        ("labels/*.xyz", r"round=\d ", "", "round: Field required"),
        ("quarantine/*.json", '"round": 1', '"round": "one"', "round: Input should be a valid integer"),
        ("quarantine/*.json", '"error":', '"story":', "attempts.0.error: Field required"),
        *((name, "(?s)^.*", "{", "Expecting property name") for name in (ROUND + "picks.json", "run.json")),
    ],
)
def test_what_was_edited_or_damaged_is_named_in_one_line(run_folder, tmp_path, name, pattern, replacement, message):
    copy = shutil.copytree(run_folder, tmp_path / "run")
    path = next(path for path in sorted(copy.glob(name)) if re.search(pattern, path.read_text()))
    path.write_text(re.sub(pattern, replacement, path.read_text(), count=1))
    with pytest.raises(InputError) as caught:
        read_run(copy)
    said = str(caught.value)
    assert said.startswith(f"{path}: cannot be read, it was changed or damaged ({message}")
    assert said.endswith("; restore it or remove it")
    assert "\n" not in said


def test_half_written_files_are_not_read(run_folder, tmp_path):
    copy = shutil.copytree(run_folder, tmp_path / "run")
    (copy / "labels" / ".abc.xyz.tmp.xyz").write_text("9\nhalf a fi")
    (copy / "quarantine" / ".abc.json.tmp.json").write_text("{")
    assert len(read_run(copy).labels) == len(read_run(run_folder).labels)


def test_what_is_read_is_written_as_it_was(run_folder, tmp_path):
    """Every record of a real-looking run, through memory and back to the same bytes."""
    run, copy = RunDirectory(run_folder), RunDirectory(tmp_path)
    here, there = run.round(1), copy.round(1)
    there.folder.mkdir(parents=True)
    pairs = [(run.about, copy.about), (run.verdict, copy.verdict)]
    pairs += [(getattr(here, name), getattr(there, name)) for name in ("summary", "picks", "explored")]
    for original, written in pairs:
        written.write(original.read())
    Holdout.read(here.holdout).write(there.holdout)
    there.add_seconds(here.seconds())
    copy.files.quarantine.mkdir()
    for path in run.files.all_failures():
        copy.files.failure(path.stem).write(run.files.failure(path.stem).get())
    written = [path for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    assert len(written) == 9
    for path in written:
        before, after = (folder / path.relative_to(tmp_path) for folder in (run_folder, tmp_path))
        if path.suffix == ".json":
            assert json.loads(after.read_text()).items() >= json.loads(before.read_text()).items(), path.name
        else:
            assert after.read_text().split() == before.read_text().split()
