"""A campaign's run directory as it is on disk: finished, still going on, or killed at any point.

Everything but ``run.json`` may be missing. Files are written atomically, so that what is there is complete.
docs/run-directory.md describes them.
"""

import csv
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ase.io.extxyz import key_val_str_to_dict
from numpy.typing import NDArray

from adaptntk.campaign.layout import FORMAT
from adaptntk.errors import InputError

Array = NDArray[np.float64]

STEPS = ("explore", "select", "label", "train", "evaluate")
ROLE_NAMES = {"train": "training", "valid": "validation", "holdout": "hold-out"}


@dataclass(frozen=True)
class Label:
    """Where one labelled structure came from and what it cost."""

    hash: str
    round: int
    role: str
    chosen_by: str
    trajectory: str | None
    temperature: float | None
    score: float | None
    information: float | None
    seconds: float | None


@dataclass(frozen=True)
class Quarantined:
    """A structure that could not be labelled, with the error and the time of each attempt."""

    hash: str
    round: int
    role: str
    chosen_by: str
    errors: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Trajectory:
    """One exploration by molecular dynamics and what ended it."""

    name: str
    temperature: float | None
    steps: int
    frames: int
    stopped_by: str | None
    reason: str | None


@dataclass(frozen=True)
class Pick:
    """One chosen candidate: its score when it was picked, and what its label was expected to tell."""

    hash: str
    score: float | None
    information: float | None


@dataclass(frozen=True)
class Holdout:
    """Errors of a round's model on the hold-out structures; what the model could not give is NaN."""

    force_error: Array
    uncertainty: Array
    bound: Array
    energy_error: Array


