import dataclasses

import pytest

from adaptntk.data.structures import FORCES
from adaptntk.errors import InputError
from adaptntk.training.checkpoint import training_identity
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
        train(parts["train"], parts["valid"], output, SHORT, seed=5, device="cpu", on_epoch=stop)
    with pytest.raises(InputError, match="other data, seed or settings"):
        train(parts["train"], parts["valid"], output, SHORT, seed=6, device="cpu", options=RESUME)
    (tmp_path / "a.model.checkpoint").write_bytes(b"junk")
    with pytest.raises(InputError, match="not a training checkpoint"):
        train(parts["train"], parts["valid"], output, SHORT, seed=5, device="cpu", options=RESUME)


def test_other_labels_are_another_training(parts):
    changed = [atoms.copy() for atoms in parts["train"]]
    changed[3].arrays[FORCES][0, 0] += 1e-3
    identities = {training_identity(t, parts["valid"], SHORT, 0, "float32") for t in (parts["train"], changed)}
    assert len(identities) == 2


def test_the_identity_stays_what_it_was(ethanol_frames):
    """By version 0.1: checkpoints and folders of networks that were begun with it go on."""
    identity = training_identity(ethanol_frames[:4], ethanol_frames[4:6], PRESETS["paper"], 7, "float32")
    assert identity == "af7184ca6d89bc166c5178d4f8f24ebc252f3a2d161b32f98b0162e21a40beca"
