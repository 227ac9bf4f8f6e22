"""``python -m benchmarks starts``: each round from scratch, or from the model of the round before?"""

import dataclasses
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from matplotlib.figure import Figure

from adaptntk.data.structures import read_structures, write_structures
from adaptntk.data.xtb_md import build_molecule, sample_md
from adaptntk.evaluation import summarise_errors
from adaptntk.files import make_folder, write_json
from adaptntk.models.registry import load_potential
from adaptntk.progress import counted
from adaptntk.report.figures import save_figure
from adaptntk.report.tables import aligned
from adaptntk.training.loop import TrainingOptions, train
from adaptntk.training.recipe import PRESETS, Recipe
from benchmarks.harness.experiment import experiment, find_plan, run_all
from benchmarks.harness.record import save_outcome
from benchmarks.settings import Starts


@dataclass(frozen=True)
class Way:
    """How a round is trained: with a share of the preset's steps and of its learning rate."""

    name: str
    continued: bool = True
    steps: float = 1.0
    rate: float = 1.0

    @property
    def folder(self) -> str:
        return f"{'continued' if self.continued else 'scratch'}-{self.steps:g}-{self.rate:g}"


SCRATCH = Way("from scratch", continued=False)
WAYS = (
    SCRATCH,
    Way("from the model before"),
    Way("half the steps", steps=0.5),
    Way("a quarter of the steps", steps=0.25),
    Way("a quarter of the steps, 0.3 x rate", steps=0.25, rate=0.3),
)


@dataclass(frozen=True)
class Plan:
    """Labels of each round, all of one trajectory of ethanol."""

    preset: str
    steps: int
    labels: tuple[int, ...]
    valid: int
    test: int
    temperature: float = 800.0

    @property
    def recipe(self) -> Recipe:
        return PRESETS[self.preset].lasting(steps=self.steps)

    @property
    def frames(self) -> int:
        return self.labels[-1] + self.valid + self.test


PLANS = {
    "full": Plan("fast", 3_000, (40, 60, 80, 100), valid=30, test=300),
    "smoke": Plan("tiny", 8, (6, 8), valid=5, test=5),
}


@dataclass(frozen=True)
class Seed:
    """All trainings of a seed, with an order of the frames of its own; one that is interrupted is begun again."""

    top: Path
    plan: Plan
    seed: int

    @property
    def name(self) -> str:
        return f"seed {self.seed}"

    @property
    def folder(self) -> Path:
        return self.top / f"seed-{self.seed}"

    @property
    def done(self) -> bool:
        return all(self._result(way, labels).exists() for way in WAYS for labels in self.plan.labels[1:])

    def rows(self) -> list[dict[str, Any]]:
        """What each training achieved, as far as there are."""
        first = [(SCRATCH, self.plan.labels[0])]
        found = [*first, *((way, labels) for way in WAYS for labels in self.plan.labels[1:])]
        results = [(way, self._result(way, labels)) for way, labels in found]
        return [
            {"way": way.name, "seed": self.seed} | json.loads(path.read_text())
            for way, path in results
            if path.exists()
        ]

    def run(self) -> None:
        frames = read_structures(self.top / "ethanol.xyz", labelled=True)
        mixed = [frames[i] for i in np.random.default_rng(self.seed).permutation(len(frames))]
        plan, rest = self.plan, mixed[self.plan.labels[-1] :]
        for before, labels in zip((None, *plan.labels), plan.labels, strict=False):
            # In turns, so that a slow hour of the machine hits all alike.
            for way in WAYS if before is not None else [SCRATCH]:
                if not self._result(way, labels).exists():
                    self._train(way, before, (mixed[:labels], rest[: plan.valid], rest[plan.valid :]))

    def _train(self, way: Way, before: int | None, sets: tuple[Sequence[Atoms], ...]) -> None:
        learnt, valid, test = sets
        labels, recipe = len(learnt), self.plan.recipe
        steps, rate = max(1, round(way.steps * self.plan.steps)), way.rate * recipe.learning_rate
        recipe = dataclasses.replace(recipe.lasting(steps=steps), learning_rate=rate)
        start = load_potential(self._model(way, before), "cpu") if way.continued and before is not None else None
        model, began = self._model(way, labels), time.process_time()
        make_folder(model.parent)
        # Another seed each round, as campaigns have it.
        seed, options = 1000 * self.seed + labels, TrainingOptions(start=start)
        found = train(learnt, valid, model, recipe, seed, "cpu", options=options)
        seconds = time.process_time() - began
        errors = summarise_errors(found.potential.predict(test), test)
        assert found.record is not None
        result = {"labels": labels, "steps": found.record.steps, "seconds": round(seconds, 2)}
        for name in ("force_rmse", "energy_mae_per_atom"):
            result[name] = round(1000 * getattr(errors, name), 3)
        write_json(self._result(way, labels), result)

    def _model(self, way: Way, labels: int) -> Path:
        """All ways begin with the same first model."""
        folder = SCRATCH.folder if labels == self.plan.labels[0] else way.folder
        return self.folder / folder / f"{labels}.model"

    def _result(self, way: Way, labels: int) -> Path:
        return self._model(way, labels).with_suffix(".json")


