import dataclasses

import numpy as np
import pytest
import torch

from adaptntk.data.structures import FORCES
from adaptntk.errors import InputError
from adaptntk.training.checkpoint import read_snapshots, snapshot_laps, training_identity
from adaptntk.training.loop import TrainingOptions, train
from adaptntk.training.recipe import PRESETS
from tests.conftest import TINY_RECIPE

RESUME = TrainingOptions(resume=True)


SHORT = dataclasses.replace(TINY_RECIPE, epochs=4)


def test_a_foreign_checkpoint_is_refused(parts, tmp_path):
    def stop(report):
        raise KeyboardInterrupt

    output = tmp_path / "a.model"
    with pytest.raises(KeyboardInterrupt):
        train(parts["train"], parts["valid"], output, SHORT, seed=5, device="cpu", on_lap=stop)
    with pytest.raises(InputError, match="other data, seed or settings"):
        train(parts["train"], parts["valid"], output, SHORT, seed=6, device="cpu", options=RESUME)
    (tmp_path / "a.model.checkpoint").write_bytes(b"junk")
    with pytest.raises(InputError, match="not a training checkpoint"):
        train(parts["train"], parts["valid"], output, SHORT, seed=5, device="cpu", options=RESUME)
    identity = training_identity(parts["train"], parts["valid"], SHORT, 5, "float32", None)
    for content, message in (([1, 2], "other data"), ({"identity": identity, "weights": {}}, "changed or damaged")):
        torch.save(content, tmp_path / "a.model.checkpoint")
        with pytest.raises(InputError, match=message):
            train(parts["train"], parts["valid"], output, SHORT, seed=5, device="cpu", options=RESUME)


def test_other_labels_are_another_training(parts):
    changed = [atoms.copy() for atoms in parts["train"]]
    changed[3].arrays[FORCES][0, 0] += 1e-3
    identities = {training_identity(t, parts["valid"], SHORT, 0, "float32", None) for t in (parts["train"], changed)}
    assert len(identities) == 2


def test_the_identity_stays_what_it_was(ethanol_frames):
    """By version 0.1: checkpoints and folders of networks that were begun with it go on."""
    identity = training_identity(ethanol_frames[:4], ethanol_frames[4:6], PRESETS["paper"], 7, "float32", None)
    assert identity == "af7184ca6d89bc166c5178d4f8f24ebc252f3a2d161b32f98b0162e21a40beca"


@pytest.mark.parametrize(
    ("epochs", "expected"), [(1, [0]), (4, [3]), (12, [9, 10, 11]), (80, list(range(60, 80))), (500, None)]
)
def test_which_epochs_are_kept(epochs, expected):
    found = snapshot_laps(epochs)
    assert found[-1] == epochs - 1
    assert len(found) <= 20
    if expected is not None:
        assert found == expected
    else:
        assert found[0] == 375
        assert set(np.diff(found)) <= {6, 7}


def test_snapshots_survive_an_interruption(parts, tmp_path):
    class StopError(Exception):
        pass

    def stop(report):
        if report.steps == report.most_steps * 3 // 4:
            raise StopError

    sets, keep = (parts["train"], parts["valid"]), TrainingOptions(snapshots=0.75)
    train(*sets, tmp_path / "a.model", SHORT, device="cpu", options=keep)
    with pytest.raises(StopError):
        train(*sets, tmp_path / "b.model", SHORT, device="cpu", on_lap=stop, options=keep)
    train(*sets, tmp_path / "b.model", SHORT, device="cpu", options=dataclasses.replace(keep, resume=True))
    assert len(read_snapshots(tmp_path / "a.model")) == 3
    for a, b in zip(read_snapshots(tmp_path / "a.model"), read_snapshots(tmp_path / "b.model"), strict=True):
        assert all(torch.equal(a[name], b[name]) for name in a)
    with pytest.raises(InputError, match="train the model with snapshots"):
        read_snapshots(tmp_path / "c.model")
    (tmp_path / "d.model.snapshots").write_bytes(b"junk")
    with pytest.raises(InputError, match="no snapshots of a training, or damaged"):
        read_snapshots(tmp_path / "d.model")


def test_a_training_that_was_killed_between_its_last_epoch_and_its_model_writes_the_same_bytes(parts, tmp_path):
    def stop(report):
        if report.steps == report.most_steps:
            raise KeyboardInterrupt

    whole, killed = tmp_path / "whole.model", tmp_path / "killed.model"
    train(parts["train"], parts["valid"], whole, SHORT, seed=5, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train(parts["train"], parts["valid"], killed, SHORT, seed=5, device="cpu", on_lap=stop)
    train(parts["train"], parts["valid"], killed, SHORT, seed=5, device="cpu", options=RESUME)
    assert killed.read_bytes() == whole.read_bytes()


def test_a_checkpoint_of_before_goes_on(parts, tmp_path):
    """One without a moment to go back to: the first lap that follows is that."""

    def stop(report):
        if report.steps >= 60:
            raise KeyboardInterrupt

    laps = []
    settle = {"architecture": SHORT.architecture, "steps": 300, "warm_up": 10}
    training = parts["train"][:2], parts["valid"][:5], tmp_path / "a.model"
    recipe = dataclasses.replace(PRESETS["fast"], patience=0, **settle)
    with pytest.raises(KeyboardInterrupt):
        train(*training, recipe, seed=5, device="cpu", on_lap=stop)
    state = torch.load(tmp_path / "a.model.checkpoint", weights_only=True)
    assert state.pop("kept") is not None
    torch.save(state, tmp_path / "a.model.checkpoint")
    trained = train(*training, recipe, seed=5, device="cpu", on_lap=laps.append, options=RESUME)
    assert trained.record.ended == "flat"
    assert laps[-1].annealing
    assert laps[-1].steps == laps[-1].most_steps == trained.record.steps
