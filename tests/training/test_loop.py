import copy
import dataclasses
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from adaptntk.cli.app import app
from adaptntk.data.structures import ENERGY, FORCES, reference_energies, reference_forces
from adaptntk.evaluation import summarise_errors
from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.registry import load_potential
from adaptntk.training import steps
from adaptntk.training.loop import TrainingOptions, train
from adaptntk.training.recipe import PRESETS
from adaptntk.verbs.train import lap_teller
from tests.conftest import TINY_RECIPE

RESUME = TrainingOptions(resume=True)


SHORT = dataclasses.replace(TINY_RECIPE, epochs=4)


def weights(path):
    return torch.cat([p.detach().flatten() for _, p in load_potential(path).parameters()])


def test_training_learns(trained, parts):
    error = summarise_errors(trained.predict(parts["test"]), parts["test"]).force_rmse
    spread = np.sqrt(np.mean(np.concatenate(reference_forces(parts["test"])) ** 2))
    assert error < 0.75 * spread


def test_energies_are_centred(trained, parts):
    difference = trained.predict(parts["train"]).energies - reference_energies(parts["train"])
    assert abs(difference.mean()) < 1e-3


def test_interrupted_training_ends_with_the_same_weights(parts, tmp_path):
    whole = train(parts["train"], parts["valid"], tmp_path / "whole.model", SHORT, seed=5, device="cpu")

    class InterruptionError(Exception):
        pass

    def stop(report):
        if report.steps == report.most_steps // 2:
            raise InterruptionError

    with pytest.raises(InterruptionError):
        train(parts["train"], parts["valid"], tmp_path / "cut.model", SHORT, seed=5, device="cpu", on_lap=stop)
    assert not (tmp_path / "cut.model").exists()
    seen = []
    resumed = train(
        parts["train"],
        parts["valid"],
        tmp_path / "cut.model",
        SHORT,
        5,
        "cpu",
        options=RESUME,
        on_lap=seen.append,
    )
    assert [4 * report.steps / report.most_steps for report in seen] == [3, 4]
    assert torch.equal(weights(tmp_path / "whole.model"), weights(tmp_path / "cut.model"))
    assert resumed.record == whole.record
    before = (tmp_path / "cut.model").read_bytes()
    again = train(parts["train"], parts["valid"], tmp_path / "cut.model", SHORT, 5, "cpu", options=RESUME)
    assert (tmp_path / "cut.model").read_bytes() == before
    assert again.force_rmse == pytest.approx(resumed.force_rmse)
    assert not list(tmp_path.glob("*.checkpoint"))


def test_the_best_epoch_is_kept(parts, tmp_path):
    """A learning rate that wrecks the network in the end: what is written is an earlier epoch."""
    reports = []
    recipe = dataclasses.replace(SHORT, epochs=5, learning_rate=0.3, schedule="constant")
    result = train(parts["train"], parts["valid"], tmp_path / "a.model", recipe, device="cpu", on_lap=reports.append)
    losses = [report.validation.loss for report in reports]
    best = int(np.argmin(losses))
    assert best < 4
    assert [report.improved for report in reports][best:] == [True] + [False] * (4 - best)
    assert result.force_rmse == pytest.approx(reports[best].validation.force_rmse, rel=1e-4)


