import json
from dataclasses import replace

import pytest

from adaptntk.errors import InputError
from adaptntk.training.limits import WORTHWHILE_GAIN, Point, gain_at_the_end
from adaptntk.training.record import (
    SetErrors,
    TrainingRecord,
    read_training_record,
    training_record_file,
    write_training_record,
)

PATH = tuple(Point(100 * k, 0.1 / k) for k in range(1, 11))
RECORD = TrainingRecord(
    settings={"architecture": {"channels": 16}, "learning_rate": 0.01, "pair": (1, 2)},
    seed=3,
    steps=2000,
    ended="steps",
    path=PATH,
    train=SetErrors(40, 0.009, 0.0004),
    valid=SetErrors(20, 0.011, 0.0005),
    energy_spread=0.01,
)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "ethanol.model"
    path.write_bytes(b"weights")
    return path


def test_what_is_written_is_read_again(model):
    assert read_training_record(model) is None
    write_training_record(model, RECORD)
    found = read_training_record(model)
    assert (found.path, found.train, found.valid, found.ended) == (PATH, RECORD.train, RECORD.valid, "steps")
    assert found.gain == pytest.approx(gain_at_the_end(0.5, 0.009, 0.011))
    assert found.limit == RECORD.limit
    assert found.limit.by == "steps"


def test_what_ended_flat_does_not_lack_steps():
    """Even if the later half of its path fell before."""
    flat = replace(RECORD, ended="flat")
    assert 0 < flat.gain < WORTHWHILE_GAIN
    assert flat.limit.by == "network"


def test_the_same_training_leaves_the_same_bytes(model, tmp_path):
    write_training_record(model, RECORD)
    (tmp_path / "again").mkdir()
    again = tmp_path / "again" / "other_name.model"
    again.write_bytes(model.read_bytes())
    write_training_record(again, RECORD)
    assert training_record_file(again).read_bytes() == training_record_file(model).read_bytes()


def test_people_find_the_verdict_in_the_file(model):
    write_training_record(model, RECORD)
    content = json.loads(training_record_file(model).read_text())
    assert content["limit"]["by"] == "steps"
    assert content["gain"] == pytest.approx(RECORD.gain)


def test_a_record_of_another_model_is_not_used(model, caplog):
    write_training_record(model, RECORD)
    model.write_bytes(b"other weights")
    assert read_training_record(model) is None
    assert "is about another model" in caplog.text


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "",
        lambda text: text.replace('"steps": 2000', '"steps": "many"'),
        lambda text: text.replace('"format": 1', '"format": 99'),
        lambda text: text.replace('"seed"', '"sead"'),
        lambda text: text.replace('"ended": "steps"', '"ended": "well"'),
    ],
)
def test_a_damaged_record_is_told_in_one_line(model, damage):
    write_training_record(model, RECORD)
    path = training_record_file(model)
    path.write_text(damage(path.read_text()))
    with pytest.raises(InputError, match=r"ethanol.model.training.json: cannot be read") as caught:
        read_training_record(model)
    assert "\n" not in str(caught.value)
