"""``adaptntk benchmark uq``: every uncertainty method on the same structures, against the same errors."""

import dataclasses
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from adaptntk.core.metrics import force_rmse
from adaptntk.data.splits import split_structures
from adaptntk.data.structures import reference_energies, reference_forces, structure_hash
from adaptntk.errors import InputError
from adaptntk.files import locked, make_folder, write_atomically, write_json, write_table
from adaptntk.training.loop import EpochReport
from adaptntk.training.recipe import PRESETS, Recipe
from adaptntk.uncertainty.method import Method
from adaptntk.uncertainty.registry import fit_method, parse_options
from adaptntk.uncertainty.workbench import FolderWorkbench
from benchmarks.jobs import find_plan, run_all
from benchmarks.record import check_same_experiment, save_result
from benchmarks.sources import Source
from benchmarks.uq_metrics import evaluation_columns, summarise
from benchmarks.uq_report import draw_uq, uq_table

log = logging.getLogger(__name__)

Array = NDArray[np.float64]

# Sets on which methods are scored: one to calibrate on, one to report.
SCORED = ("calibration", "evaluation")
PAPER_METHODS = ("ntk", "ensemble", "dropout", "evidential", "swag")
DEFAULT_METHODS = (*PAPER_METHODS, "last_layer", "distance", "energy", "random")


@dataclass(frozen=True)
class Plan:
    """The size of the experiment."""

    recipe: Recipe
    sizes: dict[str, int]
    options: dict[str, dict[str, Any]] = field(default_factory=dict)