@dataclass(frozen=True)
class Round:
    """One round; ``summary`` is None until it is finished."""

    number: int
    folder: Path
    trajectories: tuple[Trajectory, ...] = ()
    waves: tuple[tuple[Pick, ...], ...] = ()
    holdout: Holdout | None = None
    summary: dict[str, Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def picks(self) -> list[Pick]:
        """The picks of all waves in order."""
        return [pick for wave in self.waves for pick in wave]

    @property
    def errors(self) -> dict[str, float]:
        """Errors of its model on the hold-out structures; empty while there are none."""
        return (self.summary or {}).get("errors") or {}

    @property
    def pool(self) -> Path:
        """The file of candidates, which need not exist."""
        return self.folder / "pool.xyz"


@dataclass(frozen=True)
class Run:
    """All that a campaign left on disk, except structures."""

    folder: Path
    name: str
    version: str
    created: str
    config: dict[str, Any]
    rounds: tuple[Round, ...]
    labels: tuple[Label, ...]
    quarantine: tuple[Quarantined, ...]
    verdict: dict[str, Any] | None
    changed: float

    @property
    def finished(self) -> list[Round]:
        """The rounds with a model and its errors."""
        return [entry for entry in self.rounds if entry.summary is not None]


def steps_of(rounds: Iterable[Round]) -> list[str]:
    """The steps that were timed in any of the rounds, in their order."""
    timed = {step for entry in rounds for step in entry.seconds}
    return [*(step for step in STEPS if step in timed), *sorted(timed - set(STEPS))]


def read_run(folder: str | Path) -> Run:
    """Read a run directory, or refuse what is none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the run directory of a campaign")
    header = _read_json(folder / "run.json")
    if header is None:
        raise InputError(f"{folder}: not a run directory, it has no run.json; give the folder that adaptntk run made")
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        found = header.get("format") if isinstance(header, dict) else None
        raise InputError(
            f"{folder}: run.json has format {found}, this version reads {FORMAT}; use the one that wrote it"
        )
    # Labels are read last: a run that goes on meanwhile then never shows fewer labels than its rounds speak of.
    rounds = tuple(_read_round(path) for path in sorted((folder / "rounds").glob("[0-9]*")) if path.is_dir())
    return Run(
        folder,
        str(header.get("name") or folder.resolve().name),
        str(header.get("adaptntk", "")),
        str(header.get("created", "")),
        header.get("config") or {},
        tuple(sorted(rounds, key=lambda entry: entry.number)),
        tuple(_read_label(path) for path in sorted((folder / "labels").glob("[!.]*.xyz"))),
        tuple(_read_quarantined(path) for path in sorted((folder / "quarantine").glob("[!.]*.json"))),
        _read_json(folder / "verdict.json"),
        _last_change(folder),
    )


def read_info(comment: str) -> dict[str, Any]:
    """What the comment line of an extxyz frame says; a hash stays a string even where it looks like a number."""
    info: dict[str, Any] = key_val_str_to_dict(comment)
    info.pop("Properties", None)
    found = re.search(r'(?:^|\s)hash="?([0-9A-Za-z]+)', comment)
    if found:
        info["hash"] = found.group(1)
    return info


def _read_json(path: Path) -> Any:
    """The content, or None where there is no such file."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise damaged(path, error) from None


def damaged(path: Path, error: Exception) -> InputError:
    """What to say of a file that is there but makes no sense."""
    return InputError(f"{path}: cannot be read ({error}); restore it or remove it")


def _read_round(folder: Path) -> Round:
    explored = _read_json(folder / "explored.json") or {}
    picks = _read_json(folder / "picks.json") or {}
    try:
        return Round(
            int(folder.name),
            folder,
            tuple(_trajectory(entry) for entry in explored.get("trajectories", [])),
            tuple(
                tuple(Pick(str(p["hash"]), p.get("score"), p.get("information")) for p in wave["picks"])
                for wave in picks.get("waves", [])
            ),
            _read_holdout(folder / "holdout.csv"),
            _read_json(folder / "round.json"),
            {step: float(value) for step, value in (_read_json(folder / "seconds.json") or {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise damaged(folder, error) from None


def _trajectory(entry: dict[str, Any]) -> Trajectory:
    return Trajectory(
        str(entry["name"]),
        entry.get("temperature"),
        int(entry.get("steps", 0)),
        int(entry.get("frames", 0)),
        entry.get("stopped_by"),
        entry.get("reason"),
    )


def _read_holdout(path: Path) -> Holdout | None:
    if not path.exists():
        return None
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))

    def column(name: str) -> Array:
        return np.array([float(row.get(name) or "nan") for row in rows])

    return Holdout(*(column(n) for n in ("force_error", "forces_uncertainty", "forces_error_bound", "energy_error")))


def _read_label(path: Path) -> Label:
    # The comment line alone: a campaign may have thousands of labels, and no structure is needed here.
    try:
        with path.open() as file:
            file.readline()
            info = read_info(file.readline())
        return Label(
            path.stem,
            int(info["round"]),
            str(info["role"]),
            str(info["chosen_by"]),
            None if info.get("trajectory") is None else str(info["trajectory"]),
            info.get("temperature"),
            info.get("score"),
            info.get("information"),
            info.get("label_seconds"),
        )
    except (OSError, KeyError, ValueError) as error:
        raise damaged(path, error) from None


def _read_quarantined(path: Path) -> Quarantined:
    entry = _read_json(path)
    try:
        attempts = entry.get("attempts", [])
        return Quarantined(
            str(entry.get("hash", path.stem)),
            int(entry["round"]),
            str(entry["role"]),
            str(entry["chosen_by"]),
            tuple(str(attempt["error"]) for attempt in attempts),
            sum(float(attempt.get("seconds") or 0.0) for attempt in attempts),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(path, error) from None


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


def errors_to_compare(runs: Sequence[Run]) -> str:
    """Errors on the user's test structures where all runs have them: hold-out structures differ from run to run."""
    rounds = [entry.summary for run in runs for entry in run.finished if entry.summary]
    return "test" if rounds and all("test" in summary for summary in rounds) else "errors"
