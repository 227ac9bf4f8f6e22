"""The run directory: all that is known of a campaign, in files that people can read. Every name stands here."""

from dataclasses import dataclass
from pathlib import Path

from ase import Atoms

from adaptntk.campaign.records import (
    Explored,
    Holdout,
    Picks,
    RoundSummary,
    RunRecord,
    TrajectoryRecord,
    Verdict,
    write_ledger,
)
from adaptntk.data.structures import read_structures
from adaptntk.errors import InputError
from adaptntk.files import make_folder, read_record, write_json
from adaptntk.labelers.record import GIVEN, FailureRecord, LabelFiles, LabelRecord, Role, read_labelled

ROLES: dict[Role, str] = {"train": "training", "valid": "validation", "holdout": "hold-out"}
STEPS = ("explore", "select", "label", "train", "evaluate")


@dataclass(frozen=True)
class RoundDirectory:
    """The folder of one round. A step is done once its file is there; what is not there yet is read as nothing."""

    folder: Path
    number: int

    @property
    def model(self) -> Path:
        return self.folder / "model.model"

    @property
    def ntk(self) -> Path:
        return self.folder / "model.ntk"

    @property
    def pool(self) -> Path:
        """The candidates."""
        return self.folder / "pool.xyz"

    @property
    def random(self) -> Path:
        """Structures in the order in which they were drawn at random."""
        return self.folder / "random.xyz"

    @property
    def _summary(self) -> Path:
        return self.folder / "round.json"

    @property
    def _picks(self) -> Path:
        return self.folder / "picks.json"

    @property
    def _explored(self) -> Path:
        return self.folder / "explored.json"

    @property
    def _holdout(self) -> Path:
        return self.folder / "holdout.csv"

    @property
    def _seconds(self) -> Path:
        return self.folder / "seconds.json"

    def trajectory(self, number: int) -> "TrajectoryFiles":
        """Of one simulation; its folder is made."""
        return TrajectoryFiles(make_folder(self.folder / "trajectories") / f"{number:03d}.xyz")

    def summary(self) -> RoundSummary | None:
        """What the round achieved, once it is complete."""
        return RoundSummary.read_if_there(self._summary)

    def write_summary(self, summary: RoundSummary) -> None:
        summary.write(self._summary)

    def picks(self) -> Picks:
        return Picks.read_if_there(self._picks) or Picks()

    def write_picks(self, picks: Picks) -> None:
        """Put the picks on disk before any of them is labelled."""
        picks.write(self._picks)

    def explored(self) -> Explored:
        return Explored.read_if_there(self._explored) or Explored()

    def write_explored(self, explored: Explored) -> None:
        explored.write(self._explored)

    def holdout(self) -> Holdout | None:
        return Holdout.read(self._holdout) if self._holdout.exists() else None

    def write_holdout(self, holdout: Holdout) -> None:
        holdout.write(self._holdout)

    def seconds(self) -> dict[str, float]:
        """Time of the steps that are complete."""
        return read_record(self._seconds, dict[str, float]) if self._seconds.exists() else {}

    def add_seconds(self, seconds: dict[str, float]) -> None:
        """Remember how long steps took that are complete now; the time before an interruption is lost."""
        known = self.seconds()
        added = {step: round(known.get(step, 0.0) + spent, 3) for step, spent in seconds.items()}
        write_json(self._seconds, known | added)


@dataclass(frozen=True)
class TrajectoryFiles:
    """The frames of a simulation, and beside them why it ended; the second file is written last."""

    frames: Path

    @property
    def _record(self) -> Path:
        return self.frames.with_suffix(".json")

    @property
    def done(self) -> bool:
        return self._record.exists()

    def record(self) -> TrajectoryRecord:
        return TrajectoryRecord.read(self._record)

    def write_record(self, record: TrajectoryRecord) -> None:
        record.write(self._record)


