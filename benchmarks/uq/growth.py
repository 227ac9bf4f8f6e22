"""``python -m benchmarks growth``: how a score grows with force rows, members, dimensions, labels and width.

It goes on in a folder of ``python -m benchmarks uq --preset converged``, with the networks that are there; what is not
there it trains. One network is asked again and again, on the same structures, so differences are surer than values.
"""

import dataclasses
import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.neighborlist import natural_cutoffs, neighbor_list
from torch import Tensor

from adaptntk.core.metrics import Array, spearman
from adaptntk.core.posterior import RidgePath
from adaptntk.core.question import BOTH, COMMITTEE, force_scores
from adaptntk.core.ridge import JOINT_ALPHA
from adaptntk.core.rows import compressed
from adaptntk.core.sketch.gaussian import NoSketch
from adaptntk.core.sketch.structured import SparseSignSketch
from adaptntk.data.splits import split_structures
from adaptntk.evaluation import atom_errors, atom_ranking, force_errors, summarise_errors
from adaptntk.features.dimension import joint_dimension
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.files import make_folder, plain, write_json, write_text
from adaptntk.memory import GIBIBYTE
from adaptntk.models.family import resized
from adaptntk.models.protocol import Potential, parameter_count
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.folder_workbench import FolderWorkbench
from benchmarks.data.sources import Source, check_source
from benchmarks.harness.experiment import experiment, find_plan, log, run_all
from benchmarks.harness.fitting import with_options
from benchmarks.harness.record import save_record
from benchmarks.settings import Growth, listed
from benchmarks.uq.growth_report import draw_growth, growth_table
from benchmarks.uq.run import PLANS, Job, Plan

ALPHAS = tuple(float(10.0**power) for power in range(-12, -1))
ROWS = (0, 1, 2, 4, 8, 16, 32)
DIMENSIONS = (256, 512, 1024, 2048, 4096)
MEMBERS = (4, 8, 16, 32, 64)
# Structures that are asked about, and up to how many labels 32 force rows of each are held in memory.
ASKED, FEW = 200, 100
# Å by which an atom is put out of place.
DISPLACEMENT = 0.3
# By preset: channels of the network, sizes of training sets that are tried with them, and channels that are tried.
SIZES = {"converged": (16, (25, 50, 100, 200), (8, 32)), "smoke": (4, (16, 48), (8,))}
METHODS = ("ntk", "ntk:features=joint:committee=0", "ntk:features=joint", "energy", "force_size")


@dataclass(frozen=True)
class Asked:
    """One network and the structures that it is asked about, split as in the comparison of methods."""

    job: Job

    @cached_property
    def parts(self) -> dict[str, list[Atoms]]:
        plan = self.job.plan
        found = split_structures(
            self.job.source.load(self.job.molecule), plan.sizes_of(self.job.molecule), self.job.seed
        )
        return found | {"evaluation": found["evaluation"][:ASKED]}

    @cached_property
    def bench(self) -> FolderWorkbench:
        return self.job.workbench(self.parts)

    @property
    def network(self) -> Potential:
        return self.bench.member(0)

    @cached_property
    def errors(self) -> dict[str, Array]:
        """Force errors of the structures asked about, and of the validation set."""
        return {part: force_errors(self.predicted(part), self.parts[part]) for part in ("valid", "evaluation")}

    def predicted(self, part: str) -> list[Array]:
        return self.network.predict(self.parts[part]).forces

    def rank(self, variances: Tensor, part: str = "evaluation") -> float:
        return spearman(variances.cpu().numpy(), self.errors[part])


@dataclass(frozen=True)
class Scan:
    """Force rows, dimensions, ridge and members, of one network; its record is one file."""

    job: Job

    @property
    def name(self) -> str:
        return f"{self.job.name}, rows, ridge and members"

    @property
    def path(self) -> Path:
        return _record(self.job, "scan")

    @property
    def done(self) -> bool:
        return self.path.exists()

    def run(self) -> None:
        asked = Asked(self.job)
        rows = _Rows.of(asked)
        found = {
            "labels": len(asked.parts["train"]),
            "dimension": rows.default_dimension,
            "rows": {str(count): asked.rank(rows.scores(count)) for count in ROWS if count <= rows.most},
            "dimensions": {
                str(dim): asked.rank(rows.scores(min(16, rows.most), dim)) for dim in DIMENSIONS if dim <= rows.width
            },
            "ridge": _ridge(asked, rows),
        }
        found |= _committee(asked)
        write_json(self.path, plain(found))
        log.info("%s: %s", self.name, found["rows"])


