"""``python -m benchmarks al``: how many labels each way of choosing them needs."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from adaptntk.errors import InputError
from adaptntk.evaluation import summarise_errors
from adaptntk.execution import choose_workers, limited_threads
from adaptntk.files import locked, make_folder, write_json
from adaptntk.training.checkpoint import checkpoint_file
from adaptntk.uncertainty.folder_workbench import FolderWorkbench
from benchmarks.al.choice import SCORES, Choice, Chooser, check_method
from benchmarks.al.plan import PLANS, Plan
from benchmarks.al.report import al_table, draw_al
from benchmarks.al.summary import summarise
from benchmarks.data.oracle import Oracle
from benchmarks.data.tasks import Sizes, Task, find_tasks
from benchmarks.harness.experiment import check_same_experiment, experiment, find_plan, log, run_all
from benchmarks.harness.record import save_outcome
from benchmarks.settings import LearningCurves, listed


@dataclass(frozen=True)
class Job:
    """One way of choosing labels, on one task, with one seed; ``start`` is the first model, which all ways share."""

    task: Task
    seed: int
    method: str
    plan: Plan
    folder: Path
    device: str

    @property
    def name(self) -> str:
        return f"{self.task.name}, seed {self.seed}, {self.method}"

    @property
    def sizes(self) -> Sizes:
        return self.plan.sizes_of(self.task)

    @property
    def first_model(self) -> Path:
        """Of all methods with this seed."""
        return self.folder.parent / "start" / "networks" / "member-0.model"

    @property
    def done(self) -> bool:
        if self.method == "start":
            return self.first_model.exists() and not checkpoint_file(self.first_model).exists()
        last = self.sizes.initial + (self.sizes.checkpoints - 1) * self.sizes.batch
        return (self.folder / f"{last:05d}" / "checkpoint.json").exists()

    def run(self) -> None:
        """All checkpoints.

        With one thread: sums over several depend on how many, and results must not depend on what else ran.
        """
        data = self.task.load(self.sizes, self.seed)
        oracle, valid, tests = Oracle(data.pool), data.valid, data.tests
        labelled = oracle.buy(data.initial)
        del data  # the labels of the pool are the oracle's from here on
        with locked(self.folder), limited_threads(1):
            if self.method == "start":
                self._workbench(self.folder, labelled, valid).member(0)
                return
            for checkpoint in range(self.sizes.checkpoints):
                folder = make_folder(self.folder / f"{len(labelled):05d}")
                record = folder / "checkpoint.json"
                last = checkpoint == self.sizes.checkpoints - 1
                if not record.exists():
                    bench = self._workbench(folder, labelled, valid)
                    self._run_checkpoint(folder, bench, None if last else oracle, tests)
                content = json.loads(record.read_text())
                if not last:
                    labelled = labelled + oracle.buy(content["picked"])

    def _run_checkpoint(
        self, folder: Path, bench: FolderWorkbench, oracle: Oracle | None, tests: dict[str, list[Atoms]]
    ) -> None:
        """Train, test and, if there is an oracle to buy from, choose: everything is on disk when this returns."""
        model = bench.member(0)
        errors = {name: asdict(summarise_errors(model.predict(frames), frames)) for name, frames in tests.items()}
        choice = Choice([], (), {"uncertainty": 0.0, "selection": 0.0})
        if oracle is not None:
            choice = Chooser(self.method, self.sizes.batch, self.seed, self.plan.options).choose(bench, oracle)
        spent, count = bench.training_seconds(), len(bench.train)
        write_json(folder / "seconds.json", {"training": sum(spent[name] for name in bench.used), **choice.seconds})
        content = {"labels": count, "errors": errors, "picked": choice.indices, "details": choice.details}
        write_json(folder / "checkpoint.json", content)
        force = next(iter(errors.values()))["force_rmse"]
        log.info("%s: %d labels, force RMSE %.4f eV/Å", self.name, count, force)

    def _workbench(self, folder: Path, labelled: list[Atoms], valid: list[Atoms]) -> FolderWorkbench:
        first = len(labelled) == self.sizes.initial and self.first_model.exists()
        return FolderWorkbench(
            labelled,
            valid,
            self.seed,
            folder=folder / "networks",
            recipe=self.plan.recipe_of(self.task),
            device=self.device,
            given={"member-0": self.first_model} if first else {},
            keep_snapshots=self.method in ("start", "swag"),
        )


def run(settings: LearningCurves) -> str:
    """Learning curves of all methods; writes ``results.json``, ``table.md`` and figures.

    Interrupted at any point and called again, it goes on where it was, with the same results. How long everything took
    is in ``timings.json``.
    """
    plan = find_plan(PLANS, settings.preset, settings.seeds)
    methods = _methods(settings)
    tasks = find_tasks(settings)
    how = {"preset": settings.preset, "recipe": asdict(plan.recipe), "options": plan.options}
    with experiment(settings.output, how) as folder:
        for task in tasks:
            sizes = plan.sizes_of(task)
            task.prepare(sizes, settings.preset == "smoke", choose_workers(100, settings.jobs, "cpu"))
            what = {"data": task.identity, "sizes": asdict(sizes)}
            check_same_experiment(make_folder(folder / task.name), what)
        starts = [
            Job(task, seed, "start", plan, folder / task.name / f"seed-{seed}" / "start", settings.device)
            for task in tasks
            for seed in range(settings.seeds)
        ]
        # Dear ones first, so that at the end of a seed no worker waits long for another.
        ranked = sorted(methods, key=lambda name: name not in SCORES)
        work = [
            dataclasses.replace(start, method=method, folder=start.folder.parent / method)
            for start in starts
            for method in ranked
        ]
        for stage in (starts, work):
            run_all(stage, settings.jobs, settings.device)
        table = write_results(folder, settings.preset, plan, tasks, range(settings.seeds), methods)
    return f"{table}\nwrote results.json, timings.json, table.md and figures to {folder}"


def _methods(settings: LearningCurves) -> list[str]:
    methods = listed(settings.methods)
    for method in methods:
        check_method(method)
    if settings.preset == "paper" and any(method.endswith("@exact") for method in methods):
        raise InputError("exact gradients of the paper's pool and network take 200 GB: leave out exact")
    if "random" not in methods:
        raise InputError("the method random must be among those compared: the others are measured by it")
    return methods


def write_results(
    folder: Path, preset: str, plan: Plan, tasks: Sequence[Task], seeds: Sequence[int], methods: Sequence[str]
) -> str:
    """Curves, table and figures from what the jobs left on disk; returns the table."""
    results: dict[str, Any] = {"preset": preset, "seeds": list(seeds), "methods": list(methods), "tasks": {}}
    timings: dict[str, Any] = {}
    for task in tasks:
        folders = {method: [folder / task.name / f"seed-{seed}" / method for seed in seeds] for method in methods}
        curves = {method: [_read_curve(path) for path in paths] for method, paths in folders.items()}
        sizes = asdict(plan.sizes_of(task))
        results["tasks"][task.name] = {
            "sizes": sizes,
            "level_of_theory": task.level_of_theory,
            "curves": curves,
            "summary": summarise(curves, sizes["valid"]),
        }
        timings[task.name] = {method: _seconds(paths) for method, paths in folders.items()}
    table = al_table(results)
    save_outcome(folder, results, table, timings={"seconds": timings})
    draw_al(folder)
    return table


def _read_curve(folder: Path) -> list[dict[str, Any]]:
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("*/checkpoint.json"))]
    return [{"labels": record["labels"], "errors": record["errors"]} for record in records]


def _seconds(folders: Sequence[Path]) -> dict[str, float]:
    """Sums over checkpoints, means over seeds."""
    found = [[json.loads(path.read_text()) for path in sorted(folder.glob("*/seconds.json"))] for folder in folders]
    keys = ("training", "uncertainty", "selection")
    return {key: float(np.mean([sum(record[key] for record in seed) for seed in found])) for key in keys}
