"""How a model was trained: a file beside it, the same bytes for the same training."""

import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from adaptntk.files import plain, read_record, write_json
from adaptntk.models.registry import file_hash
from adaptntk.training.limits import Learnt, Limit, Point, gain_at_the_end, gain_of_doubling
from adaptntk.training.schedule import FLAT_GAIN

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SetErrors:
    """Errors of the finished model on a set: root mean squares in eV/Å and in eV per atom."""

    structures: int
    force_rmse: float
    energy_rmse_per_atom: float


@dataclass(frozen=True, kw_only=True)
class TrainingRecord:
    """``MODEL.training.json``: no times are in it.

    Args:
        settings: the recipe as it was carried out, whatever preset it came from.
        steps: how many led to the model, in all parts of the schedule. A training that went back had gone as far as
            the end of the path.
        ended: because the validation error was ``flat``, or because all ``steps`` were taken.
        path: the validation error along the part at constant rate; empty where the schedule has none.
        train, valid: errors of the model as it was saved.
        energy_spread: standard deviation of the validation labels per atom, eV: the error of a constant.
        model: SHA-256 of the model's file, set when the record is written.
    """

    settings: dict[str, Any]
    seed: int
    steps: int
    ended: Literal["flat", "steps"]
    path: tuple[Point, ...]
    train: SetErrors
    valid: SetErrors
    energy_spread: float | None = None
    model: str = ""
    format: Literal[1] = 1

    @property
    def gain(self) -> float | None:
        """The share of the validation error that twice the steps would take off."""
        found = gain_of_doubling(self.path)
        if found is None:
            return None
        # The later half of the path may still have fallen before it became flat.
        found = found if self.ended == "steps" else min(found, FLAT_GAIN)
        return gain_at_the_end(found, self.train.force_rmse, self.valid.force_rmse)

    @property
    def limit(self) -> Limit:
        """What keeps the error from falling."""
        return Learnt(self.train.force_rmse, self.valid.force_rmse, self.valid.structures, self.gain).limit()

    def lines(self) -> list[str]:
        """What `train` ends with."""
        return self.limit.lines()


def training_record_file(model: str | Path) -> Path:
    """Where the record of a model's training is."""
    return Path(f"{model}.training.json")


def write_training_record(model: str | Path, record: TrainingRecord) -> None:
    """Write the record beside the model, which must be there already."""
    content = asdict(replace(record, model=file_hash(model)))
    # The conclusions follow from the rest: they are for those who open the file.
    conclusions = {"gain": record.gain, "limit": asdict(record.limit)}
    write_json(training_record_file(model), plain(content | conclusions))


def read_training_record(model: str | Path) -> TrainingRecord | None:
    """How the model was trained; None where there is no record, or that of another model."""
    path = training_record_file(model)
    if not path.exists():
        return None
    record = read_record(path, TrainingRecord)
    if record.model != file_hash(model):
        log.warning("%s is about another model than this %s: it is not used", path, Path(model).name)
        return None
    return record
