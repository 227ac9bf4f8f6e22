"""Real trainings that are built to lack steps, network or labels: each is told what it lacks."""

from dataclasses import replace

import numpy as np
import pytest

from adaptntk.evaluation import summarise_errors
from adaptntk.training import schedule
from adaptntk.training.loop import train
from adaptntk.training.recipe import PRESETS
from adaptntk.training.record import read_training_record
from adaptntk.verbs.train import TrainReport

TINY = PRESETS["tiny"].architecture
# One number for each atom, which knows how far its next neighbours are and nothing of directions.
BLIND = {"channels": 1, "max_ell": 0, "hidden_ell": 0, "correlation": 1, "interactions": 1, "cutoff": 2.0}


@pytest.fixture(scope="module")
def shuffled(ethanol_frames):
    return [ethanol_frames[i] for i in np.random.default_rng(0).permutation(len(ethanol_frames))]


CASES = {
    "steps": (40, {"steps": 500}),
    "labels": (2, {"steps": 600}),
    "network": (80, {"steps": 3000, "learning_rate": 3e-2, "architecture": TINY.resized(**BLIND)}),
}


@pytest.mark.parametrize("lacking", CASES)
def test_each_lacks_what_it_was_built_to_lack(lacking, shuffled, tmp_path):
    labels, settings = CASES[lacking]
    valid, learnt = shuffled[:30], shuffled[30 : 30 + labels]
    recipe = replace(PRESETS["standard"], **{"architecture": TINY, "warm_up": 10, "patience": 0, **settings})
    trained = train(learnt, valid, tmp_path / "a.model", recipe, device="cpu")
    record = read_training_record(tmp_path / "a.model")
    assert record == trained.record
    assert record.limit.by == lacking, record.limit
    for frames, errors in ((learnt, record.train), (valid, record.valid)):
        found = summarise_errors(trained.potential.predict(frames), frames).force_rmse
        assert errors.force_rmse == pytest.approx(found, rel=1e-4)
        assert f"{1000 * found:.1f}" in record.limit.evidence
    *_, verdict, advice = TrainReport(trained, tmp_path / "a.model").lines()
    assert verdict.startswith(f"limited by {'the ' * (lacking == 'network')}{lacking}: ")
    assert advice == f"advice: {record.limit.advice}"


def test_a_training_without_a_constant_rate_tells_labels_only(shuffled, tmp_path):
    recipe = PRESETS["tiny"].lasting(epochs=3)
    record = train(shuffled[30:50], shuffled[:30], tmp_path / "a.model", recipe, device="cpu").record
    assert record.gain is None
    assert record.limit.by == "network or steps"


@pytest.mark.long
@pytest.mark.parametrize(("labels", "steps"), [(40, 400), (40, 1600), (10, 800)])
def test_twice_the_steps_bring_about_what_was_foretold(labels, steps, shuffled, tmp_path, monkeypatch):
    """A trend is no promise: what it foretells of single trainings is right to about 15 points of per cent."""
    monkeypatch.setattr(schedule, "is_flat", lambda path: False)  # all steps are taken, whether they pay or not
    errors, gains = [], []
    for number in range(2):
        recipe = replace(PRESETS["standard"], architecture=TINY, steps=steps * 2**number, warm_up=10, patience=0)
        sets = shuffled[30 : 30 + labels], shuffled[:30]
        record = train(*sets, tmp_path / f"{number}.model", recipe, device="cpu").record
        errors.append(record.valid.force_rmse)
        gains.append(record.gain)
    assert 1 - errors[1] / errors[0] == pytest.approx(gains[0], abs=0.2)
