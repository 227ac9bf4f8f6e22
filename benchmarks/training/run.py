"""``python -m benchmarks training``: test error against time, of recipes of ours and of ``mace_run_train``."""

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adaptntk.errors import InputError
from adaptntk.execution import limited_threads
from adaptntk.files import locked, make_folder, plain, write_json, write_text
from benchmarks.harness.experiment import find_plan, log, run_all
from benchmarks.harness.record import save_record
from benchmarks.settings import Training, listed
from benchmarks.training.frames import load, prepare
from benchmarks.training.ours import run_ours
from benchmarks.training.plan import BEFORE, PLANS, Entrant, Plan
from benchmarks.training.report import draw_training, training_table
from benchmarks.training.theirs import run_theirs

STUDIES = {"race": "training", "recipes": "recipes"}


@dataclass(frozen=True)
class Job:
    """One training, whose record is one file."""

    data: str
    who: str
    seed: int
    entrant: Entrant
    seconds: float
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.data}, {self.who}, seed {self.seed}"

    @property
    def path(self) -> Path:
        return run_file(self.folder, self.data, self.who, self.seed)

    @property
    def identity(self) -> dict[str, Any]:
        """What the outcome depends on."""
        found: dict[str, Any] = plain(asdict(self.entrant))
        if self.entrant.stock:  # the rest of the recipe is ours
            found["recipe"] = {key: found["recipe"][key] for key in ("architecture", "batch_size", "batch_atoms")}
        return found | {"seconds": self.seconds if self.entrant.fills_budget else None}

    @property
    def done(self) -> bool:
        if not self.path.exists():
            return False
        if json.loads(self.path.read_text())["identity"] != self.identity:
            raise InputError(f"{self.path}: a training of another kind; remove it, or choose another folder")
        return True

    def run(self) -> None:
        """Train with one thread, look, and write it down."""
        files = self.folder.parent / "frames" / self.data
        frames, seconds = load(files), self._seconds()
        with limited_threads(1), _scratch(self.path.with_suffix("")) as scratch:
            if self.entrant.stock:
                assert seconds is not None
                found = run_theirs(self.entrant.recipe, frames, files, self.seed, seconds, scratch)
            else:
                found = run_ours(self.entrant.recipe, frames, self.seed, seconds, scratch)
        what = {"data": self.data, "entrant": self.who, "seed": self.seed, "identity": self.identity}
        what["structures"] = {part: len(several) for part, several in frames.items()}
        write_json(self.path, plain(what | found.record()))
        last = found.points[-1]
        log.info("%s: force RMSE %.1f meV/Å after %.0f s", self.name, last.force_rmse, last.seconds)

    def _seconds(self) -> float | None:
        if self.entrant.own_length:
            return None
        if self.entrant.times_before is None:
            return self.seconds
        before = json.loads(run_file(self.folder, self.data, BEFORE, self.seed).read_text())
        return float(self.entrant.times_before * before["points"][-1]["seconds"])


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A folder for a while; what a training that was killed left there goes first."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield make_folder(folder).absolute()
    finally:
        shutil.rmtree(folder)


def run_file(folder: Path, data: str, who: str, seed: int) -> Path:
    """Where the record of a training is."""
    return folder / f"{data}-{who}-{seed}.json"


def run(settings: Training) -> str:
    """Train what is missing; write ``training.json`` or ``recipes.json``, a table and a figure of all there is."""
    plan = find_plan(PLANS, settings.preset, settings.seeds)
    if settings.study not in STUDIES:
        raise InputError(f"unknown study {settings.study!r}: choose one of {', '.join(STUDIES)}")
    folder, name = make_folder(settings.output), STUDIES[settings.study]
    with locked(folder):
        runs = make_folder(folder / settings.study)
        if not settings.recorded:
            jobs = list(_jobs(settings, plan, runs))
            for stage in (True, False):
                run_all([job for job in jobs if (job.who == BEFORE) is stage], settings.jobs, "cpu")
        result = _gather(settings, plan, runs)
        save_record(folder, name, result)
        table = training_table(result)
        write_text(folder / f"{name}.md", table)
        draw_training(folder, name)
    return f"{table}\nwrote {name}.json, {name}.md and {name}.png to {folder}"


def _budgets(settings: Training, plan: Plan) -> dict[str, float]:
    """Seconds on each data set of the study."""
    found = {name: data.choice if settings.study == "recipes" else data.seconds for name, data in plan.data.items()}
    return {name: settings.seconds or seconds for name, seconds in found.items() if seconds is not None}


def _jobs(settings: Training, plan: Plan, folder: Path) -> Iterable[Job]:
    """Seed by seed, so that a study that is stopped early has something of everything."""
    budgets = _budgets(settings, plan)
    wanted = listed(settings.data) if settings.data else list(budgets)
    chosen = listed(settings.entrants) if settings.entrants else None
    for unknown in (set(wanted) - set(budgets)) | {who for who in chosen or [] if plan.find(who) is None}:
        known = ", ".join([*budgets, *plan.entrants, *plan.variants])
        raise InputError(f"unknown data set or entrant {unknown!r}: there are {known}")
    found = [data for data in wanted if _prepared(data, plan, folder, named=settings.data is not None)]
    for seed in range(settings.seeds):
        for data in found:
            names = chosen or plan.entered(settings.study, data)
            if any(plan.entrants.get(who, plan.entrants[BEFORE]).times_before for who in names):
                names = [BEFORE, *(who for who in names if who != BEFORE)]
            for who in names:
                entrant = plan.find(who)
                assert entrant is not None
                yield Job(data, who, seed, entrant, budgets[data], folder)


def _prepared(data: str, plan: Plan, folder: Path, named: bool) -> bool:
    """Whether the structures are there; those that nobody asked for by name may be missing."""
    try:
        prepare(data, plan.data[data], folder.parent / "frames" / data)
    except InputError as error:
        if named:
            raise
        log.warning("%s is left out: %s", data, error)
        return False
    return True


def _gather(settings: Training, plan: Plan, folder: Path) -> dict[str, Any]:
    """All runs of the study that there are, whoever asked for them; entrants in the order of the plan."""
    found: dict[str, Any] = {}
    for data in plan.data:
        records = [json.loads(path.read_text()) for path in sorted(folder.glob(f"{data}-*.json"))]
        runs = {who: [r for r in records if r["entrant"] == who] for who in [*plan.entrants, *plan.variants]}
        if records:
            kept = {who: several for who, several in runs.items() if several}
            found[data] = {"structures": records[0]["structures"], "runs": kept}
    if not found:
        raise InputError(f"{folder}: no training is recorded there")
    return {"preset": settings.preset, "study": settings.study, "data": found}
