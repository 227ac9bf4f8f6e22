"""``adaptntk benchmark al``: how many labels each way of choosing them needs."""

import dataclasses
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from adaptntk.uncertainty.ntk import NTKUncertainty
from ase import Atoms
from scipy import stats
from torch import Tensor

from adaptntk.core.metrics import force_rmse
from adaptntk.core.selection.greedy import by_score
from adaptntk.core.selection.problem import Constraints
from adaptntk.core.selection.registry import SELECTORS
from adaptntk.core.sketch.quality import jaccard
from adaptntk.core.sketch.registry import make_sketch
from adaptntk.data.structures import reference_energies, reference_forces
from adaptntk.errors import InputError
from adaptntk.execution import choose_workers, limited_threads
from adaptntk.files import locked, make_folder, write_atomically, write_json
from adaptntk.models.protocol import Potential
from adaptntk.training.checkpoint import checkpoint_file
from adaptntk.training.recipe import PRESETS, Recipe
from adaptntk.uncertainty.registry import fit_method
from adaptntk.uncertainty.workbench import FolderWorkbench
from benchmarks.al_data import Sizes, Task
from benchmarks.al_report import al_table, draw_al
from benchmarks.al_results import summarise
from benchmarks.jobs import find_plan, run_all
from benchmarks.oracle import Oracle
from benchmarks.record import check_same_experiment, save_result

log = logging.getLogger(__name__)

# Methods whose scores are used with top-B, under the names they have in active learning.
SCORES = {"qbc": "ensemble", "mcd": "dropout", "swag": "swag", "edl": "evidential", "llpr": "last_layer"}
DEFAULT_METHODS = ("adaptntk", "topb", "lcmd", "bait", "qbc", "random")


@dataclass(frozen=True)
class Plan:
    """The size of the experiment."""

    recipe: Recipe
    sizes: dict[str, Sizes]
    options: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)


PLANS = {
    "cpu": Plan(
        dataclasses.replace(PRESETS["small"], epochs=60, batch_size=5),
        {
            "molecule": Sizes(pool=3000, valid=50, test=1000, cold_share=0.9),
            # So small a network learns neither heteroatoms nor larger molecules from 200 labels.
            "reactions": Sizes(pool=3000, valid=50, test=1000, epochs=100, elements="CHO", largest=10),
        },
    ),
    "paper": Plan(
        PRESETS["paper"],
        {
            "molecule": Sizes(pool=74_900, valid=100, test=25_000, checkpoints=20),
            "reactions": Sizes(pool=75_000, valid=100, test=25_000, checkpoints=20),
        },
    ),
    "smoke": Plan(
        dataclasses.replace(PRESETS["tiny"], epochs=5),
        {
            "molecule": Sizes(pool=100, valid=20, test=40, initial=16, batch=8, checkpoints=2, cold_share=0.8),
            "reactions": Sizes(pool=160, valid=20, test=40, initial=16, batch=8, checkpoints=2),
        },
        {"ensemble": {"members": 2}, "dropout": {"passes": 3}, "swag": {"draws": 3}, "evidential": {"steps": 50}},
    ),
}


@dataclass(frozen=True)
class Job:
    """One way of choosing labels, on one task, with one seed."""

    task: Task
    seed: int
    method: str
    plan: Plan
    folder: Path
    device: str

    @property
    def sizes(self) -> Sizes:
        """Of this task's kind."""
        return sizes_of(self.plan, self.task)

    @property
    def recipe(self) -> Recipe:
        """Of every training."""
        recipe = self.plan.recipe
        if self.sizes.epochs is not None:
            recipe = dataclasses.replace(recipe, epochs=self.sizes.epochs)
        # Where compositions differ, total energies per atom say what a molecule is made of and nothing else.
        return recipe if self.task.reactions is None else dataclasses.replace(recipe, element_energies=True)

    @property
    def done(self) -> bool:
        """Has it left all its results?"""
        if self.method == "start":
            model = self.folder / "networks" / "member-0.model"
            return model.exists() and not checkpoint_file(model).exists()
        last = self.sizes.initial + (self.sizes.checkpoints - 1) * self.sizes.batch
        return (self.folder / f"{last:05d}" / "checkpoint.json").exists()


