"""Test error against time: the reading of logs and curves on numbers, and a race of toys."""

import dataclasses
import datetime
import json

import numpy as np
import pytest
from benchmarks.training import ours, run as study
from benchmarks.training.curve import at, median_curve, moments
from benchmarks.training.frames import DataSet, load, prepare
from benchmarks.training.plan import OURS, PLANS, THEIRS
from benchmarks.training.theirs import Clocks, Epoch, epochs_within, held, read_times, superseded
from benchmarks.training.verdict import Goal, compare, goals, listed_errors

from adaptntk.errors import InputError
from tests.benchmarks.conftest import invoke, succeed

LOG = """2026-01-02 03:04:05.500 INFO: Started training, reporting errors on validation set
2026-01-02 03:04:05.900 INFO: Initial: head: Default, loss=99.5, RMSE_E_per_atom=   1.00 meV, RMSE_F=  999.00 meV / A
2026-01-02 03:04:07.500 INFO: Epoch 0: head: Default, loss=9.5, RMSE_E_per_atom=   1.00 meV, RMSE_F=  120.25 meV / A
2026-01-02 03:04:09.500 INFO: Epoch 2: head: Default, loss=8.5, RMSE_E_per_atom=   1.00 meV, RMSE_F=   80.00 meV / A
"""


def points(*pairs):
    return [{"seconds": s, "force_rmse": error, "energy_mae_per_atom": error / 100} for s, error in pairs]


def runs(*curves, seconds=1000.0):
    return [
        {"seed": seed, "points": points(*curve), "identity": {"seconds": seconds}} for seed, curve in enumerate(curves)
    ]


def test_errors_between_the_points_of_a_curve():
    curve = points((10, 100), (1000, 1))
    found = at(np.array([5, 10, 100, 1000, 5000]), curve, "force_rmse")
    assert np.isnan(found[0])
    assert found[1:] == pytest.approx([100, 10, 1, 1])


def test_the_median_waits_for_all_seeds():
    several = runs([(10, 8), (20, 4)], [(15, 6), (20, 2)], [(10, 9), (20, 3)])
    found = median_curve(np.array([12.0, 20.0]), several, "force_rmse")
    assert np.isnan(found[0])
    assert found[1] == pytest.approx(3)
    assert listed_errors(several, [20.0], "force_rmse")[1] == 3
    # A training that is over is not listed at later times.
    assert np.isnan(listed_errors(several, [50.0], "force_rmse")[0])


def test_ours_against_theirs_after_the_first_minute():
    # Before the first minute theirs are better, then never again; the end is the last network.
    race = {OURS: runs([(30, 400), (70, 100), (1000, 50)]), THEIRS: runs([(30, 100), (70, 200), (1000, 100)])}
    found = compare(race, "force_rmse")
    assert found.end == 0.5
    assert found.worst_at == pytest.approx(min(time for time in moments(1000) if time >= 60))
    assert 0.5 < found.worst < 1
    assert compare({OURS: race[OURS]}, "force_rmse") is None
    short = {who: runs([(1, 10), (9, 5)], seconds=9.0) for who in (OURS, THEIRS)}
    assert compare(short, "force_rmse").worst is None


def test_seeds_that_only_one_side_has_do_not_count():
    race = {OURS: runs([(50, 10), (100, 4)], [(50, 10), (100, 400)]), THEIRS: runs([(50, 10), (100, 8)])}
    assert compare(race, "force_rmse").end == 0.5


def test_goals_are_not_rounded_in_our_favour():
    assert Goal("ratio", 0.65, 0.65).line() == "ratio: 0.650, must be at most 0.65: met"
    assert Goal("ratio", 0.650001, 0.65).line() == "ratio: 0.651, must be at most 0.65: NOT met"
    assert Goal("error", None, 25, " meV/Å").line() == "error: not measured (at most 25 meV/Å)"


