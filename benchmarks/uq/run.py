"""``python -m benchmarks uq``: every uncertainty method on the same structures, against the same errors."""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from adaptntk.data.splits import split_structures
from adaptntk.data.structures import structure_hash
from adaptntk.errors import InputError
from adaptntk.evaluation import atom_ranking, energy_errors, force_errors
from adaptntk.files import locked, write_atomically, write_table
from adaptntk.training.loop import LapReport
from adaptntk.training.recipe import PRESETS, Recipe
from adaptntk.uncertainty.folder_workbench import FolderWorkbench
from adaptntk.uncertainty.method import Assessment, Scores
from benchmarks.data.sources import Source, check_source
from benchmarks.harness.experiment import experiment, find_plan, log, run_all
from benchmarks.harness.fitting import fit_with_price, with_options
from benchmarks.harness.record import save_outcome
from benchmarks.settings import Uncertainty, listed
from benchmarks.uq.atom_model import SeenAtoms, expected_errors
from benchmarks.uq.report import draw_uq, uq_table
from benchmarks.uq.summary import evaluation_columns, summarise

Array = NDArray[np.float64]

# Sets on which methods are scored: one to calibrate on, one to report.
SCORED = ("calibration", "evaluation")


@dataclass(frozen=True)
class Plan:
    """The size of the experiment.

    Args:
        sizes: structures of each part; without ``calibration`` the validation set is calibrated on, as a user's is.
        own_sizes: of single data sets, instead.
        methods: compared if none are named.
    """

    recipe: Recipe
    sizes: dict[str, int]
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    own_sizes: dict[str, dict[str, int]] = field(default_factory=dict)
    methods: str = "ntk,ensemble,dropout,evidential,swag,last_layer,distance,energy,random"

    def sizes_of(self, molecule: str) -> dict[str, int]:
        """Of one data set."""
        return self.own_sizes.get(molecule, self.sizes)


def _sizes(train: int, valid: int, evaluation: int) -> dict[str, int]:
    return {"train": train, "valid": valid, "evaluation": evaluation}


# Few enough labels that they, and not the steps or the network, are what limits a network of the preset standard.
CONVERGED = {
    "ethanol": _sizes(80, 50, 600),
    "naphthalene": _sizes(50, 50, 600),
    "acetylacetone": _sizes(80, 50, 600),
    "aspirin": _sizes(200, 100, 600),
    "silicon": _sizes(120, 40, 79),
    "reactions": _sizes(300, 100, 600),
}
JOINT = "ntk:features=joint"


