"""``adaptntk train``"""

import dataclasses
import logging
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from adaptntk.errors import InputError
from adaptntk.files import check_writable
from adaptntk.models.sizes import SIZES
from adaptntk.progress import Show, duration
from adaptntk.verbs.settings import describe, option, verb
from adaptntk.verbs.shared import Device, LabelNames, Seed

if TYPE_CHECKING:
    from adaptntk.training.loop import LapReport, Trained, TrainingOptions
    from adaptntk.training.recipe import Recipe

log = logging.getLogger(__name__)

_OF_A_START = ("head", "trust_model")
_OF_NEW_NETWORKS = (*SIZES, "energy_reference", "e0s")


class TrainSettings(LabelNames, Device, Seed):
    train: Path = option("Labelled training structures (extxyz).")
    valid: Path = option("Labelled validation structures.")
    output: Path = option("The .model file to write.", short="-o")
    preset: str = option(
        "fast (a minute for a small molecule), standard (for 50 to 500 labels), paper (for a GPU), small (the default "
        "of before), or tiny (a toy).",
        "standard",
    )
    start: Path | None = option("Go on from this model instead of random weights; all but those stays as it is.", None)
    head: str | None = option("Which head of the model of --start, where it has several.", None)
    trust_model: bool = option("Run code that the file of --start brings, which is refused otherwise.", False)
    steps: int | None = option("Optimisation steps at most; override the preset.", None)
    epochs: int | None = option("The same, as passes over the training set.", None)
    batch_size: int | None = option("Structures in a batch.", None, default_text="about 48 atoms")
    learning_rate: float | None = option("Override the preset.", None)
    channels: int | None = option(SIZES["channels"], None, default_text="of the preset")
    max_ell: int | None = option(SIZES["max_ell"], None, default_text="of the preset")
    hidden_ell: int | None = option(SIZES["hidden_ell"], None, default_text="of the preset")
    correlation: int | None = option(SIZES["correlation"], None, default_text="of the preset")
    interactions: int | None = option(SIZES["interactions"], None, default_text="of the preset")
    cutoff: float | None = option(SIZES["cutoff"], None, default_text="of the preset")
    energy_loss: str = option("Energy error per_atom (as in MACE) or total.", "per_atom")
    e0s: str | None = option(
        "Count energies from isolated (atoms in the training file), average (least squares), mean (per atom), or from "
        "energies of isolated atoms as in 'H=-13.6 C=-1029.3'; these may be in a file: JSON, or labelled atoms.",
        None,
        default_text="isolated if there are any, else average; mean for paper",
    )
    energy_reference: str | None = option("The older name of --e0s.", None, default_text="see --e0s")
    resume: bool = option("Go on from the checkpoint of an interrupted training.", False)
    dtype: str | None = option("float32 or float64.", None, default_text="that of --start, or float32")

    def check_given(self, given: Iterable[str]) -> None:
        """Refuse options of new networks with one that is there, and the reverse."""
        for item, about in describe(type(self)):
            name = about.name(item.name)
            if item.name in given and self.start is None and item.name in _OF_A_START:
                raise InputError(f"{name} is about the model of --start; name one, or leave it out")
            if item.name in given and self.start is not None and item.name in _OF_NEW_NETWORKS:
                raise InputError(f"{name} is for new networks: that of --start stays as it is; leave one of them out")

    @property
    def options(self) -> "TrainingOptions":
        """With the model to start from."""
        from adaptntk.models.registry import load_potential
        from adaptntk.training.loop import TrainingOptions

        how = self.head, self.trust_model
        found = None if self.start is None else load_potential(self.start, self.device, self.dtype, *how)
        return TrainingOptions(self.dtype, self.resume, start=found, trust=self.trust_model)

    @property
    def recipe(self) -> "Recipe":
        """The preset with all that was chosen."""
        from adaptntk.models.family import resized
        from adaptntk.training.recipe import find_preset
        from adaptntk.training.reference import counting_from

        recipe = find_preset(self.preset, self.epochs, self.steps)
        if self.start is not None:
            recipe = recipe.restarted(shorter=False)
        chosen = {name: getattr(self, name) for name in SIZES if getattr(self, name) is not None}
        given = {name: getattr(self, name) for name in ("batch_size", "learning_rate")}
        name, e0s = ("--e0s", self.e0s) if self.e0s is not None else ("--energy-reference", self.energy_reference)
        if e0s is not None:
            recipe = counting_from(recipe, e0s, name, self.read)
        return dataclasses.replace(
            recipe,
            architecture=resized(recipe.architecture, chosen),
            per_atom_energy=_second("--energy-loss", self.energy_loss, "total", "per_atom"),
            **{name: value for name, value in given.items() if value is not None},
        )