def test_all_goals_of_the_race():
    before, once = runs([(20, 100), (30, 90)], seconds=None), runs([(20, 70), (31, 45)], seconds=None)
    race = {"small": before, "fast-1x": once, OURS: runs([(60, 30), (900, 20)], seconds=900.0)}
    found = {goal.name: goal for goal in goals({name: {"runs": race} for name in ("ethanol", "naphthalene")})}
    assert len(found) == 11
    assert found["ethanol, fast in 1 x the time of small, over its error"].value == 0.5
    assert found["ethanol, standard in 10 x the time of small, over its error"].value is None
    assert found["naphthalene, test force RMSE after 15 minutes"].value == pytest.approx(20)
    assert not found["aspirin, ratio to mace_run_train at the end"].met
    assert (
        found["ethanol, fast in 1 x the time of small, over its error"]
        .line()
        .endswith("met (in 31.0 s against 30.0 s, 1 seed)")
    )


def test_a_race_that_is_cut_short_meets_no_goal():
    race = {OURS: runs([(60, 30), (200, 20)], seconds=200.0), THEIRS: runs([(60, 60), (200, 50)], seconds=200.0)}
    assert compare(race, "force_rmse").end == 0.4
    assert not any(goal.met for goal in goals({"ethanol": {"runs": race}}))
    for run in (*race[OURS], *race[THEIRS]):
        run["identity"]["seconds"] = 300.0
    assert [goal.name for goal in goals({"ethanol": {"runs": race}}) if goal.met] == [
        "ethanol, largest ratio to mace_run_train after the first minute",
        "ethanol, ratio to mace_run_train at the end",
    ]


def test_the_times_in_a_log():
    began, ended, epochs = read_times(LOG)
    assert ended is None
    assert [(epoch.number, epoch.force_rmse, epoch.when - began) for epoch in epochs] == [(0, 120.25, 2), (2, 80, 4)]
    assert began == datetime.datetime(2026, 1, 2, 3, 4, 5, 500_000).timestamp()
    assert read_times(LOG + "2026-01-02 03:05:00.000 INFO: Training complete\n")[1] is not None
    assert read_times("") == (None, None, [])


def test_a_process_that_had_half_a_core():
    clocks = Clocks([100.0, 110.0, 130.0], [2.0, 7.0, 17.0])
    assert clocks.seconds(np.array([104.0, 120.0])).tolist() == [4.0, 12.0]
    # Ten epochs in five seconds of the processor, though ten of the clock.
    assert epochs_within(60, clocks, [Epoch(110, 4, 1.0), Epoch(114, 8, 1.0), Epoch(120, 14, 1.0)]) == 120


def test_the_checkpoints_that_are_looked_at_are_kept():
    times, looks = np.array([1.0, 2.0, 3.0, 7.0, 8.0, 12.0]), np.array([0.5, 3.0, 5.0, 10.0])
    assert held(times, looks) == [None, 2, 2, 4]
    assert superseded(times, looks) == [0, 1, 3]
    rng = np.random.default_rng(0)
    for _ in range(50):
        times, looks = (np.sort(rng.uniform(0, 10, count)) for count in rng.integers(1, 20, 2))
        # The last one is what is handed over.
        assert not {*held(times, looks), len(times) - 1} & {*superseded(times, looks)}


def test_parts_do_not_overlap(tmp_path, ethanol_frames, monkeypatch):
    monkeypatch.setitem(study.prepare.__globals__["LOADERS"], "ethanol", lambda data: ethanol_frames)
    prepare("ethanol", DataSet(20, 10, 15, 40, seconds=1), tmp_path / "frames")
    parts = load(tmp_path / "frames")
    assert [len(part) for part in parts.values()] == [20, 10, 15]
    assert np.allclose(parts["test"][0].positions, ethanol_frames[40].positions)
    with pytest.raises(InputError, match="are needed"):
        DataSet(20, 10, len(ethanol_frames), 40, seconds=1).split(ethanol_frames)


