"""A folder in which methods find the networks they need, each trained once."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adaptntk.data.labels import split_isolated
from adaptntk.errors import InputError
from adaptntk.files import damaged, make_folder, read_text, write_atomically
from adaptntk.models.protocol import Potential
from adaptntk.models.registry import load_potential
from adaptntk.representation import short_repr
from adaptntk.training.checkpoint import checkpoint_file, read_snapshots, snapshot_file, training_identity
from adaptntk.training.labelled import untrained_network
from adaptntk.training.loop import LapReport, TrainingOptions, train
from adaptntk.training.recipe import Recipe
from adaptntk.training.reference import with_isolated
from adaptntk.training.schedule import Plan
from adaptntk.uncertainty.workbench import Workbench

# Of the epochs, at the end: the weights from which SWAG is made.
SNAPSHOT_SHARE = 0.25


@short_repr
@dataclass
class FolderWorkbench(Workbench):
    """Trains on demand, resumes what was interrupted, and remembers how long each training took.

    ``used`` are the names of the networks that were asked for, ``seconds_in_training`` how long that took by now.

    Args:
        folder: where networks are kept.
        recipe: how they are trained.
        given: files of networks that are trained already, by name: ``member-0``, ``member-1``, ...
        dtype, head: how those are used; as they are stored by default.
        trust: run code that those bring, see `load_potential`.
        keep_snapshots: of the model itself, if its rate is constant, for `snapshots`: they take space.
    """

    folder: Path = field(kw_only=True)
    recipe: Recipe = field(kw_only=True)
    device: str = "auto"
    on_lap: Callable[[str, LapReport], None] = lambda name, report: None
    given: Mapping[str, Path] = field(default_factory=dict)
    dtype: str | None = None
    head: str | None = None
    trust: bool = False
    keep_snapshots: bool = True
    used: set[str] = field(default_factory=set, init=False)
    seconds_in_training: float = field(default=0.0, init=False)
    _loaded: dict[str, Potential] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.recipe = with_isolated(self.recipe, split_isolated(self.train, "training set")[1])
        super().__post_init__()

    def member(self, number: int) -> Potential:
        """A network trained with a seed of its own; number 0 is the model itself."""
        name = f"member-{number}"
        self.used.add(name)
        if name not in self._loaded:
            keep = number == 0 and self.recipe.schedule == "constant" and self.keep_snapshots
            # A thousand members of one seed come before the first of the next.
            path = self._trained(name, self.recipe, 1000 * self.seed + number, SNAPSHOT_SHARE * keep)
            how = (self.dtype, self.head, self.trust) if name in self.given else ()
            self._loaded[name] = load_potential(path, self.device, *how)
        return self._loaded[name]

    def train_members(self, count: int, executor: Executor) -> None:
        """Train the members up to that number side by side; `member` finds them afterwards."""
        missing = [number for number in range(count) if f"member-{number}" not in self.given]
        if "member-0" in self.given and missing:
            self._check_architecture()
        # What another process needs to make the same networks in the same folder.
        plain = {name: getattr(self, name) for name in ("train", "valid", "seed", "folder", "recipe", "device")}
        futures = [executor.submit(_train_member, plain, number) for number in missing]
        for future in futures:
            future.result()

    def snapshots(self) -> list[dict[str, Tensor]]:
        """Weights along the last quarter of the training of the model itself, at a constant learning rate.

        SWAG needs weights that wander. A learning rate that falls to zero brings them to rest, so that quarter is then
        repeated from the finished model at the learning rate with which it began.
        """
        model = self.member(0)
        trained = self.given.get("member-0", self.folder / "member-0.model")
        recipe = self.recipe
        if recipe.schedule == "constant" and snapshot_file(trained).exists():
            return read_snapshots(trained)
        self.used.add("swag")
        steps, epochs = (n and max(2, int(SNAPSHOT_SHARE * n)) for n in (recipe.steps, recipe.epochs))
        whole = Plan(steps=1000, anneal_from=round(1000 * (1 - recipe.anneal)) if recipe.schedule == "settle" else None)
        rate = recipe.learning_rate * whole.rate(recipe, round(1000 * (1 - SNAPSHOT_SHARE)))
        constant: dict[str, Any] = {
            "schedule": "constant",
            "average": 0.0,
            "warm_up": 0,
            "slows_after": 0,
            "extensions": 0,
        }
        recipe = dataclasses.replace(recipe.lasting(steps, epochs), learning_rate=rate, **constant)
        return read_snapshots(self._trained("swag", recipe, 1000 * self.seed, snapshots=1.0, start=model))

    def dropout_member(self, rate: float) -> Potential:
        """A network trained with dropout, which is still active in it when it is in training mode."""
        name = f"dropout-{rate:g}"
        self.used.add(name)
        if name not in self._loaded:
            path = self._trained(name, dataclasses.replace(self.recipe, dropout=rate), 1000 * self.seed)
            self._loaded[name] = load_potential(path, self.device).with_dropout(rate)
        return self._loaded[name]

    def training_seconds(self) -> dict[str, float]:
        """How long each network was trained, interruptions not counted."""
        given = {name: path.with_suffix(".seconds") for name, path in self.given.items()}
        elsewhere = {name: _sum_of_lines(path) for name, path in given.items() if path.exists()}
        return self.read_seconds(self.folder) | elsewhere

    @staticmethod
    def read_seconds(folder: Path) -> dict[str, float]:
        """How long each network in a folder was trained."""
        return {path.name.removesuffix(".seconds"): _sum_of_lines(path) for path in sorted(folder.glob("*.seconds"))}

    def _check_identity(self, name: str, identity: str) -> None:
        """Refuse a network of that name that was trained on other data, with another seed or in another way."""
        path = make_folder(self.folder) / f"{name}.identity"
        if not path.exists():
            write_atomically(path, lambda temporary: temporary.write_text(identity))
        if read_text(path) != identity:
            why = f"{self.folder}: holds a network {name!r} of a training with other data, seed or settings"
            raise InputError(f"{why}; choose another folder, or remove this one")

    def _check_architecture(self) -> None:
        """Networks to be compared with a given one must be built like it."""
        if not untrained_network(self.train, self.recipe, torch.float32, seed=0).built_like(self.member(0)):
            why = "is not built like the networks of this preset, so no others can be trained to go with it"
            cure = "train them yourself and name their files, or choose its preset"
            raise InputError(f"{self.given['member-0']}: {why}; {cure}")

    def _trained(
        self, name: str, recipe: Recipe, seed: int, snapshots: float = 0.0, start: Potential | None = None
    ) -> Path:
        if name in self.given:
            return self.given[name]
        path = self.folder / f"{name}.model"
        if "member-0" in self.given and start is None:
            self._check_architecture()
        self._check_identity(name, training_identity(self.train, self.valid, recipe, seed, "float32", start))
        begun = checkpoint_file(path).exists()
        if begun or not path.exists():

            def report(lap: LapReport) -> None:
                with (self.folder / f"{name}.seconds").open("a") as file:
                    file.write(f"{lap.seconds:.4f}\n")
                self.on_lap(name, lap)

            began = time.perf_counter()
            options = TrainingOptions(resume=begun, snapshots=snapshots, start=start)
            train(self.train, self.valid, path, recipe, seed, self.device, report, options)
            self.seconds_in_training += time.perf_counter() - began
        return path


def _sum_of_lines(path: Path) -> float:
    try:
        return sum(float(line) for line in read_text(path).split())
    except ValueError as error:
        raise damaged(path, error) from None


def _train_member(plain: dict[str, Any], number: int) -> None:
    FolderWorkbench(**plain).member(number)
