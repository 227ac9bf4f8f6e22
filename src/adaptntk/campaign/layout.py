"""The run directory: all that is known of a campaign, in files that people can read. Every name stands here.

A snapshot is the directory read at one moment: finished, still going on, or killed at any point. Everything but
``run.json`` may be missing. Files are written atomically, so that what is there is complete.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from adaptntk.campaign import records
from adaptntk.campaign.config import Start
from adaptntk.campaign.records import (
    FORMAT,
    Explored,
    Holdout,
    Pick,
    RoundSummary,
    RunRecord,
    TrajectoryRecord,
    read_ledger,
    write_ledger,
)
from adaptntk.data.structures import read_structures
from adaptntk.errors import require
from adaptntk.files import (
    LOCK,
    is_temporary,
    locked,
    make_folder,
    read_record,
    sweep_temporaries,
    write_json,
    write_text,
)
from adaptntk.labelers.record import FailureRecord, LabelFiles, LabelRecord, RecordFile, Role, read_label

ROLES: dict[Role, str] = {"train": "training", "valid": "validation", "holdout": "hold-out"}
# What earlier versions called a file that was not completed: .NAME.SUFFIX.xxxxxxxx.SUFFIX
OLD_TEMPORARY = re.compile(r"\..+(\.\w+)\.[a-z0-9_]{8}\1")
FILE_SUFFIXES = (".json", ".xyz", ".csv", ".model", ".ntk", ".yaml", ".html")
STEPS = ("explore", "select", "label", "train", "evaluate")


class RoundDirectory:
    """The folder of one round, which may not have begun. A step is done once its file is there."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.number = number
        self.random = folder / "random.xyz"  # in the order in which they were drawn
        self.pool = folder / "pool.xyz"  # the candidates
        self.model = folder / "model.model"
        self.ntk = folder / "model.ntk"
        self.holdout = folder / "holdout.csv"
        self.explored = RecordFile(folder / "explored.json", records.Explored)
        self.picks = RecordFile(folder / "picks.json", records.Picks)
        self.summary = RecordFile(folder / "round.json", RoundSummary)  # written last
        self._seconds = folder / "seconds.json"

    def trajectory(self, number: int) -> RecordFile[TrajectoryRecord]:
        """Why a simulation ended, written after the frames that are beside it; their folder is made."""
        return RecordFile(make_folder(self.folder / "trajectories") / f"{number:03d}.json", TrajectoryRecord)

    def seconds(self) -> dict[str, float]:
        """Time of the steps that are complete."""
        return read_record(self._seconds, dict[str, float]) if self._seconds.exists() else {}

    def add_seconds(self, seconds: dict[str, float]) -> None:
        """Remember how long steps took that are complete now; the time before an interruption is lost."""
        known = self.seconds()
        added = {step: round(known.get(step, 0.0) + spent, 3) for step, spent in seconds.items()}
        write_json(self._seconds, known | added)