def test_killed_training_resumes(parts, files, tmp_path):
    """SIGKILL in the middle, through the command line."""
    output = tmp_path / "killed.model"
    command = [
        sys.executable, "-m", "adaptntk", "train", "--train", str(files["train"]), "--valid", str(files["valid"]),
        "--preset", "small", "--epochs", "3", "-o", str(output),
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("step "):
            break
    process.kill()
    process.wait()
    process.stderr.close()
    assert not output.exists()
    done = CliRunner().invoke(app, [*command[3:], "--resume"])
    assert done.exit_code == 0, done.output
    assert "resuming after step" in done.stderr
    assert output.exists()


SETTLE = dataclasses.replace(
    PRESETS["fast"],
    architecture=TINY_RECIPE.architecture,
    learning_rate=3e-2,
    steps=150,
    extensions=1,
    warm_up=10,
    patience=0,
)


# Too few labels: the validation error soon rises.
OVERTRAINED = dataclasses.replace(SETTLE, steps=300)


def few(parts):
    return parts["train"][:2], parts["valid"][:5]


def went_back(laps):
    """The numbers of the laps that began before the last one had ended."""
    return [number for number, (last, lap) in enumerate(pairwise(laps), 1) if lap.first < last.steps]


@pytest.mark.parametrize("case", ["extended", "recorded steps", "went back"])
def test_a_training_killed_at_random_moments_ends_with_the_same_bytes(case, parts, tmp_path, monkeypatch):
    """Kills in both stages, and where it goes back: model and record are those of a whole run."""
    monkeypatch.setattr(steps, "_STEPS_TO_CAPTURE", 100 if case == "recorded steps" else 10_000)
    settled = (parts["train"], parts["valid"]), SETTLE
    sets, recipe = (few(parts), OVERTRAINED) if case == "went back" else settled
    whole, cut = tmp_path / "whole.model", tmp_path / "cut.model"
    laps = []
    train(*sets, whole, recipe, 5, "cpu", laps.append)
    assert {report.annealing for report in laps} == {False, True}
    assert len(went_back(laps)) == (case == "went back")
    ends = set(np.random.default_rng(0).choice(len(laps), 5, replace=False))
    for back in went_back(laps):
        ends |= {back - 2, back - 1, back}
    done = 0
    for end in sorted(ends):
        with pytest.raises(KeyboardInterrupt):
            train(*sets, cut, recipe, 5, "cpu", _stop_after(end + 1 - done), RESUME)
        assert not cut.exists()
        done = end + 1
    train(*sets, cut, recipe, 5, "cpu", options=RESUME)
    assert cut.read_bytes() == whole.read_bytes()
    records = [Path(f"{model}.training.json").read_text() for model in (whole, cut)]
    assert records[0] == records[1]


def _stop_after(laps):
    seen = []

    def stop(report):
        seen.append(report)
        if len(seen) == laps:
            raise KeyboardInterrupt

    return stop


def test_what_came_after_the_moment_that_a_training_goes_back_to_leaves_no_trace(parts, tmp_path, caplog):
    """It ends with the very weights of a training that was planned to anneal from there."""
    recipe = dataclasses.replace(OVERTRAINED, centre_energies=False)  # centring depends on the laps
    laps, ends, tell = [], [], lap_teller()

    def look(report):
        tell(report)
        laps.append(report)
        if report.steps == report.most_steps:
            ends.append([p.detach().clone() for p in report.potential.module.parameters()])

    with caplog.at_level("INFO"):
        record = train(*few(parts), tmp_path / "a.model", recipe, 5, "cpu", look).record
    (back,) = went_back(laps)
    begins = laps[back].first
    assert f"flat since step {begins}: going back there to anneal" in caplog.text
    assert (record.ended, record.steps) == ("flat", begins + round(begins / 1.5))
    assert len([line for line in caplog.messages if "annealing" in line]) == len(laps) - back
    # What was tried in vain is the evidence.
    assert [point.steps for point in record.path] == [lap.steps for lap in laps[:back]]
    planned = recipe.lasting(steps=record.steps)
    assert round(0.6 * record.steps) == begins
    assert train(*few(parts), tmp_path / "b.model", planned, 5, "cpu", look).record.ended == "steps"
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_what_is_reported_is_what_is_written(parts, tmp_path):
    """The averaged weights, at the end of the second stage."""
    seen = []

    def look(report):
        errors = summarise_errors(report.potential.predict(parts["valid"]), parts["valid"])
        seen.append((report.steps, errors.force_rmse, report.validation.force_rmse, report.improved))

    result = train(parts["train"], parts["valid"], tmp_path / "a.model", SETTLE, 5, "cpu", look)
    assert [found for _, found, _, _ in seen] == pytest.approx([reported for _, _, reported, _ in seen], rel=1e-4)
    last = [found for _, found, _, improved in seen if improved][-1]
    assert result.force_rmse == pytest.approx(last, rel=1e-4)
    assert result.record.steps == seen[-1][0]
    assert len(result.record.path) < len(seen)


def test_periodic_training(silicon, tmp_path):
    rng = np.random.default_rng(0)
    frames = []
    for _ in range(12):
        atoms = silicon.copy()
        atoms.rattle(0.1, rng=rng)
        atoms.info[ENERGY] = -40.0 + rng.standard_normal() * 0.1
        atoms.arrays[FORCES] = rng.standard_normal((8, 3))
        frames.append(atoms)
    result = train(frames[:8], frames[8:], tmp_path / "si.model", dataclasses.replace(SHORT, epochs=1), device="cpu")
    assert np.isfinite(result.force_rmse)


def test_a_training_starts_from_the_very_network(trained, parts, tmp_path):
    """Also what is not in its weights: the mean number of neighbours."""
    module = copy.deepcopy(trained.module)
    for block in module.interactions:
        block.avg_num_neighbors = 4.0
    start = MACEPotential(module, "1" * 64)
    recipe = dataclasses.replace(SHORT, epochs=1, learning_rate=1e-9, weight_decay=0.0, schedule="constant")
    options = TrainingOptions(start=start)
    again = train(parts["train"], parts["valid"], tmp_path / "a.model", recipe, device="cpu", options=options).potential
    before, expected, found = (p.predict(parts["test"][:4]).forces for p in (trained, start, again))
    assert all(np.allclose(a, b, atol=1e-4) for a, b in zip(expected, found, strict=True))
    assert not np.allclose(before[0], found[0], atol=1e-2)
