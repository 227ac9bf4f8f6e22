"""``adaptntk md``"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from adaptntk.progress import Show, counted
from adaptntk.verbs.settings import argument, option, verb
from adaptntk.verbs.shared import FittedFile, Seed

if TYPE_CHECKING:
    from ase import Atoms

    from adaptntk.md.dynamics import SimulationResult
    from adaptntk.md.exploration import MDJob, Sifted


class SimulationSettings(FittedFile, Seed):
    start: Path = argument("Structures to start from (extxyz, or another format).")
    output: Path = option("The file to write: .xyz, .extxyz, .traj, .jsonl or .csv.", short="-o")
    temperature: tuple[float, ...] = option("Of the thermostat, K; repeatable. 300 by default.", ())
    steps: int = option("Steps of each trajectory, at most.", 1000)
    timestep: float = option("fs.", 0.5)
    friction: float = option("Of the thermostat, 1/fs.", 0.01)
    every: int = option("Steps between observations: uncertainty, rules, a frame.", 10)
    coverage: float = option("A frame alarms whose score is above that of this share of calibration structures.", 0.99)
    max_error: float | None = option(
        "A frame alarms instead when the bound of its force error at --coverage passes this, eV/Å.", None
    )
    max_atom_error: float | None = option(
        "A frame alarms also when the bound of the force errors of all its atoms passes this, eV/Å, by the "
        "committee of fit.",
        None,
    )
    per_atom: bool = option("Frames also hold the uncertainty of the force on each atom.", False)
    patience: int = option("Alarms until a run ends.", 5)
    lost: float = option("A score beyond this multiple of the alarm ends a run at once, and is no candidate.", 2.0)
    keep_going: bool = option("End a run only when it breaks down.", False)
    candidates: Path | None = option("Also write the frames worth a label: uncertain, sound, no two alike.", None)
    min_distance: float = option("How far atoms moved, at least, between two candidates, Å.", 0.05)


class SimulationReport(NamedTuple):
    """What was run, how each trajectory ended, and what became of its frames (None if not asked for)."""

    settings: SimulationSettings
    jobs: "list[MDJob]"
    trajectories: "list[SimulationResult]"
    candidates: "Sifted | None" = None
    remarks: Sequence[str] = ()

    def lines(self) -> Iterable[str]:
        for number, (job, run) in enumerate(zip(self.jobs, self.trajectories, strict=True)):
            name = f"trajectory {number} (start {job.start_index}, {job.settings.temperature:.0f} K)"
            how = f"stopped at {run.stopped}" if run.stopped else f"{run.steps:,} steps, no rule broken"
            sigma = [frame.info["forces_uncertainty"] for frame in run.frames if "forces_uncertainty" in frame.info]
            largest = f"; largest sigma {max(sigma):.4g} eV/Å" if sigma else ""
            yield f"{name}: {how}{largest}"
        yield from self.remarks
        if self.candidates is not None:
            count = len(self.candidates.taken)
            yield counted(count, "candidate") + ("" if count else ": none written") + f" ({self.candidates})"
        if any(run.frames for run in self.trajectories):
            found = self.candidates is not None and bool(self.candidates.taken)
            yield f"wrote {self.settings.output}" + (f" and {self.settings.candidates}" if found else "")


@verb(SimulationSettings)
def md(settings: SimulationSettings, show: Show) -> SimulationReport:
    """Run molecular dynamics from every structure at every temperature, watched.

    A run ends when its uncertainty passes what is known (see --coverage, --max-error), or at once when atoms fuse, fly
    away, heat up without limit or are NaN. That is a result: the exit code is 0. Each frame carries the keys that
    adaptntk score writes, and trajectory, start, step, time (fs), temperature and target_temperature (K).
    """
    from adaptntk.data.formats import check_output
    from adaptntk.data.structures import structure_hash, write_structures
    from adaptntk.md.dynamics import MDSettings, run_md
    from adaptntk.md.exploration import plan_trajectories, sift
    from adaptntk.md.watch import Watch

    for path in filter(None, (settings.output, settings.candidates)):
        check_output(path)
    watch = Watch(
        settings.coverage, settings.max_error, settings.patience, settings.lost, settings.keep_going,
        max_atom_error=settings.max_atom_error,
    )  # fmt: skip
    fitted = settings.load()
    if settings.per_atom:
        fitted.check_committee()
    rules = watch.rules(fitted.calibration)
    threshold = None if settings.candidates is None else watch.threshold(fitted.calibration)
    starts = settings.open(settings.start, fitted)
    dynamics = MDSettings(
        steps=settings.steps, timestep=settings.timestep, friction=settings.friction, interval=settings.every
    )
    jobs = plan_trajectories(starts, settings.temperature or (300.0,), dynamics, settings.seed)
    trajectories: list[SimulationResult] = []
    frames: dict[str, Atoms] = {}  # a start that several share is written once
    for number, job in enumerate(jobs):
        run = run_md(
            fitted, job.start, job.settings, rules, job.seed, settings.coverage, show.progress, settings.per_atom
        )
        trajectories.append(run)
        origin = {"trajectory": number, "start": job.start_index, "target_temperature": job.settings.temperature}
        for frame in run.frames:
            frame.info |= origin
            frames.setdefault(structure_hash(frame), frame)
        if frames:  # the file is complete after each trajectory
            write_structures(settings.output, frames.values())
    told = tuple(fitted.remarks_of(list(frames.values())))
    if settings.candidates is None:
        return SimulationReport(settings, jobs, trajectories, remarks=told)
    known = {*fitted.train_hashes, *fitted.calibration_hashes}
    within_reach = watch.not_lost(frames.values(), fitted.calibration, fitted.variance_key)
    found = sift(within_reach, threshold, known, settings.min_distance, fitted.variance_key)
    found = found.with_lost(len(frames) - len(within_reach), settings.lost)
    if found.taken:
        write_structures(settings.candidates, found.taken)
    return SimulationReport(settings, jobs, trajectories, found, told)