def run(settings: Starts) -> str:
    """Train all rounds in all ways, write results, a table and a figure."""
    plan = find_plan(PLANS, settings.preset, settings.seeds)
    identity = {"plan": dataclasses.asdict(plan), "ways": [dataclasses.asdict(way) for way in WAYS]}
    with experiment(settings.output, identity) as folder:
        made = folder / "ethanol.xyz"
        if not made.exists():
            molecule = build_molecule("ethanol")
            write_structures(made, sample_md(molecule, plan.frames, plan.temperature, 20, 0.5, 0))
        seeds = [Seed(folder, plan, seed) for seed in range(settings.seeds)]
        run_all(seeds, settings.jobs, "cpu")
        return summarise(folder, plan, seeds)


def summarise(folder: Path, plan: Plan, seeds: Sequence[Seed]) -> str:
    """Results of the seeds that are complete."""
    complete = [seed for seed in seeds if seed.done]
    rows = [row for seed in complete for row in seed.rows()]
    seconds = [row.pop("seconds") for row in rows]
    results = {**dataclasses.asdict(plan), "seeds": [seed.seed for seed in complete], "rows": rows}
    table = starts_table(results, seconds)
    save_outcome(folder, results, table, timings={"cpu_seconds": seconds})
    drawn = draw(results, seconds, folder / "starts.png")
    return f"{table}\nwrote {folder / 'results.json'}, table.md and {drawn.name}"


def _medians(results: dict[str, Any], seconds: Sequence[float]) -> dict[str, dict[str, Any]]:
    """By way: errors after each round, and steps and CPU seconds of all rounds after the first, over the seeds."""
    labels, found = results["labels"], {}
    timed = [row | {"seconds": s} for row, s in zip(results["rows"], seconds, strict=True)]
    for way in WAYS:

        def errors(name: str, count: int, way: str = way.name) -> float:
            of = way if count > labels[0] else SCRATCH.name
            return statistics.median(row[name] for row in timed if (row["way"], row["labels"]) == (of, count))

        later = [row for row in timed if row["way"] == way.name and row["labels"] > labels[0]]
        spent = {
            name: statistics.median(sum(row[name] for row in later if row["seed"] == seed) for seed in results["seeds"])
            for name in ("steps", "seconds")
        }
        found[way.name] = spent | {
            name: [errors(name, count) for count in labels] for name in ("force_rmse", "energy_mae_per_atom")
        }
    return found


def starts_table(results: dict[str, Any], seconds: Sequence[float]) -> str:
    """Markdown: errors by way and labels, and what the rounds cost."""
    labels, count = results["labels"], len(results["seeds"])
    heading = ["training of a round", *(f"RMSE at {n}" for n in labels[1:]), f"energy MAE at {labels[-1]}"]
    rows = [[*heading, "steps", "CPU seconds"]]
    for way, found in _medians(results, seconds).items():
        errors = [f"{error:.1f}" for error in found["force_rmse"][1:]]
        energy = f"{found['energy_mae_per_atom'][-1]:.2f}"
        rows.append([way, *errors, energy, f"{found['steps']:,.0f}", f"{found['seconds']:.0f}"])
    first = _medians(results, seconds)[SCRATCH.name]["force_rmse"][0]
    note = (
        f"Ethanol at {results['temperature']:.0f} K, GFN2-xTB, preset {results['preset']} with {results['steps']:,} "
        f"steps, {results['valid']} validation and {results['test']} test frames; medians over "
        f"{counted(count, 'seed')}. Force RMSE in meV/Å ({first:.1f} with the first {labels[0]} labels), energy MAE in "
        "meV per atom; steps and CPU seconds (one thread) of all rounds after the first."
    )
    return "\n".join(["# Rounds from scratch, or from the model before", "", note, "", *aligned(rows), ""])


def draw(results: dict[str, Any], seconds: Sequence[float], path: Path) -> Path:
    """Errors against labels, and the last against what all rounds cost."""
    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    colours = ("#888888", "#4477AA", "#66CCEE", "#228833", "#EE6677")
    for colour, (way, found) in zip(colours, _medians(results, seconds).items(), strict=True):
        left.plot(results["labels"], found["force_rmse"], marker="o", ms=4, color=colour, label=way)
        right.scatter([found["seconds"]], [found["force_rmse"][-1]], color=colour, s=40)
    left.set_xlabel("labels")
    left.set_ylabel("force RMSE on test frames (meV/Å)")
    right.set_xlabel(f"CPU seconds of {len(results['labels']) - 1} rounds")
    right.set_title(f"after the last round, {results['labels'][-1]} labels", fontsize=10)
    right.set_xlim(left=0)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    return save_figure(figure, path)