class TrainReport(NamedTuple):
    trained: "Trained"
    output: Path

    def lines(self) -> Iterable[str]:
        record = self.trained.record
        why = "" if record is None else f" {record.steps:,} steps ({_ENDS[record.ended]}),"
        yield (
            f"wrote {self.output}:{why} validation force RMSE {self.trained.force_rmse:.4f} eV/Å, "
            f"energy RMSE {1000 * self.trained.energy_rmse_per_atom:.2f} meV/atom"
            f"{stress_words(self.trained.stress_rmse)}"
        )
        yield from [] if record is None else record.lines()


_ENDS = {"flat": "the validation error had become flat", "steps": "all that were allowed"}


@verb(TrainSettings)
def train(settings: TrainSettings, show: Show) -> TrainReport:
    """Train a MACE network until its labels are used up, and write a stock .model file."""
    from adaptntk.data.labels import is_isolated
    from adaptntk.data.splits import check_disjoint
    from adaptntk.training.loop import train as train_network

    recipe, options = settings.recipe, settings.options
    check_writable(settings.output)
    sets = settings.read(settings.train), settings.read(settings.valid)
    check_disjoint({f"--train {settings.train}": sets[0], f"--valid {settings.valid}": sets[1]})
    if settings.e0s in ("isolated", "IsolatedAtom") and not any(map(is_isolated, sets[0])):
        raise InputError(f"{settings.train}: no frame is an atom with config_type=IsolatedAtom, as --e0s wants")
    trained = train_network(*sets, settings.output, recipe, settings.seed, settings.device, lap_teller(), options)
    return TrainReport(trained, settings.output)


def lap_teller(name: str = "", times: int = 20) -> "Callable[[LapReport], None]":
    """Tells how a training goes, about so many times, with the time that is left at most."""
    pace: deque[tuple[int, float]] = deque(maxlen=5)  # steps and seconds of the last laps
    told = 0

    def tell(report: "LapReport") -> None:
        nonlocal told
        pace.append((report.steps - report.first, report.seconds))
        told = min(told, report.first)
        if told in (0, report.steps) or report.steps - told >= report.most_steps // times or _is_last(report):
            told = report.steps
            steps, seconds = map(sum, zip(*pace, strict=True))
            log.info("%s%s", f"{name}: " if name else "", lap_line(report, seconds / max(steps, 1)))

    return tell


def _is_last(report: "LapReport") -> bool:
    return report.steps == report.most_steps


def lap_line(report: "LapReport", pace: float) -> str:
    """How a training stands; with so many seconds for a step, how long it will take at most."""
    errors, left = report.validation, report.most_steps - report.steps
    rest = f", at most {duration(pace * left)} left" if left else ""
    return (
        f"step {report.steps:6d}/{report.most_steps}  loss {report.train_loss:.5f}  validation: "
        f"forces {errors.force_rmse:.4f} eV/Å, energy {1000 * errors.energy_rmse_per_atom:.2f} meV/atom"
        f"{stress_words(errors.stress_rmse)}"
        f"{'  annealing' if report.annealing else ''}  {1000 * pace:.0f} ms per step{rest}"
    )


def stress_words(rmse: float | None) -> str:
    """Nothing where no stress was learnt."""
    from ase.units import GPa

    return "" if rmse is None else f", stress {rmse / GPa:.3f} GPa"


def _second(name: str, value: str, first: str, second: str) -> bool:
    """Whether the second of two values was chosen."""
    if value not in (first, second):
        raise InputError(f"unknown {name} {value!r}: choose {second} or {first}")
    return value == second
