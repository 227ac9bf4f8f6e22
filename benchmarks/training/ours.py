"""A training of ours, looked at while it runs; the clocks stand still meanwhile."""

import contextlib
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from ase import Atoms
from torch import Tensor

from adaptntk.data.structures import structure_sizes
from adaptntk.evaluation import energy_errors
from adaptntk.models.family import Trainable, as_trainable
from adaptntk.training.loop import LapReport, train
from adaptntk.training.recipe import Recipe
from benchmarks.training.curve import Frames, Point, Run, measure, moments

# Steps of the first guess at the pace.
GUESS = 1000


class Watched:
    """What a training would hand over at certain moments: its best network so far by its own validation."""

    def __init__(self, looks: list[float], frames: Frames, recipe: Recipe) -> None:
        self._looks, self._frames, self._recipe = looks, frames, recipe
        self._held: dict[str, Tensor] = {}
        self._errors: dict[str, float] | None = None
        self._scratch: Trainable | None = None
        self._began = time.process_time(), time.perf_counter()
        self.points: list[Point] = []
        self.steps = 0

    def spent(self) -> tuple[float, float]:
        """Seconds of the processor and of the clock."""
        return time.process_time() - self._began[0], time.perf_counter() - self._began[1]

    def __call__(self, report: LapReport) -> None:
        seconds, wall = self.spent()
        self.steps = report.steps
        if report.improved:
            self._held = {name: value.clone() for name, value in report.potential.module.state_dict().items()}
            self._errors = None
        if self._looks and seconds >= self._looks[0]:
            self._looks = [moment for moment in self._looks if moment > seconds]
            self._errors = self._errors or self._measure(report.potential)
            self.points.append(Point(seconds, wall, **self._errors))
        now = time.process_time(), time.perf_counter()
        self._began = now[0] - seconds, now[1] - wall

    def _measure(self, potential: Trainable) -> dict[str, float]:
        self._scratch = self._scratch or potential.copy()
        self._scratch.module.load_state_dict(self._held)
        if self._recipe.centre_energies:
            centre(self._scratch, self._frames["train"])
        return measure(self._scratch, self._frames["test"])


def centre(potential: Trainable, frames: list[Atoms]) -> None:
    """Do what a training does in the end: leave no mean error of the energy per atom on its training set."""
    errors = energy_errors(potential.predict(frames).energies, frames)
    potential.shift_energies(-float(np.mean(errors / structure_sizes(frames))))


def run_ours(recipe: Recipe, frames: Frames, seed: int, seconds: float | None, folder: Path) -> Run:
    """Train as long as these seconds allow, or as long as the recipe says."""
    if seconds is not None:
        recipe = replace(recipe, extensions=0)
        recipe = recipe.lasting(steps=steps_within(seconds, recipe, frames, folder))
    watched = Watched(moments(seconds).tolist(), frames, recipe)
    path = folder / "ours.model"
    trained = train(frames["train"], frames["valid"], path, recipe, seed, device="cpu", on_lap=watched)
    used, wall = watched.spent()
    potential = as_trainable(trained.potential)
    return Run(
        [*watched.points, Point(used, wall, **measure(potential, frames["test"]))],
        measure(potential, frames["train"]),
        watched.steps,
        sum(tensor.numel() for tensor in potential.module.parameters()),
        {"planned_steps": recipe.steps, "ended": trained.record and trained.record.ended},
    )


class _EnoughError(Exception):
    """The pace is known."""


def steps_within(seconds: float, recipe: Recipe, frames: Frames, folder: Path) -> int:
    """How many steps fit beside set-up and validation.

    How often is validated depends on the length, so the pace is taken twice: of a short training, and of the one that
    it suggests. Neither goes beyond its third lap, and the pace is that of the last two.
    """
    steps = GUESS
    for _ in range(2):
        start, laps = time.process_time(), list[tuple[int, float]]()

        def note(report: LapReport, laps: list[tuple[int, float]] = laps) -> None:
            laps.append((report.steps, time.process_time()))
            if len(laps) == 3:
                raise _EnoughError

        with contextlib.suppress(_EnoughError):
            short, path = recipe.lasting(steps=steps), folder / "pace.model"
            train(frames["train"], frames["valid"], path, short, device="cpu", on_lap=note)
        if len(laps) == 1:  # so short that set-up cannot be told from steps
            laps.insert(0, (0, start))
        (first, began), (last, ended) = laps[0], laps[-1]
        pace = (last - first) / (ended - began)
        set_up = began - start - first / pace
        steps = max(1, round((seconds - set_up) * pace))
    return steps
