"""The run directory: all that is known of a campaign, in files that people can read."""

import hashlib
import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ase import Atoms

from adaptntk.campaign.config import CHANGEABLE, Campaign
from adaptntk.campaign.layout import FORMAT, ROLES
from adaptntk.data.structures import ENERGY, read_structures, structure_hash
from adaptntk.errors import InputError
from adaptntk.files import locked, make_folder, write_atomically, write_json, write_table
from adaptntk.version import __version__

log = logging.getLogger(__name__)

# What the ledger says of every label; the structure's file says the same.
PROVENANCE = (
    "hash", "round", "role", "chosen_by", "score", "information", "trajectory", "temperature", "step", "label_seconds",
)  # fmt: skip


class RunDirectory:
    """A run directory that exists and belongs to a configuration."""

    def __init__(self, path: Path, config: Campaign) -> None:
        self.path = path
        self.config = config
        self._labels: dict[Path, Atoms] = {}

    def round(self, number: int) -> "Round":
        """The folder of a round."""
        return Round(make_folder(self.path / "rounds" / f"{number:02d}"), number)

    def labelled(self, role: str, before: int | None = None) -> list[Atoms]:
        """Labelled structures of a role, of all rounds or of those before one, in the order of their choice."""
        paths = sorted((self.path / "labels").glob("*.xyz"))
        # A label never changes once it is there.
        self._labels = {path: self._labels.get(path) or read_label(path) for path in paths}
        wanted = [
            a for a in self._labels.values() if a.info["role"] == role and (before is None or a.info["round"] < before)
        ]
        return sorted(wanted, key=lambda a: (a.info["round"], a.info["number"]))

    def known_hashes(self) -> set[str]:
        """Of all structures that were labelled or could not be."""
        folders = (self.path / "labels", self.path / "quarantine")
        return {path.stem for folder in folders for path in folder.glob("*.xyz")}

    def labels_spent(self) -> int:
        """Labels that were paid for; those that were given are not."""
        return sum(a.info["chosen_by"] != "given" for role in ROLES for a in self.labelled(role))

    def write_ledger(self) -> None:
        """One line per label, for people and spreadsheets."""
        rows = [a.info for role in ROLES for a in self.labelled(role)]
        rows.sort(key=lambda info: (info["round"], info["role"], info["number"]))
        columns = {key: [row.get(key, "") for row in rows] for key in PROVENANCE}
        write_table(self.path / "ledger.csv", columns | {"energy": [row[ENERGY] for row in rows]})

    def check_complete(self, number: int) -> None:
        """Refuse to go on when a label of a finished round has disappeared."""
        summary = self.round(number).summary
        assert summary is not None
        for role in ROLES:
            found = sum(a.info["round"] <= number for a in self.labelled(role))
            if found < summary["labels"][role]:
                raise InputError(
                    f"{self.path}: round {number} ended with {summary['labels'][role]} {role} labels, but only {found} "
                    "are in labels/: files were deleted; put them back from a copy, or start a new run"
                )
        for name in ("model.model", "model.ntk"):
            if not (self.round(number).folder / name).exists():
                raise InputError(f"{self.round(number).folder / name} was deleted; put it back, or start a new run")


class Round:
    """The folder of one round. A step is done once its file is there."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.number = number

    @property
    def model(self) -> Path:
        return self.folder / "model.model"

    @property
    def ntk(self) -> Path:
        return self.folder / "model.ntk"

    @property
    def pool(self) -> Path:
        return self.folder / "pool.xyz"

    @property
    def random(self) -> Path:
        return self.folder / "random.xyz"

    @property
    def summary(self) -> dict[str, Any] | None:
        """What the round achieved, once it is complete."""
        return read_json(self.folder / "round.json") if (self.folder / "round.json").exists() else None

    def picks(self) -> list[list[dict[str, Any]]]:
        """Waves of picks so far: those after the first replace picks whose labels failed."""
        path = self.folder / "picks.json"
        return [wave["picks"] for wave in read_json(path)["waves"]] if path.exists() else []

    def write_picks(self, waves: Sequence[Sequence[dict[str, Any]]]) -> None:
        """Put the picks on disk before any of them is labelled."""
        write_json(self.folder / "picks.json", {"waves": [{"picks": list(wave)} for wave in waves]})

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Remember how long a step took."""
        clock = Clock()
        with clock.of(step):
            yield
        self.add_seconds(clock.seconds)

    def add_seconds(self, seconds: dict[str, float]) -> None:
        """Remember how long steps took that are complete now; the time before an interruption is lost."""
        path = self.folder / "seconds.json"
        known = read_json(path) if path.exists() else {}
        write_json(path, known | {step: round(known.get(step, 0.0) + spent, 3) for step, spent in seconds.items()})


class Clock:
    """Sums the time of steps that come in turns."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def of(self, step: str) -> Iterator[None]:
        """Count what is done now as part of that step."""
        began = time.perf_counter()
        yield
        self.seconds[step] = self.seconds.get(step, 0.0) + time.perf_counter() - began


@contextmanager
def open_run(config: Campaign, text: str, resume: bool) -> Iterator[RunDirectory]:
    """Make the run directory, or go on in it; nobody else works there meanwhile.

    Args:
        text: the configuration as the user wrote it, kept for the record.
        resume: whether the directory may exist already.
    """
    assert config.output is not None
    path = config.output
    exists = (path / "run.json").exists()
    if exists and not resume:
        raise InputError(f"{path}: a campaign was begun there; go on with --resume, or choose another output")
    if not exists and path.exists() and any(entry.name != ".lock" for entry in path.iterdir()):
        raise InputError(f"{path}: is not empty and no run directory; choose another output")
    with locked(path):
        if exists:
            _check_same(path, config)
        else:
            _begin(path, config, text)
        yield RunDirectory(path, config)


def _begin(path: Path, config: Campaign, text: str) -> None:
    write_atomically(path / "campaign.yaml", lambda temporary: temporary.write_text(text))
    make_folder(path / "labels")
    content = {
        "format": FORMAT,
        "adaptntk": __version__,
        "name": config.name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": config.model_dump(mode="json"),
        "inputs": {field: _file_hash(file) for field, file in config.input_files().items()},
    }
    write_json(path / "run.json", content)


def _check_same(path: Path, config: Campaign) -> None:
    about = read_json(path / "run.json")
    if about.get("format") != FORMAT:
        raise InputError(f"{path}: written by another version of adaptntk (format {about.get('format')}, not {FORMAT})")
    before, now = Campaign.model_validate(about["config"]).identity(), config.identity()
    changed = sorted(_differences(before, now))
    if changed:
        raise InputError(
            f"{path}: the configuration was changed since the run began ({', '.join(changed)}); only "
            f"{' and '.join(CHANGEABLE)} may change: undo it, or choose another output"
        )
    for field, file in config.input_files().items():
        if _file_hash(file) != about["inputs"].get(field):
            raise InputError(f"{file} ({field}) was changed since the run began; put the old file back")


def _differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key in before.keys() | now.keys():
        a, b = before.get(key), now.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from _differences(a, b, f"{prefix}{key}.")
        elif a != b:
            yield f"{prefix}{key}: {a} -> {b}"


def read_label(path: Path) -> Atoms:
    """A labelled structure that is what its name says."""
    (atoms,) = read_structures(path, labelled=True, own=True)
    if structure_hash(atoms) != path.stem:
        raise InputError(f"{path}: was changed, it no longer holds the structure of that name; put the old file back")
    return atoms


def read_json(path: Path) -> dict[str, Any]:
    """A file that this campaign wrote."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read, it was changed or damaged ({error})") from None


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