@dataclass(frozen=True)
class _Rows:
    """Full gradients of labels, of their forces, and of the structures asked about."""

    energy: Tensor
    further: Tensor
    asked: dict[str, Tensor]

    @classmethod
    def of(cls, asked: Asked) -> "_Rows":
        train = asked.parts["train"]
        most = ROWS[-1] if len(train) <= FEW else 16
        exact, budget = EnergyGradients(NoSketch(), "per_atom", most), 8 * GIBIBYTE
        extract = {name: exact.extract(asked.network, frames, budget)[:, 0] for name, frames in asked.parts.items()}
        return cls(extract.pop("train"), exact.further(asked.network, train, budget), extract)

    @property
    def most(self) -> int:
        return self.further.shape[1]

    @property
    def width(self) -> int:
        return self.energy.shape[1]

    @property
    def default_dimension(self) -> int:
        return joint_dimension(len(self.energy) * (1 + min(16, self.most)), self.width)

    def path(self, count: int, dim: int | None = None) -> tuple[RidgePath, dict[str, Tensor]]:
        """With so many force rows of each label, all rows sketched; and the structures asked about."""
        sketch = SparseSignSketch(dim or self.default_dimension, seed=0)
        # The rows of fewer directions are the first ones, each counting for more.
        some = (self.further[:, :count] * (self.most / max(count, 1)) ** 0.5).flatten(0, 1)
        further = compressed(sketch.apply(some)) if count else None
        return RidgePath(sketch.apply(self.energy), further), {k: sketch.apply(v) for k, v in self.asked.items()}

    def scores(self, count: int, dim: int | None = None) -> Tensor:
        """U of the structures asked about, with the ridge that `fit` takes."""
        path, queries = self.path(count, dim)
        alpha = JOINT_ALPHA if count else 1e-4
        return path.posterior(path.lam(alpha)).variance(queries["evaluation"])


def _ridge(asked: Asked, rows: _Rows) -> dict[str, Any]:
    """Ranks for each ridge; what the validation set would choose, and what that would bring."""
    path, queries = rows.path(min(16, rows.most))
    lams = [path.lam(alpha) for alpha in ALPHAS]
    ranks = {
        part: [asked.rank(scores, part) for scores in path.variances(queries[part], lams)]
        for part in ("valid", "evaluation")
    }
    chosen, fixed = int(np.argmax(ranks["valid"])), ALPHAS.index(JOINT_ALPHA)
    return {
        "alphas": ALPHAS,
        "ranks": ranks["evaluation"],
        "chosen": ALPHAS[chosen],
        "gain": ranks["evaluation"][chosen] - ranks["evaluation"][fixed],
    }


def _committee(asked: Asked) -> dict[str, Any]:
    """Ranks of structures and of atoms by the first M of many members; how often these find an atom out of place."""
    frames = asked.parts["evaluation"]
    fitted = fit(asked.bench, "ntk", {"committee": MEMBERS[-1]})
    variance, committee = fitted.assess(frames).variance, fitted.check_committee()
    errors = atom_errors(asked.predicted("evaluation"), frames)
    moved, atoms = _displaced(frames, asked.job.seed)
    changes, after = ([change.forces for change in committee.changes(those)] for those in (frames, moved))
    ranks: dict[str, dict[str, float | None]] = {}
    found: dict[str, dict[str, float]] = {}
    for count in MEMBERS:
        of_atoms = [_of_atoms(forces, count) for forces in changes]
        spread = np.array([each.mean() for each in of_atoms])
        ranks[str(count)] = {"atoms": atom_ranking(of_atoms, errors)["within"]}
        for name in (COMMITTEE, BOTH):
            ranks[str(count)][name] = spearman(force_scores(name, variance, spread), asked.errors["evaluation"])
        first = [int(np.argmax(_of_atoms(forces, count))) for forces in after]
        bonded = [_bonded(frame, atom) for frame, atom in zip(frames, atoms, strict=True)]
        found[str(count)] = {
            "it": float(np.mean(np.array(first) == atoms)),
            "it or bonded to it": float(np.mean([one in near for one, near in zip(first, bonded, strict=True)])),
        }
    return {"members": ranks, "displaced": found}


def _of_atoms(forces: Array, count: int) -> Array:
    """The variance of the force on each atom over the first members."""
    return np.asarray(np.mean(forces[:count] ** 2, axis=(0, 2)))