PLANS = {
    "cpu": Plan(PRESETS["small"], {"train": 400, "valid": 100, "calibration": 500, "evaluation": 1000}),
    "paper": Plan(PRESETS["paper"], {"train": 1000, "valid": 100, "calibration": 2000, "evaluation": 2000}),
    "smoke": Plan(
        Recipe(
            PRESETS["tiny"].architecture,
            epochs=12, batch_size=8, learning_rate=3e-2, cosine=True,
        ),
        {"train": 48, "valid": 40, "calibration": 60, "evaluation": 120},
        {"dropout": {"passes": 5}, "swag": {"draws": 5}, "evidential": {"steps": 200}},
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """All methods on one molecule with one seed."""

    source: Source
    molecule: str
    seed: int
    plan: Plan
    methods: tuple[str, ...]
    folder: Path
    device: str


def benchmark_uq(
    output: str | Path,
    source: Source,
    molecules: Sequence[str],
    preset: str = "cpu",
    seeds: int = 2,
    methods: Sequence[str] = DEFAULT_METHODS,
    jobs: int | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """Train what the methods need, score, compare; writes ``results.json``, ``table.md`` and figures.

    Interrupted at any point and called again, it goes on where it was, and ``results.json`` is the same as without an
    interruption. How long everything took is in ``timings.json``.
    """
    plan = find_plan(PLANS, preset, seeds)
    for name in methods:
        with_options(name)
    if "ntk" not in methods:
        raise InputError("the method ntk must be among those compared")
    folder = make_folder(output)
    with locked(folder):
        check_same_experiment(folder, {"preset": preset, "data": source.identity, "plan": dataclasses.asdict(plan)})
        for molecule in molecules:
            source.prepare(molecule, sum(plan.sizes.values()))
        work = [
            Job(source, molecule, seed, plan, tuple(methods), folder / molecule / f"seed-{seed}", device)
            for molecule in molecules
            for seed in range(seeds)
        ]
        run_all(run_job, work, jobs, device, lambda job: f"{job.molecule}, seed {job.seed}")
        return write_results(folder, source.name, preset, plan, work)


def with_options(method: str) -> tuple[str, dict[str, Any]]:
    """Name and options of a method that is written as ``NAME`` or ``NAME:KEY=VALUE:KEY=VALUE``."""
    name, *texts = method.split(":")
    return name, parse_options(name, texts)


def run_job(job: Job) -> None:
    """Train and score; what is on disk already is not done again."""
    name = f"{job.molecule}, seed {job.seed}"

    def show(network: str, report: EpochReport) -> None:
        if report.epoch % max(1, report.epochs // 4) == 0:
            left = round(report.seconds * (report.epochs - report.epoch))
            log.info("%s: %s, epoch %d of %d, validation forces %.4f eV/Å, %d:%02d left", name, network, report.epoch,
                     report.epochs, report.validation.force_rmse, left // 60, left % 60)  # fmt: skip

    with locked(job.folder):
        parts = split_structures(job.source.load(job.molecule), job.plan.sizes, job.seed)
        bench = FolderWorkbench(
            parts["train"], parts["valid"], job.folder / "networks", job.plan.recipe, job.seed, job.device, show
        )
        _write_common(job, bench, parts)
        for number, method in enumerate(job.methods, start=1):
            if not (job.folder / f"{method}.npz").exists():
                _write_method(job, method, bench, parts)
                log.info("%s: %s is scored, %d of %d", name, method, number, len(job.methods))


def _write_common(job: Job, bench: FolderWorkbench, parts: dict[str, list[Atoms]]) -> None:
    """Errors of the one model that all methods are also compared on, and which structures these are."""
    path = job.folder / "common.npz"
    if path.exists():
        return
    arrays: dict[str, Any] = {}
    for part in SCORED:
        predicted = bench.member(0).predict(parts[part])
        arrays[f"{part}_error"] = force_rmse(predicted.forces, reference_forces(parts[part]))
    for part, frames in parts.items():
        arrays[f"{part}_structures"] = np.array([structure_hash(atoms) for atoms in frames])
    save_arrays(path, arrays)


def _write_method(job: Job, name: str, bench: FolderWorkbench, parts: dict[str, list[Atoms]]) -> None:
    """Scores and errors of one method."""
    bench.used.clear()
    before, began = bench.seconds_in_training, time.perf_counter()
    kind, options = with_options(name)
    method = fit_method(kind, bench, job.plan.options.get(kind, {}) | options)
    fitting = time.perf_counter() - began - (bench.seconds_in_training - before)
    arrays: dict[str, Any] = {"networks": np.array(sorted(bench.used)), "fit_seconds": fitting}
    began = time.perf_counter()
    for part in SCORED:
        arrays |= {f"{part}_{key}": value for key, value in _assess(method, parts[part]).items()}
    arrays["score_seconds"] = time.perf_counter() - began
    save_arrays(job.folder / f"{name}.npz", arrays)


def _assess(method: Method, frames: Sequence[Atoms]) -> dict[str, Any]:
    found = method.assess(frames)
    return {
        "score": found.score,
        "variance": found.variance,
        "kind": found.kind,
        "error": force_rmse(found.forces, reference_forces(frames)),
        "energy_error": np.abs(found.energies - reference_energies(frames)),
    }


def write_results(folder: Path, source: str, preset: str, plan: Plan, work: Sequence[Job]) -> dict[str, Any]:
    """Metrics, table and figures from what the jobs left on disk."""
    molecules = list(dict.fromkeys(job.molecule for job in work))
    methods = list(work[0].methods)
    results: dict[str, Any] = {
        "preset": preset,
        "data": source,
        "sizes": plan.sizes,
        "recipe": dataclasses.asdict(plan.recipe),
        "seeds": [job.seed for job in work if job.molecule == molecules[0]],
        "methods": methods,
        "molecules": {},
    }
    timings: dict[str, Any] = {}
    for molecule in molecules:
        folders = [job.folder for job in work if job.molecule == molecule]
        loaded = [{name: load_arrays(seed / f"{name}.npz") for name in ("common", *methods)} for seed in folders]
        results["molecules"][molecule] = summarise(loaded, methods)
        timings[molecule] = _timings(folders, loaded, methods)
        for seed, arrays in zip(folders, loaded, strict=True):
            write_table(seed / "evaluation.csv", evaluation_columns(arrays, methods))
    write_json(folder / "results.json", results)
    save_result(folder, "timings", {"ratios to one training": timings})
    table = uq_table(results, timings)
    write_atomically(folder / "table.md", lambda temporary: temporary.write_text(table))
    draw_uq(folder)
    return results


def _timings(folders: Sequence[Path], loaded: list[dict[str, Any]], methods: Sequence[str]) -> dict[str, Any]:
    """Training, fitting and scoring of each method, as ratios to the training of one network; median over seeds."""
    found: dict[str, Any] = {}
    for name in methods:
        rows = []
        for folder, arrays in zip(folders, loaded, strict=True):
            seconds = FolderWorkbench.read_seconds(folder / "networks")
            one = seconds["member-0"]
            stored = arrays[name]
            training = sum(seconds[network] for network in stored["networks"].tolist())
            rows.append([training / one, float(stored["fit_seconds"]) / one, float(stored["score_seconds"]) / one])
        training, fit, score = np.median(rows, axis=0)
        scored = sum(len(loaded[0][name][f"{part}_score"]) for part in SCORED)
        found[name] = {"training": training, "fit": fit, "score": score, "structures_scored": scored}
    return found


def save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Write an npz file, atomically."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, **arrays)

    write_atomically(path, write)


def load_arrays(path: Path) -> dict[str, Any]:
    """Read what `save_arrays` wrote."""
    with np.load(path, allow_pickle=False) as content:
        return {name: content[name] for name in content.files}
