import dataclasses

import numpy as np
import pytest
import torch

from adaptntk.errors import InputError
from adaptntk.training.loop import TrainingOptions, train
from adaptntk.training.snapshots import read_snapshots, snapshot_epochs
from tests.conftest import TINY_RECIPE


@pytest.mark.parametrize(
    ("epochs", "expected"), [(1, [0]), (4, [3]), (12, [9, 10, 11]), (80, list(range(60, 80))), (500, None)]
)
def test_which_epochs_are_kept(epochs, expected):
    found = snapshot_epochs(epochs)
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
        if report.epoch == 3:
            raise StopError

    recipe = dataclasses.replace(TINY_RECIPE, epochs=4)
    sets, keep = (parts["train"], parts["valid"]), TrainingOptions(snapshots=0.75)
    train(*sets, tmp_path / "a.model", recipe, device="cpu", options=keep)
    with pytest.raises(StopError):
        train(*sets, tmp_path / "b.model", recipe, device="cpu", on_epoch=stop, options=keep)
    train(*sets, tmp_path / "b.model", recipe, device="cpu", options=dataclasses.replace(keep, resume=True))
    assert len(read_snapshots(tmp_path / "a.model")) == 3
    for a, b in zip(read_snapshots(tmp_path / "a.model"), read_snapshots(tmp_path / "b.model"), strict=True):
        assert all(torch.equal(a[name], b[name]) for name in a)
    with pytest.raises(InputError, match="train the model with snapshots"):
        read_snapshots(tmp_path / "c.model")