def test_data_that_are_not_there_are_left_out(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("ADAPTNTK_DATA", str(tmp_path / "nowhere"))
    for data in ("naphthalene", "silicon"):
        assert not study._prepared(data, PLANS["full"], tmp_path / "race", named=False)
        with pytest.raises(InputError, match="not found"):
            study._prepared(data, PLANS["full"], tmp_path / "race", named=True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--study", "walk"], "unknown study 'walk'"),
        (["--data", "water"], "unknown data set or entrant 'water'"),
        (["--entrants", "nobody"], "unknown data set or entrant 'nobody'"),
        (["--recorded"], "no training is recorded"),
    ],
)
def test_what_is_asked_for_must_be_known(tmp_path, words, told):
    result = invoke("training", "--preset", "smoke", "-o", tmp_path, *words)
    assert result.exit_code == 2
    assert told in result.output


def test_every_variant_differs_from_the_standard():
    plan = PLANS["full"]
    recipes = [plan.entrants[OURS].recipe, *(entrant.recipe for entrant in plan.variants.values())]
    assert len({str(dataclasses.asdict(recipe)) for recipe in recipes}) == len(recipes)


def test_the_clocks_stand_still_while_errors_are_measured(ethanol_frames, tmp_path, monkeypatch):
    recipe = PLANS["smoke"].entrants["fast"].recipe
    frames = {"train": ethanol_frames[:8], "valid": ethanol_frames[8:12], "test": ethanol_frames[12:16]}
    slow = []

    def measure(potential, frames):
        began = ours.time.process_time()
        while ours.time.process_time() - began < 0.1:
            pass
        slow.append(len(frames))
        return {"force_rmse": 1.0, "energy_mae_per_atom": 1.0}

    monkeypatch.setattr(ours, "measure", measure)
    monkeypatch.setattr(ours, "moments", lambda seconds: np.zeros(1))
    began = ours.time.process_time()
    found = ours.run_ours(recipe, frames, 0, None, tmp_path)
    spent = ours.time.process_time() - began
    assert slow == [4, 4, 8]
    assert found.points[-1].seconds < spent - 0.25
    assert found.steps > 0


@pytest.mark.long
def test_a_race_of_toys(tmp_path):
    """All entrants, on structures made on the spot; whoever is there is not trained again."""
    words = ["training", "--preset", "smoke", "--seeds", "1", "-o", tmp_path]
    shown = succeed(*words)
    content = json.loads((tmp_path / "training.json").read_text())
    assert {"date", "commit", "machine", "versions", "study"} <= content.keys()
    entered = content["data"]["ethanol"]["runs"]
    assert list(entered) == ["small", OURS, THEIRS, "fast-1x"]
    for (run,) in entered.values():
        seconds = [point["seconds"] for point in run["points"]]
        assert seconds == sorted(seconds)
        assert run["parameters"] == 788
    ends = {who: run["points"][-1]["seconds"] for who, (run,) in entered.items()}
    # About four seconds; on a busy machine the pace is not the same all the time, and ours may be done earlier.
    assert ends[OURS] < 8
    assert 2 < ends[THEIRS] < 8
    assert entered[THEIRS][0]["points"][-1]["force_rmse"] < entered[THEIRS][0]["points"][0]["force_rmse"]
    assert "standard / mace_run_train" in shown
    assert (tmp_path / "training.png").stat().st_size > 5_000
    assert {path.suffix for path in (tmp_path / "race").iterdir()} == {".json"}
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "race").iterdir()}
    assert shown.endswith(succeed(*words))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "race").iterdir()} == written
    assert "a training of another kind" in invoke(*words, "--seconds", "5").output


@pytest.mark.long
def test_recipes_of_toys(tmp_path):
    words = ["training", "--preset", "smoke", "--study", "recipes", "--seeds", "1", "-o", tmp_path]
    shown = succeed(*words, "--entrants", "standard,batch-half,cosine", "--jobs", "2")
    assert list(json.loads((tmp_path / "recipes.json").read_text())["data"]["ethanol"]["runs"]) == [
        OURS, "batch-half", "cosine",
    ]  # fmt: skip
    assert "batch-half" in shown
