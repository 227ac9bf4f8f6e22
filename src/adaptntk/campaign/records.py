"""What a campaign writes about itself: one type per file, checked when it is read.

docs/run-directory.md describes the files, `adaptntk.campaign.layout` says where they are, and
`adaptntk.labelers.record` has those of labels.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from adaptntk.files import damaged, read_text, write_table
from adaptntk.labelers.record import LabelRecord
from adaptntk.training.limits import Learnt, Limit

Array = NDArray[np.float64]

FORMAT = 1


@dataclass(frozen=True)
class RunRecord:
    """``run.json``: the campaign that a run directory belongs to; ``inputs`` are SHA-256 of its files."""

    format: int
    adaptntk: str
    name: str
    created: str
    config: dict[str, Any]
    inputs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """``verdict.json``: why a campaign stopped, by a name in `adaptntk.campaign.verdict` and in a sentence."""

    stop: bool = True
    reason: str
    text: str


@dataclass(frozen=True)
class Pause:
    """``paused.json``: why a campaign waits for somebody to mend something; gone once it goes on."""

    reason: str


@dataclass(frozen=True)
class TrajectoryRecord:
    """One simulation of an exploration and what ended it; None where it ran to its end."""

    name: str
    temperature: float
    steps: int
    frames: int
    stopped_by: str | None
    reason: str | None


@dataclass(frozen=True)
class FrameCounts:
    """What became of the frames of an exploration or of a pool: those taken, and how many were dropped for what."""

    taken: int
    dropped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Explored:
    """``explored.json``; ``remarks`` say of how many frames the uncertainty was an extrapolation."""

    trajectories: tuple[TrajectoryRecord, ...] = ()
    frames: FrameCounts | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pick:
    """One chosen candidate: U when it was picked, and what its label was expected to tell."""

    hash: str
    number: int
    score: float
    information: float


@dataclass(frozen=True)
class Wave:
    """Picks that were labelled together; those of a later wave replace picks whose labels failed."""

    picks: tuple[Pick, ...]


@dataclass(frozen=True)
class Picks:
    """``picks.json``"""

    waves: tuple[Wave, ...] = ()

    @property
    def all(self) -> list[Pick]:
        """In the order of picking."""
        return [pick for wave in self.waves for pick in wave.picks]

    def followed_by(self, picks: Iterable[Pick]) -> "Picks":
        """With one more wave."""
        return Picks((*self.waves, Wave(tuple(picks))))


@dataclass(frozen=True)
class LabelCounts:
    """Labels so far by role, and structures that could not be labelled."""

    train: int
    valid: int
    holdout: int
    quarantined: int


@dataclass(frozen=True)
class ErrorRecord:
    """Errors on a set of structures, eV/Å and eV; each bound is passed with probability ``1 - confidence``."""

    force_rmse: float
    force_rmse_low: float
    force_rmse_high: float
    force_rmse_p99: float
    energy_mae_per_atom: float


@dataclass(frozen=True, kw_only=True)
class RoundSummary:
    """``round.json``, written last: what the round achieved."""

    round: int
    labels: LabelCounts
    labels_spent: int  # those that were given are not counted
    confidence: float  # of the bounds on the errors
    coverage: float  # of the bounds in holdout.csv
    errors: ErrorRecord  # on the hold-out structures
    test: ErrorRecord | None = None  # on the user's test structures where there are any
    spearman: float | None = None  # of uncertainty and error; None where it is not defined
    information_per_label: float | None = None  # mean over the picks; None where nothing was picked
    remarks: tuple[str, ...] = ()  # on the uncertainty of the hold-out structures
    learnt: Learnt | None = None  # errors on the training and the validation set; None of a model that was given
    limit: Limit | None = None  # what keeps the hold-out error from falling


@dataclass(frozen=True)
class Holdout:
    """``holdout.csv``: errors of a round's model on the hold-out structures; what the model could not give is NaN.

    Energy errors are predicted minus labelled; without a sign, and without uncertainties, in files of before.
    """

    hash: Sequence[str]
    force_error: Array
    forces_uncertainty: Array
    forces_error_bound: Array
    energy_error: Array
    energy_uncertainty: Array

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """None where it is not there yet."""
        if not path.exists():
            return None
        try:
            with path.open(newline="") as file:
                rows = [{"energy_uncertainty": "", **row} for row in csv.DictReader(file)]
            hashes, *numbers = ([row[field.name] for row in rows] for field in fields(cls))
            return cls(hashes, *(np.array([float(cell or "nan") for cell in column]) for column in numbers))
        except KeyError as error:
            raise damaged(path, f"there is no column {error}") from None
        except (OSError, ValueError, TypeError) as error:
            raise damaged(path, error) from None

    def write(self, path: Path) -> None:
        hashes, *numbers = (field.name for field in fields(self))
        cells = {name: [float(x) if np.isfinite(x) else "" for x in getattr(self, name)] for name in numbers}
        write_table(path, {hashes: self.hash, **cells})


# What the ledger says of every label; the structure's file says the same.
LEDGER = (
    "hash", "round", "role", "chosen_by", "score", "information", "trajectory", "temperature", "step",
    "label_seconds", "energy", "label_hash",
)  # fmt: skip


def write_ledger(path: Path, labels: Iterable[LabelRecord]) -> None:
    """``ledger.csv``: one line per label, for people and spreadsheets."""
    rows = [asdict(label) for label in sorted(labels, key=lambda label: (label.round, label.role, label.number))]
    write_table(path, {name: ["" if row[name] is None else row[name] for row in rows] for name in LEDGER})


def read_ledger(path: Path) -> dict[str, str]:
    """Of every label in the ledger the hash of its content, empty where an older version wrote it."""
    if not path.exists():
        return {}
    try:
        return {row["hash"]: row.get("label_hash") or "" for row in csv.DictReader(read_text(path).splitlines())}
    except (KeyError, csv.Error) as error:
        raise damaged(path, f"no table of labels: {error}") from None