@dataclass(frozen=True)
class Choice:
    """A batch, how long scores and selection took, and what is worth knowing about how it was chosen."""

    indices: list[int]
    seconds: dict[str, float]
    details: dict[str, Any] = dataclasses.field(default_factory=dict)


def benchmark_al(
    output: str | Path,
    tasks: Sequence[Task],
    preset: str = "cpu",
    seeds: int = 3,
    methods: Sequence[str] = DEFAULT_METHODS,
    jobs: int | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """Learning curves of all methods; writes ``results.json``, ``table.md`` and figures.

    Interrupted at any point and called again, it goes on where it was, with the same results. How long everything took
    is in ``timings.json``.
    """
    plan = find_plan(PLANS, preset, seeds)
    for method in methods:
        check_method(method)
    if preset == "paper" and any(method.endswith("@exact") for method in methods):
        raise InputError("exact gradients of the paper's pool and network take 200 GB: leave out exact")
    if "random" not in methods:
        raise InputError("the method random must be among those compared: the others are measured by it")
    folder = make_folder(output)
    with locked(folder):
        how = {"preset": preset, "recipe": dataclasses.asdict(plan.recipe), "options": plan.options}
        check_same_experiment(folder, how)
        for task in tasks:
            sizes = sizes_of(plan, task)
            task.prepare(sizes, preset == "smoke", choose_workers(100, jobs, "cpu"))
            what = {"data": task.identity, "sizes": dataclasses.asdict(sizes)}
            check_same_experiment(make_folder(folder / task.name), what)
        starts = [
            Job(task, seed, "start", plan, folder / task.name / f"seed-{seed}" / "start", device)
            for task in tasks
            for seed in range(seeds)
        ]
        # Dear ones first, so that at the end of a seed no worker waits long for another.
        ranked = sorted(methods, key=lambda name: name not in SCORES)
        work = [
            dataclasses.replace(start, method=method, folder=start.folder.parent / method)
            for start in starts
            for method in ranked
        ]
        for stage in (starts, work):
            left = [job for job in stage if not job.done]
            run_all(run_job, left, jobs, device, lambda job: f"{job.task.name}, seed {job.seed}, {job.method}")
        return write_results(folder, preset, plan, tasks, range(seeds), methods)


def check_method(method: str) -> None:
    """Refuse an unknown name; ``adaptntk@256`` is a selector with another dimension of the sketch."""
    selector, _, dim = method.partition("@")
    if method in (*SELECTORS, *SCORES):
        return
    if selector not in SELECTORS or not (dim == "exact" or dim.isdigit()):
        known = ", ".join([*SELECTORS, *SCORES])
        raise InputError(f"unknown method {method!r}: choose among {known}; SELECTOR@DIM sets the sketch")
    if selector == "random":
        raise InputError(f"{method!r}: random picks need no sketch")
    if dim.isdigit():
        make_sketch("gaussian", int(dim), 0)  # refuses dimensions that it cannot have
    elif selector == "bait":
        raise InputError(f"{method!r}: BAIT needs a sketch, full gradients have too many dimensions")


def run_job(job: Job) -> None:
    """All checkpoints of one job, or only the first model, which all methods share.

    With one thread: sums over several depend on how many, and results must not depend on what else ran.
    """
    data = job.task.load(job.sizes, job.seed)
    oracle, valid, tests = Oracle(data.pool), data.valid, data.tests
    labelled = oracle.buy(data.initial)
    del data  # the labels of the pool are the oracle's from here on
    with locked(job.folder), limited_threads(1):
        if job.method == "start":
            _workbench(job, job.folder, labelled, valid).member(0)
            return
        for checkpoint in range(job.sizes.checkpoints):
            folder = make_folder(job.folder / f"{len(labelled):05d}")
            record = folder / "checkpoint.json"
            last = checkpoint == job.sizes.checkpoints - 1
            if not record.exists():
                bench = _workbench(job, folder, labelled, valid)
                _run_checkpoint(job, folder, bench, None if last else oracle, tests)
            content = json.loads(record.read_text())
            if not last:
                labelled = labelled + oracle.buy(content["picked"])


def _run_checkpoint(
    job: Job, folder: Path, bench: FolderWorkbench, oracle: Oracle | None, tests: dict[str, list[Atoms]]
) -> None:
    """Train, test and, if there is an oracle to buy from, choose: everything is on disk when this returns."""
    model = bench.member(0)
    errors = {name: errors_on(model, frames) for name, frames in tests.items()}
    choice = Choice([], {"uncertainty": 0.0, "selection": 0.0})
    if oracle is not None:
        choice = choose_batch(job, bench, oracle)
    spent, count = bench.training_seconds(), len(bench.train)
    write_json(folder / "seconds.json", {"training": sum(spent[name] for name in bench.used), **choice.seconds})
    content = {"labels": count, "errors": errors, "picked": choice.indices, "details": choice.details}
    write_json(folder / "checkpoint.json", content)
    force = next(iter(errors.values()))["force_rmse"]
    log.info("%s, seed %d, %s: %d labels, force RMSE %.4f eV/Å", job.task.name, job.seed, job.method, count, force)


def _workbench(job: Job, folder: Path, labelled: list[Atoms], valid: list[Atoms]) -> FolderWorkbench:
    start = job.folder.parent / "start" / "networks" / "member-0.model"
    shared = {"member-0": start} if len(labelled) == job.sizes.initial and start.exists() else None
    return FolderWorkbench(
        labelled, valid, folder / "networks", job.recipe, job.seed, job.device,
        given=shared, keep_snapshots=job.method in ("start", "swag"),
    )  # fmt: skip


def choose_batch(job: Job, bench: FolderWorkbench, oracle: Oracle) -> Choice:
    """The next batch, from structures without labels."""
    count, seed = job.sizes.batch, 1000 * job.seed + len(bench.train)
    bought = set(oracle.bought)
    constraints = Constraints([index in bought for index in range(len(oracle.pool))])
    began = time.perf_counter()
    if job.method in SCORES:
        name = SCORES[job.method]
        before = bench.seconds_in_training
        scores = fit_method(name, bench, job.plan.options.get(name)).assess(oracle.pool).variance
        scored, trained = time.perf_counter(), bench.seconds_in_training - before
        selection = by_score("topb", torch.from_numpy(scores), count, constraints)
        seconds = {"uncertainty": scored - began - trained, "selection": time.perf_counter() - scored}
        return Choice(selection.indices, seconds)
    selector, _, dim = job.method.partition("@")
    if selector == "random":
        selection = by_score("random", torch.zeros(len(oracle.pool)), count, constraints, seed)
        return Choice(selection.indices, {"uncertainty": 0.0, "selection": time.perf_counter() - began})
    sketch = make_sketch("none" if dim == "exact" else "gaussian", int(dim) if dim.isdigit() else 512, job.seed)
    fitted = NTKUncertainty.fit(bench.member(0), bench.train, sketch).calibrate(bench.valid, seed=job.seed)
    rows = fitted.features_of(oracle.pool, "pool")
    scored = time.perf_counter()
    chosen = fitted.select_features(rows, count, selector, constraints, seed)
    seconds = {"uncertainty": scored - began, "selection": time.perf_counter() - scored}
    details = {
        "alpha": fitted.ridge.alpha,
        "effective_dimension": fitted.ridge.effective_dimension,
        "normalise": fitted.normalise,
        "correlation_with_atoms": _size_correlation(fitted.posterior.variance(rows), oracle.pool),
    }
    return Choice(chosen.indices, seconds, details)


def _size_correlation(variances: Tensor, structures: Sequence[Atoms]) -> float | None:
    """Spearman's, of scores and numbers of atoms; None if all are of one size."""
    sizes = np.array([len(atoms) for atoms in structures])
    return None if len(set(sizes)) == 1 else float(stats.spearmanr(variances.cpu().numpy(), sizes).statistic)


def errors_on(model: Potential, frames: Sequence[Atoms]) -> dict[str, float]:
    """Errors on a test set, eV and eV/Å; the tail as well as the mean.

    ``hot_force_rmse`` is of the tenth with the highest energy per atom above what its elements account for.
    """
    predicted = model.predict(frames)
    sizes = np.array([len(atoms) for atoms in frames], dtype=float)
    errors = force_rmse(predicted.forces, reference_forces(frames))
    energies = reference_energies(frames)
    numbers = sorted({int(z) for atoms in frames for z in atoms.numbers})
    counts = np.array([[np.count_nonzero(atoms.numbers == z) for z in numbers] for atoms in frames], dtype=float)
    excess = (energies - counts @ np.linalg.lstsq(counts, energies, rcond=None)[0]) / sizes
    hot = excess >= np.quantile(excess, 0.9)
    return {
        "force_rmse": float(np.sqrt(np.average(errors**2, weights=sizes))),
        "force_rmse_p99": float(np.quantile(errors, 0.99)),
        "hot_force_rmse": float(np.sqrt(np.average(errors[hot] ** 2, weights=sizes[hot]))),
        "energy_mae": float(np.abs(predicted.energies - energies).mean()),
        "energy_mae_per_atom": float((np.abs(predicted.energies - energies) / sizes).mean()),
    }


def write_results(
    folder: Path, preset: str, plan: Plan, tasks: Sequence[Task], seeds: Sequence[int], methods: Sequence[str]
) -> dict[str, Any]:
    """Curves, table and figures from what the jobs left on disk."""
    results: dict[str, Any] = {"preset": preset, "seeds": list(seeds), "methods": list(methods), "tasks": {}}
    timings: dict[str, Any] = {}
    for task in tasks:
        curves = {
            method: [_read_curve(folder / task.name / f"seed-{seed}" / method) for seed in seeds] for method in methods
        }
        sizes = dataclasses.asdict(sizes_of(plan, task))
        level = task.level_of_theory
        results["tasks"][task.name] = {
            "sizes": sizes,
            "level_of_theory": level,
            "curves": curves,
            "summary": summarise(curves, sizes["valid"]),
        }
        timings[task.name] = {
            method: _seconds([folder / task.name / f"seed-{seed}" / method for seed in seeds]) for method in methods
        }
    write_json(folder / "results.json", results)
    save_result(folder, "timings", {"seconds": timings})
    write_atomically(folder / "table.md", lambda temporary: temporary.write_text(al_table(results)))
    draw_al(folder)
    return results


def batch_overlaps(folder: Path) -> dict[str, dict[str, float]]:
    """How much the first batch of each method has in common with that of the last one but random (Jaccard).

    The first batch is chosen with the same model by all, so that nothing else differs; mean over seeds.
    """
    results = json.loads((folder / "results.json").read_text())
    methods = [method for method in results["methods"] if method != "random"]
    found: dict[str, dict[str, float]] = {}
    for task in results["tasks"]:
        batches = {
            method: [_first_batch(folder / task / f"seed-{seed}" / method) for seed in results["seeds"]]
            for method in methods
        }
        found[task] = {
            method: float(np.mean([jaccard(a, b) for a, b in zip(batches[method], batches[methods[-1]], strict=True)]))
            for method in methods[:-1]
        }
    return found


def _first_batch(folder: Path) -> list[int]:
    return list(json.loads(min(folder.glob("*/checkpoint.json")).read_text())["picked"])


def _read_curve(folder: Path) -> list[dict[str, Any]]:
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("*/checkpoint.json"))]
    return [{"labels": record["labels"], "errors": record["errors"]} for record in records]


def _seconds(folders: Sequence[Path]) -> dict[str, float]:
    """Sums over checkpoints, means over seeds."""
    found = [[json.loads(path.read_text()) for path in sorted(folder.glob("*/seconds.json"))] for folder in folders]
    keys = ("training", "uncertainty", "selection")
    return {key: float(np.mean([sum(record[key] for record in seed) for seed in found])) for key in keys}


def sizes_of(plan: Plan, task: Task) -> Sizes:
    """Of a molecule or of reactions."""
    return plan.sizes["reactions" if task.reactions is not None else "molecule"]