def _displaced(frames: list[Atoms], seed: int) -> tuple[list[Atoms], Array]:
    """Each frame with one atom out of place, and which."""
    rng = np.random.default_rng(seed)
    moved, atoms = [], []
    for frame in frames:
        copy, atom, way = frame.copy(), int(rng.integers(len(frame))), rng.standard_normal(3)
        copy.positions[atom] += DISPLACEMENT * way / np.linalg.norm(way)
        moved.append(copy)
        atoms.append(atom)
    return moved, np.array(atoms)


def _bonded(frame: Atoms, atom: int) -> set[int]:
    """The atom, and those that it was bonded to."""
    first, second = neighbor_list("ij", frame, natural_cutoffs(frame, mult=1.15))
    return {atom, *second[first == atom].tolist()}


@dataclass(frozen=True)
class Size:
    """One data set with another number of labels, or another width of the network; its record is one file."""

    job: Job
    labels: int
    channels: int

    @property
    def name(self) -> str:
        return f"{self.job.name}, {self.labels} labels, {self.channels} channels"

    @property
    def path(self) -> Path:
        return _record(self.job, f"{self.labels}-labels-{self.channels}-channels")

    @property
    def done(self) -> bool:
        return self.path.exists()

    def run(self) -> None:
        plan, molecule = self.job.plan, self.job.molecule
        sizes = plan.sizes_of(molecule) | {"train": self.labels}
        recipe = replace(plan.recipe, architecture=resized(plan.recipe.architecture, {"channels": self.channels}))
        folder = self.job.folder / f"{self.labels}-labels-{self.channels}-channels"
        asked = Asked(replace(self.job, folder=folder, plan=Plan(recipe, sizes)))
        predicted = asked.network.predict(asked.parts["train"])
        found: dict[str, Any] = {
            "labels": self.labels,
            "channels": self.channels,
            "parameters": parameter_count(asked.network),
            "train_force_rmse": summarise_errors(predicted, asked.parts["train"]).force_rmse,
            "force_rmse": float(np.sqrt(np.mean(asked.errors["evaluation"] ** 2))),
        }
        for method in METHODS:
            scores = fit(asked.bench, *with_options(method)).score(asked.parts["evaluation"])
            found[method] = spearman(scores.of_forces, asked.errors["evaluation"])
        write_json(self.path, plain(found))
        log.info("%s: %s", self.name, found)


def _record(job: Job, name: str) -> Path:
    return make_folder(job.folder.parents[1] / "growth") / f"{job.molecule}-{job.seed}-{name}.json"


def run(settings: Growth) -> str:
    """Ask what is missing; write ``growth.json``, ``growth.md`` and a figure of all there is."""
    check_source(settings.source)
    source = Source(settings.source, settings.data_dir, settings.output, settings.keys)
    plan = find_plan(PLANS, settings.preset, settings.seeds)
    channels, labels, widths = find_plan(SIZES, settings.preset)
    molecules = source.default_molecules() if settings.molecules is None else listed(settings.molecules)
    identity = {"preset": settings.preset, "data": source.identity, "plan": dataclasses.asdict(plan)}
    with experiment(settings.output, identity) as folder:
        jobs = [
            Job(source, molecule, seed, plan, (), folder / molecule / f"seed-{seed}", settings.device)
            for seed in range(settings.seeds)
            for molecule in molecules
        ]
        for job in jobs:
            source.prepare(job.molecule, sum(plan.sizes_of(job.molecule).values()))
        sized = [job for job in jobs if job.molecule == (settings.sized or molecules[0])]
        work: list[Scan | Size] = [Scan(job) for job in jobs]
        for job in sized:
            work += [Size(job, count, channels) for count in labels]
            work += [Size(job, plan.sizes_of(job.molecule)["train"], count) for count in widths]
        run_all(work, settings.jobs, settings.device)
        results = _gather(folder)
        save_record(folder / "growth", "growth", results)
        table = growth_table(results)
        write_text(folder / "growth" / "growth.md", table)
        draw_growth(results, folder / "growth" / "growth.png")
    return f"{table}\nwrote growth.json, growth.md and growth.png to {folder / 'growth'}"


def _gather(folder: Path) -> dict[str, Any]:
    """All records that there are, by data set."""
    scans: dict[str, list[Any]] = {}
    sizes: dict[str, list[Any]] = {}
    for path in sorted((folder / "growth").glob("*-*-*.json")):
        molecule, _, kind = path.stem.split("-", 2)
        (scans if kind == "scan" else sizes).setdefault(molecule, []).append(json.loads(path.read_text()))
    return {"scans": scans, "sizes": sizes}
