"""``adaptntk md``"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ase import Atoms

from adaptntk.core.calibration import check_coverage
from adaptntk.data.structures import structure_hash, write_structures
from adaptntk.errors import InputError
from adaptntk.files import check_writable
from adaptntk.md.dynamics import MDSettings, Trajectory, run_md
from adaptntk.md.exploration import MDJob, collect, plan_trajectories
from adaptntk.md.monitor import check_rules
from adaptntk.md.physical_rules import PHYSICAL_RULES
from adaptntk.md.rules import ConformalThreshold, ErrorLevel, Rule
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.models.protocol import check_species
from adaptntk.progress import Progress, silent
from adaptntk.uncertainty.load import load_fitted
from adaptntk.uncertainty.ntk import NTKUncertainty
from adaptntk.verbs.labels import STANDARD_KEYS, LabelKeys, PathLike


@dataclass(frozen=True)
class MDReport:
    """What was run, how each trajectory ended, and how many candidates were found (None if not asked for)."""

    jobs: list[MDJob]
    trajectories: list[Trajectory]
    candidates: int | None = None


def run_simulations(
    ntk: PathLike,
    start_file: PathLike,
    output: PathLike,
    temperatures: Sequence[float] = (300.0,),
    settings: MDSettings | None = None,
    coverage: float = 0.99,
    max_error: float | None = None,
    patience: int = 5,
    lost: float = 2.0,
    keep_going: bool = False,
    candidates: PathLike | None = None,
    min_distance: float = 0.05,
    model: PathLike | None = None,
    keys: LabelKeys = STANDARD_KEYS,
    device: str = "auto",
    seed: int = 0,
    memory_budget: int = DEFAULT_BUDGET,
    progress: Progress = silent,
) -> MDReport:
    """``adaptntk md``: watched dynamics from every structure of a file, at every temperature.

    Writes the frames of all trajectories, with their uncertainty, ``trajectory``, ``start`` and ``target_temperature``
    in ``info``. A start that several trajectories share is written once. The file is complete after each trajectory.

    Args:
        settings: of the dynamics; its temperature is replaced by ``temperatures``.
        coverage: a run ends when the score passes the conformal threshold at this coverage; also the probability
            stated for ``forces_error_bound``.
        max_error: end instead when the bound of the force error at that coverage passes this level, eV/Å.
        patience: alarms until a run ends.
        lost: a score beyond this multiple of the alarm's threshold ends a run at once, and its frame is no candidate.
        keep_going: never end a run because of its uncertainty, only when it breaks down.
        candidates: where to write frames above the conformal threshold that are worth a label (see `collect`); any
            frames if the uncertainty is not calibrated.
        min_distance: smallest difference of two candidates, Å.
    """
    for path in (output, *([candidates] if candidates is not None else [])):
        check_writable(path)
    check_coverage(coverage)
    uncertainty = load_fitted(ntk, model, device, memory_budget)
    if not isinstance(uncertainty, NTKUncertainty):
        raise InputError(f"{ntk}: holds the method {uncertainty.name!r}; simulations are watched with ntk")
    rules = choose_rules(coverage, max_error, patience, lost, keep_going)
    check_rules(rules, uncertainty.calibration)
    threshold = highest = None
    if candidates is not None and uncertainty.calibration is not None:
        threshold = ConformalThreshold(coverage).threshold(uncertainty.calibration)
        highest = lost * threshold
    starts = keys.read(start_file, labelled=False)
    check_species(uncertainty.potential, starts, str(start_file))
    jobs = plan_trajectories(starts, temperatures, settings or MDSettings(), seed)

    trajectories: list[Trajectory] = []
    frames: dict[str, Atoms] = {}
    for number, job in enumerate(jobs):
        run = run_md(uncertainty, job.start, job.settings, rules, job.seed, coverage, progress)
        trajectories.append(run)
        for frame in run.frames:
            frame.info |= {
                "trajectory": number,
                "start": job.start_index,
                "target_temperature": job.settings.temperature,
            }
            frames.setdefault(structure_hash(frame), frame)
        if frames:
            write_structures(output, frames.values())
    if candidates is None:
        return MDReport(jobs, trajectories)
    known = {*uncertainty.train_hashes, *uncertainty.calibration_hashes}
    found = collect(frames.values(), threshold, known, min_distance, highest=highest)
    if found:
        write_structures(Path(candidates), found)
    return MDReport(jobs, trajectories, len(found))


def choose_rules(coverage: float, max_error: float | None, patience: int, lost: float, keep_going: bool) -> list[Rule]:
    """The physical rules and one for the uncertainty."""
    if keep_going:
        return [*PHYSICAL_RULES]
    if max_error is not None:
        return [*PHYSICAL_RULES, ErrorLevel(max_error, coverage, patience, lost=lost)]
    return [*PHYSICAL_RULES, ConformalThreshold(coverage, patience, lost=lost)]
