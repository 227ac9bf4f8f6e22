"""A run directory read at one moment: finished, still going on, or killed at any point. Needs no model.

Everything but ``run.json`` may be missing. Files are written atomically, so that what is there is complete.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from adaptntk.campaign.layout import STEPS, RoundDirectory, RunDirectory
from adaptntk.campaign.records import Explored, Holdout, Pick, Picks, RoundSummary, RunRecord, TrajectoryRecord, Verdict
from adaptntk.labelers.record import FailureRecord, LabelRecord


@dataclass(frozen=True)
class RoundSnapshot:
    """One round; ``summary`` is None until it is finished."""

    files: RoundDirectory
    trajectories: tuple[TrajectoryRecord, ...] = ()
    picks: Sequence[Pick] = ()  # of all waves in order
    holdout: Holdout | None = None
    summary: RoundSummary | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def number(self) -> int:
        return self.files.number

    @property
    def compared(self) -> Holdout | None:
        """The hold-out structures, if uncertainties of some of them can be compared with errors."""
        known = self.holdout is not None and np.isfinite(self.holdout.forces_uncertainty).any()
        return self.holdout if known else None


@dataclass(frozen=True)
class RunSnapshot:
    """All that a campaign left on disk, except structures."""

    folder: Path
    about: RunRecord
    rounds: tuple[RoundSnapshot, ...]
    labels: tuple[LabelRecord, ...]
    quarantine: tuple[FailureRecord, ...]
    verdict: Verdict | None
    changed: float

    @property
    def name(self) -> str:
        return self.about.name

    @property
    def summaries(self) -> list[RoundSummary]:
        """Of the rounds that are finished."""
        return [entry.summary for entry in self.rounds if entry.summary is not None]


def read_run(folder: str | Path) -> RunSnapshot:
    """Read a run directory, or refuse what is none."""
    run = RunDirectory(Path(folder))
    about = run.record()
    # Labels are read last: a run that goes on meanwhile then never shows fewer labels than its rounds speak of.
    rounds = tuple(_read_round(entry) for entry in run.rounds())
    labels = tuple(LabelRecord.read(path) for path in run.files.all_labels())
    failures = tuple(run.files.failure(path.stem).get() for path in run.files.all_failures())
    return RunSnapshot(run.path, about, rounds, labels, failures, run.verdict.read(), _last_change(run.path))


def _read_round(entry: RoundDirectory) -> RoundSnapshot:
    explored, picks = entry.explored.read() or Explored(), entry.picks.read() or Picks()
    measured = Holdout.read(entry.holdout), entry.summary.read(), entry.seconds()
    return RoundSnapshot(entry, explored.trajectories, picks.all, *measured)


def _last_change(folder: Path) -> float:
    """When the newest file was written, seconds since 1970; what we write ourselves does not count."""
    times = [0.0]
    for path in folder.rglob("*"):
        try:
            if path.is_file() and path.suffix != ".html":
                times.append(path.stat().st_mtime)
        except OSError:  # renamed or removed meanwhile
            continue
    return max(times)


def steps_of(rounds: Iterable[RoundSnapshot]) -> list[str]:
    """The steps that were timed in any of the rounds, in their order."""
    timed = {step for entry in rounds for step in entry.seconds}
    return [*(step for step in STEPS if step in timed), *sorted(timed - set(STEPS))]


def all_tested(runs: Sequence[RunSnapshot]) -> bool:
    """Whether all runs have errors on the user's test structures: hold-out structures differ from run to run."""
    summaries = [summary for run in runs for summary in run.summaries]
    return bool(summaries) and all(summary.test is not None for summary in summaries)
