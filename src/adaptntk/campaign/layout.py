"""The run directory: all that is known of a campaign, in files that people can read. Every name stands here."""

from pathlib import Path
from typing import Any

from ase import Atoms

from adaptntk.campaign import records
from adaptntk.campaign.records import FORMAT, RoundSummary, RunRecord, TrajectoryRecord, write_ledger
from adaptntk.data.structures import read_structures
from adaptntk.errors import require
from adaptntk.files import make_folder, read_record, write_json
from adaptntk.labelers.record import LabelFiles, LabelRecord, RecordFile, Role, read_label

ROLES: dict[Role, str] = {"train": "training", "valid": "validation", "holdout": "hold-out"}
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
        self.report = path / "report.html"
        self.files = LabelFiles(path)
        self._labels: dict[Path, tuple[Atoms, LabelRecord]] = {}

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
        write_ledger(self.path / "ledger.csv", self.label_records())

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
            require(path.exists(), f"{path} was deleted; put it back, or start a new run")


def read_own(path: Path) -> list[Atoms]:
    """Structures of a file of a run directory, which may hold none."""
    return read_structures(path, own=True) if path.exists() and path.stat().st_size else []