class RunDirectory:
    """A run directory, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.about = RecordFile(path / "run.json", RunRecord)
        self.config = path / "campaign.yaml"  # as the user wrote it
        self.verdict = RecordFile(path / "verdict.json", records.Verdict)
        self.pause = RecordFile(path / "paused.json", records.Pause)
        self.isolated = path / "isolated_atoms.xyz"  # of the labels that were given; may be missing
        self.ledger = path / "ledger.csv"
        self.report = path / "report.html"
        self.files = LabelFiles(path)
        self._labels: dict[Path, tuple[Atoms, LabelRecord]] = {}

    def foreign(self, text: str) -> set[str]:
        """What is in the folder that no beginning of the campaign with this text can have left there."""
        if not self.path.exists():
            return set()
        require(self.path.is_dir(), f"{self.path}: is a file; choose another output")
        found = {entry.name for entry in self.path.iterdir() if not is_temporary(entry)} - {LOCK}
        # Earlier versions wrote these two before run.json.
        if self.config.is_file() and self.config.read_bytes() == text.encode():
            found -= {self.config.name}
        if self.files.labels.is_dir() and not any(self.files.labels.iterdir()):
            found -= {self.files.labels.name}
        return found

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else works there meanwhile; a beginning that fails leaves no folder behind."""
        new = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        try:
            with locked(self.path):
                try:
                    yield
                except BaseException:
                    if new and not self.about.path.exists():
                        (self.path / LOCK).unlink(missing_ok=True)  # ours: who does not hold it must leave it there
                    raise
        except BaseException:
            for folder in new:
                with suppress(OSError):  # it is not empty, as when somebody else was faster
                    folder.rmdir()
            raise

    def begin(self, about: RunRecord, text: str) -> None:
        """It is a run directory once run.json is there; the rest is made up for after an interruption."""
        if not self.about.path.exists():
            self.about.write(about)
        if not self.config.exists():
            write_text(self.config, text)
        make_folder(self.files.labels)

    def check_files(self) -> None:
        """Refuse a pipe, a link to nowhere or a folder where a file belongs, before anything is done."""
        for path in self.path.rglob("*"):
            ordinary = path.is_file() or (path.is_dir() and path.suffix not in FILE_SUFFIXES)
            # What is gone by now was a temporary of a label process that is still at work.
            message = f"{path}: is no ordinary file; put back what was there, or remove it"
            require(ordinary or not os.path.lexists(path), message)

    def sweep(self) -> None:
        """Remove what killed writers left."""
        sweep_temporaries(self.path)
        for path in self.path.rglob(".*"):
            if OLD_TEMPORARY.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                path.unlink(missing_ok=True)

    def record(self) -> RunRecord:
        """Which campaign it is; refuses what is no run directory, and what another version wrote."""
        require(self.path.is_dir(), f"{self.path}: no such folder; give the run directory of a campaign")
        message = f"{self.path}: not a run directory, it has no run.json; give the folder that adaptntk run made"
        require(self.about.path.exists(), message)
        found = read_record(self.about.path, dict[str, Any]).get("format")
        message = f"run.json has format {found}, this version of adaptntk reads {FORMAT}; use the one that wrote it"
        require(found == FORMAT, f"{self.path}: {message}")
        return self.about.get()

    def round(self, number: int) -> RoundDirectory:
        return RoundDirectory(self.path / "rounds" / f"{number:02d}", number)

    def rounds(self) -> list[RoundDirectory]:
        """Those that have begun."""
        found = [path for path in (self.path / "rounds").glob("[0-9]*") if path.is_dir() and path.name.isdigit()]
        return [RoundDirectory(path, int(path.name)) for path in sorted(found, key=lambda path: int(path.name))]

    def _labelled(self) -> list[tuple[Atoms, LabelRecord]]:
        # A label never changes once it is there.
        self._labels = {path: self._labels.get(path) or read_label(path) for path in self.files.all_labels()}
        return list(self._labels.values())

    def labelled(self, role: str, before: int | None = None) -> list[Atoms]:
        """Labelled structures of a role, of all rounds or of those before one, in the order of their choice."""
        ordered = sorted(self._labelled(), key=lambda pair: (pair[1].round, pair[1].number))
        return [atoms for atoms, of in ordered if of.role == role and (before is None or of.round < before)]

    def label_records(self) -> list[LabelRecord]:
        """Of all labels, whose structures are checked."""
        return [record for _, record in self._labelled()]

    def write_ledger(self) -> None:
        write_ledger(self.ledger, self.label_records())

    def check_labels(self) -> None:
        """Refuse to go on when a label is not what it was when the ledger was written."""
        written = read_ledger(self.ledger)
        for label in self.label_records():
            same = written.get(label.hash) in (None, "", label.label_hash)
            cure = f"is not what {self.ledger.name} says it was; put the old file back"
            require(same, f"{self.files.label(label.hash)}: {cure}")

    def check_complete(self, here: RoundDirectory, summary: RoundSummary) -> None:
        """Refuse to go on when a label of a finished round has disappeared."""
        for role in ROLES:
            found, expected = len(self.labelled(role, before=here.number + 1)), getattr(summary.labels, role)
            require(
                found >= expected,
                f"{self.path}: round {here.number} ended with {expected} {role} labels, but only {found} "
                "are in labels/: files were deleted; put them back from a copy, or start a new run",
            )
        for path in (here.model, here.ntk):
            require(path.is_file(), f"{path} was deleted; put it back, or start a new run")


def read_given(start: Start, path: Path, labelled: bool = False) -> list[Atoms]:
    """A file of the user's, with labels where the configuration says."""
    return read_structures(path, start.energy_key, start.forces_key, labelled, stress_key=start.stress_key)


def read_own(path: Path) -> list[Atoms]:
    """Structures of a file of a run directory, which may hold none."""
    return read_structures(path, own=True) if path.exists() and path.stat().st_size else []


@dataclass(frozen=True)
class RoundSnapshot:
    """One round; ``summary`` is None until it is finished."""

    files: RoundDirectory
    explored: Explored = field(default_factory=Explored)
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
    verdict: records.Verdict | None
    pause: records.Pause | None
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
    ended = run.verdict.read(), run.pause.read()
    return RunSnapshot(run.path, about, rounds, labels, failures, *ended, _last_change(run.path))


def _read_round(entry: RoundDirectory) -> RoundSnapshot:
    explored, picks = entry.explored.read() or Explored(), entry.picks.read() or records.Picks()
    measured = Holdout.read(entry.holdout), entry.summary.read(), entry.seconds()
    return RoundSnapshot(entry, explored, picks.all, *measured)


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