class RunDirectory:
    """A run directory, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = LabelFiles(path)
        self._labels: dict[Path, tuple[Atoms, LabelRecord]] = {}

    @property
    def about(self) -> Path:
        """The file that makes a folder a run directory."""
        return self.path / "run.json"

    @property
    def config(self) -> Path:
        """The configuration as the user wrote it."""
        return self.path / "campaign.yaml"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def _verdict(self) -> Path:
        return self.path / "verdict.json"

    def record(self) -> RunRecord:
        """Which campaign it is; refuses what is no run directory."""
        if not self.path.is_dir():
            raise InputError(f"{self.path}: no such folder; give the run directory of a campaign")
        if not self.about.exists():
            raise InputError(
                f"{self.path}: not a run directory, it has no run.json; give the folder that adaptntk run made"
            )
        return RunRecord.read(self.about)

    def verdict(self) -> Verdict | None:
        """None while the campaign goes on."""
        return Verdict.read_if_there(self._verdict)

    def write_verdict(self, verdict: Verdict) -> None:
        verdict.write(self._verdict)

    def remove_verdict(self) -> None:
        self._verdict.unlink(missing_ok=True)

    def round(self, number: int) -> RoundDirectory:
        """The folder of a round, which may not have begun."""
        return RoundDirectory(self.path / "rounds" / f"{number:02d}", number)

    def rounds(self) -> list[RoundDirectory]:
        """Those that have begun."""
        found = [path for path in (self.path / "rounds").glob("[0-9]*") if path.is_dir() and path.name.isdigit()]
        return [RoundDirectory(path, int(path.name)) for path in sorted(found, key=lambda path: int(path.name))]

    def labels(self) -> list[LabelRecord]:
        """Records of all labels, without the structures."""
        return [LabelRecord.read(path) for path in self.files.all_labels()]

    def failures(self) -> list[FailureRecord]:
        """What could not be labelled."""
        return [FailureRecord.read(path) for path in self.files.all_failures()]

    def _labelled(self) -> list[tuple[Atoms, LabelRecord]]:
        # A label never changes once it is there.
        self._labels = {path: self._labels.get(path) or _read_label(path) for path in self.files.all_labels()}
        return list(self._labels.values())

    def labelled(self, role: str, before: int | None = None) -> list[Atoms]:
        """Labelled structures of a role, of all rounds or of those before one, in the order of their choice."""
        wanted = [
            (atoms, record)
            for atoms, record in self._labelled()
            if record.role == role and (before is None or record.round < before)
        ]
        return [atoms for atoms, _ in sorted(wanted, key=lambda pair: (pair[1].round, pair[1].number))]

    def labels_spent(self) -> int:
        """Labels that were paid for; those that were given are not."""
        return sum(record.chosen_by != GIVEN for _, record in self._labelled())

    def given(self, role: str) -> int:
        """Labels of a role that the user had."""
        return sum(record.chosen_by == GIVEN and record.role == role for _, record in self._labelled())

    def write_ledger(self) -> None:
        write_ledger(self.path / "ledger.csv", [record for _, record in self._labelled()])

    def check_complete(self, number: int) -> None:
        """Refuse to go on when a label of a finished round has disappeared."""
        here = self.round(number)
        summary = here.summary()
        assert summary is not None
        for role in ROLES:
            found, expected = len(self.labelled(role, before=number + 1)), getattr(summary.labels, role)
            if found < expected:
                raise InputError(
                    f"{self.path}: round {number} ended with {expected} {role} labels, but only {found} "
                    "are in labels/: files were deleted; put them back from a copy, or start a new run"
                )
        for path in (here.model, here.ntk):
            if not path.exists():
                raise InputError(f"{path} was deleted; put it back, or start a new run")


def _read_label(path: Path) -> tuple[Atoms, LabelRecord]:
    atoms = read_labelled(path)
    return atoms, LabelRecord.of(atoms.info, path)


def read_own(path: Path) -> list[Atoms]:
    """Structures of a file of a run directory, which may hold none."""
    return read_structures(path, own=True) if path.exists() and path.stat().st_size else []
