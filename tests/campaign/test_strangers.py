"""A run directory of somebody else: its models are read as all others."""

import os

import pytest
import torch

from adaptntk.campaign.loop import run_campaign
from adaptntk.errors import InputError, ModelError
from tests.campaign.test_trouble import copy_of
from tests.conftest import tiny_network
from tests.models.mace.hostile import Call, inside


def test_a_model_that_was_replaced_is_not_run(reference, tmp_path):
    config, run = copy_of(reference, tmp_path)
    last = run / "rounds" / "02"
    (run / "verdict.json").unlink()
    module = inside(tiny_network(torch.float32).module, Call(os.system, f"touch {tmp_path / 'marker'}"))
    torch.save(module, last / "model.model")
    with pytest.raises(InputError, match=r"model\.model: was changed or damaged"):
        run_campaign(config, resume=True)
    for name in ("model.ntk", "round.json"):
        (last / name).unlink()
    with pytest.raises(
        ModelError, match=r"model\.model: names \w+\.system, which no MACE model needs; nothing was run"
    ):
        run_campaign(config, resume=True)
    assert not (tmp_path / "marker").exists()