PLANS = {
    "cpu": Plan(PRESETS["small"], {"train": 400, "valid": 100, "calibration": 500, "evaluation": 1000}),
    # After so many steps more of them lower the error by a few per cent, and what remains is far above that on labels.
    "converged": Plan(
        PRESETS["standard"].lasting(steps=6_000),
        {},
        own_sizes=CONVERGED,
        methods=f"ntk,{JOINT}:committee=0,{JOINT},{JOINT}:forces_by=committee,last_layer,energy,force_size,ensemble",
    ),
    "paper": Plan(PRESETS["paper"], {"train": 1000, "valid": 100, "calibration": 2000, "evaluation": 2000}),
    "smoke": Plan(
        Recipe(
            PRESETS["tiny"].architecture, 3e-2, "cosine", epochs=12, batch_size=8,
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

    @property
    def name(self) -> str:
        return f"{self.molecule}, seed {self.seed}"

    @property
    def done(self) -> bool:
        return all((self.folder / f"{name}.npz").exists() for name in ("common", *self.methods))

    def run(self) -> None:
        """Train and score; what is on disk already is not done again."""
        with locked(self.folder):
            sizes = self.plan.sizes_of(self.molecule)
            parts = split_structures(self.source.load(self.molecule), sizes, self.seed)
            parts.setdefault("calibration", parts["valid"])
            _write_common(self, parts)
            for number, method in enumerate(self.methods, start=1):
                if not (self.folder / f"{method}.npz").exists():
                    _write_method(self, method, parts)
                    log.info("%s: %s is scored, %d of %d", self.name, method, number, len(self.methods))

    def workbench(self, parts: dict[str, list[Atoms]]) -> FolderWorkbench:
        """On which one method is fitted; networks are found in the folder."""
        return FolderWorkbench(
            parts["train"],
            parts["valid"],
            self.seed,
            folder=self.folder / "networks",
            recipe=self.plan.recipe,
            device=self.device,
            on_lap=self._show,
        )

    def _show(self, network: str, report: LapReport) -> None:
        if report.steps == report.most_steps or report.improved:
            log.info("%s: %s, step %d of %d, validation forces %.4f eV/Å", self.name, network,
                     report.steps, report.most_steps, report.validation.force_rmse)  # fmt: skip


def run(settings: Uncertainty) -> str:
    """Train what the methods need, score, compare; writes ``results.json``, ``table.md`` and figures.

    Interrupted at any point and called again, it goes on where it was, and ``results.json`` is the same as without an
    interruption. How long everything took is in ``timings.json``.
    """
    check_source(settings.source)
    source = Source(settings.source, settings.data_dir, settings.output, settings.keys)
    plan = find_plan(PLANS, settings.preset, settings.seeds)
    methods = _methods(settings, plan)
    molecules = source.default_molecules() if settings.molecules is None else listed(settings.molecules)
    identity = {"preset": settings.preset, "data": source.identity, "plan": dataclasses.asdict(plan)}
    with experiment(settings.output, identity) as folder:
        for molecule in molecules:
            source.prepare(molecule, sum(plan.sizes_of(molecule).values()))
        work = [
            Job(source, molecule, seed, plan, methods, folder / molecule / f"seed-{seed}", settings.device)
            for molecule in molecules
            for seed in range(settings.seeds)
        ]
        run_all(work, settings.jobs, settings.device)
        table = write_results(folder, source.name, settings.preset, plan, work)
    return f"{table}\nwrote results.json, timings.json, table.md and figures to {folder}"


def _methods(settings: Uncertainty, plan: Plan) -> tuple[str, ...]:
    """The names that were asked for, each known and with options that it has."""
    names = listed(settings.methods or plan.methods)
    if settings.error_model and "error_model" not in names:
        names.insert(names.index("ntk") + 1 if "ntk" in names else 0, "error_model")
    for name in names:
        with_options(name)
    if "ntk" not in names:
        raise InputError("the method ntk must be among those compared")
    return tuple(names)


def _write_common(job: Job, parts: dict[str, list[Atoms]]) -> None:
    """Errors of the one model that all methods are also compared on, and which structures these are."""
    path = job.folder / "common.npz"
    if path.exists():
        return
    arrays: dict[str, Any] = {}
    model = job.workbench(parts).member(0)
    for part in ("train", *SCORED):
        arrays[f"{part}_error"] = force_errors(model.predict(parts[part]).forces, parts[part])
    for part, frames in parts.items():
        arrays[f"{part}_structures"] = np.array([structure_hash(atoms) for atoms in frames])
        arrays[f"{part}_atoms"] = np.array([len(atoms) for atoms in frames])
    save_arrays(path, arrays)


def _write_method(job: Job, name: str, parts: dict[str, list[Atoms]]) -> None:
    """Scores and errors of one method."""
    kind, options = with_options(name)
    fit = fit_with_price(job.workbench(parts), kind, job.plan.options.get(kind, {}) | options)
    arrays: dict[str, Any] = {"networks": np.array(fit.networks), "fit_seconds": fit.seconds}
    began = time.perf_counter()
    fitted, seen = fit.fitted, list[SeenAtoms]()
    for part in SCORED:
        found = fitted.assess(parts[part])
        scores = fitted.scores_of_variance(found.variance, parts[part], per_atom=fitted.method.committee is not None)
        arrays |= {f"{part}_{key}": value for key, value in _assess(found, scores, parts[part]).items()}
        if scores.atoms is not None:
            seen.append(SeenAtoms.of(scores.atoms.variance, found.forces, parts[part]))
            arrays |= seen[-1].ranks(part)
    if seen:
        ranks = atom_ranking(expected_errors(*seen), seen[-1].errors)
        arrays |= {f"{SCORED[-1]}_atoms_model_{which}": rank for which, rank in ranks.items()}
    arrays["score_seconds"] = time.perf_counter() - began
    save_arrays(job.folder / f"{name}.npz", arrays)


def _assess(found: Assessment, scores: Scores, frames: Sequence[Atoms]) -> dict[str, Any]:
    return {
        "score": found.score if scores.force_score is None else scores.force_score,
        "variance": scores.of_forces,
        "kind": found.kind,
        "error": force_errors(found.forces, frames),
        "energy_error": energy_errors(found.energies, frames),
    }


def write_results(folder: Path, source: str, preset: str, plan: Plan, work: Sequence[Job]) -> str:
    """Metrics, table and figures from what the jobs left on disk; returns the table."""
    molecules = list(dict.fromkeys(job.molecule for job in work))
    methods = list(work[0].methods)
    results: dict[str, Any] = {
        "preset": preset,
        "data": source,
        "sizes": {molecule: plan.sizes_of(molecule) for molecule in molecules},
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
    table = uq_table(results, timings)
    save_outcome(folder, results, table, timings={"ratios to one training": timings})
    draw_uq(folder)
    return table


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
    """Write an npz file, atomically; small enough to be kept, so that a study can go on from it elsewhere."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            columns: dict[str, Any] = {name: _short(np.asarray(value)) for name, value in arrays.items()}
            np.savez_compressed(file, **columns)

    write_atomically(path, write)


def _short(values: NDArray[Any]) -> NDArray[Any]:
    """Columns in seven digits, single numbers in all."""
    return values.astype(np.float32) if values.ndim and values.dtype == np.float64 else values


def load_arrays(path: Path) -> dict[str, Any]:
    """Read what `save_arrays` wrote."""
    with np.load(path, allow_pickle=False) as content:
        found = {name: content[name] for name in content.files}
    return {name: value.astype(float) if value.dtype == np.float32 else value for name, value in found.items()}
