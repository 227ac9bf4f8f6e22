"""``adaptntk train``"""

import dataclasses
import logging
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from adaptntk.errors import InputError
from adaptntk.files import check_writable
from adaptntk.progress import Show, duration
from adaptntk.verbs.settings import option, verb
from adaptntk.verbs.shared import Device, LabelNames, Seed

if TYPE_CHECKING:
    from adaptntk.training.loop import EpochReport, Trained

log = logging.getLogger(__name__)


class TrainSettings(LabelNames, Device, Seed):
    train: Path = option("Labelled training structures (extxyz).")
    valid: Path = option("Labelled validation structures.")
    output: Path = option("The .model file to write.", short="-o")
    preset: str = option("small (fast on a CPU), paper (for a GPU), or tiny (a toy).", "small")
    epochs: int | None = option("Override the preset.", None)
    batch_size: int | None = option("Override the preset.", None)
    learning_rate: float | None = option("Override the preset.", None)
    energy_loss: str = option("Energy error per_atom (as in MACE) or total.", "per_atom")
    energy_reference: str | None = option(
        "Count energies from elements (least squares) or from the mean per atom.",
        None,
        default_text="mean for paper, else elements",
    )
    resume: bool = option("Go on from the last epoch's checkpoint.", False)
    dtype: str = option("float32 or float64.", "float32")


class TrainReport(NamedTuple):
    trained: "Trained"
    output: Path

    def lines(self) -> Iterable[str]:
        epoch = "" if self.trained.best_epoch is None else f" epoch {self.trained.best_epoch},"
        yield (
            f"wrote {self.output}:{epoch} validation force RMSE {self.trained.force_rmse:.4f} eV/Å, "
            f"energy RMSE {1000 * self.trained.energy_rmse_per_atom:.2f} meV/atom"
        )


@verb(TrainSettings)
def train(settings: TrainSettings, show: Show) -> TrainReport:
    """Train a MACE network with the paper's recipe and write a stock .model file."""
    from adaptntk.data.splits import check_disjoint
    from adaptntk.training.loop import TrainingOptions, train as train_network
    from adaptntk.training.recipe import find_preset

    recipe = find_preset(settings.preset, settings.epochs)
    reference = settings.energy_reference or ("elements" if recipe.element_energies else "mean")
    recipe = dataclasses.replace(
        recipe,
        batch_size=recipe.batch_size if settings.batch_size is None else settings.batch_size,
        learning_rate=recipe.learning_rate if settings.learning_rate is None else settings.learning_rate,
        per_atom_energy=_second("--energy-loss", settings.energy_loss, "total", "per_atom"),
        element_energies=_second("--energy-reference", reference, "mean", "elements"),
    )
    check_writable(settings.output)
    sets = settings.read(settings.train), settings.read(settings.valid)
    check_disjoint({f"--train {settings.train}": sets[0], f"--valid {settings.valid}": sets[1]})
    options = TrainingOptions(settings.dtype, settings.resume)
    trained = train_network(*sets, settings.output, recipe, settings.seed, settings.device, _log_epochs(), options)
    return TrainReport(trained, settings.output)


def _log_epochs() -> "Callable[[EpochReport], None]":
    """Tells of an epoch now and then, with the time left."""
    seconds: deque[float] = deque(maxlen=5)

    def tell(report: "EpochReport") -> None:
        seconds.append(report.seconds)
        if report.epoch in (1, report.epochs) or report.epoch % max(1, report.epochs // 20) == 0:
            log.info("%s", epoch_line(report, sum(seconds) / len(seconds)))

    return tell


def epoch_line(report: "EpochReport", seconds: float) -> str:
    """How an epoch went; with so many seconds for each of the others, how long it will take."""
    errors, left = report.validation, report.epochs - report.epoch
    return (
        f"epoch {report.epoch:4d}/{report.epochs}  loss {report.train_loss:.5f}  validation: "
        f"forces {errors.force_rmse:.4f} eV/Å, energy {1000 * errors.energy_rmse_per_atom:.2f} meV/atom  "
        f"{duration(report.seconds)} per epoch" + (f", {duration(seconds * left)} left" if left else "")
    )


def _second(name: str, value: str, first: str, second: str) -> bool:
    """Whether the second of two values was chosen."""
    if value not in (first, second):
        raise InputError(f"unknown {name} {value!r}: choose {second} or {first}")
    return value == second
