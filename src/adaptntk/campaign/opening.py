"""Opening a run directory: a new one is begun, an old one must belong to the same campaign."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from adaptntk.campaign.config import CHANGEABLE, Campaign, check_content
from adaptntk.campaign.layout import RunDirectory
from adaptntk.campaign.records import FORMAT, RunRecord
from adaptntk.errors import InputError
from adaptntk.files import locked, make_folder, write_atomically
from adaptntk.version import __version__


@contextmanager
def open_run(config: Campaign, text: str, resume: bool) -> Iterator[RunDirectory]:
    """Make the run directory, or go on in it; nobody else works there meanwhile.

    Args:
        text: the configuration as the user wrote it, kept for the record.
        resume: whether the directory may exist already.
    """
    assert config.output is not None
    run = RunDirectory(config.output)
    exists = run.about.path.exists()
    if exists and not resume:
        raise InputError(f"{run.path}: a campaign was begun there; go on with --resume, or choose another output")
    if not exists and run.path.exists() and any(entry.name != ".lock" for entry in run.path.iterdir()):
        raise InputError(f"{run.path}: is not empty and no run directory; choose another output")
    with locked(run.path):
        if exists:
            _check_same(run, config)
        else:
            _begin(run, config, text)
        yield run


def _begin(run: RunDirectory, config: Campaign, text: str) -> None:
    write_atomically(run.config, lambda temporary: temporary.write_text(text))
    make_folder(run.files.labels)
    record = RunRecord(
        format=FORMAT,
        adaptntk=__version__,
        name=config.name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        config=config.model_dump(mode="json"),
        inputs={field: _file_hash(file) for field, file in config.input_files().items()},
    )
    run.about.write(record)


def _check_same(run: RunDirectory, config: Campaign) -> None:
    about = run.record()
    before, now = check_content(about.config, run.about.path).identity(), config.identity()
    changed = sorted(_differences(before, now))
    if changed:
        raise InputError(
            f"{run.path}: the configuration was changed since the run began ({', '.join(changed)}); only "
            f"{' and '.join(CHANGEABLE)} may change: undo it, or choose another output"
        )
    for field, file in config.input_files().items():
        if _file_hash(file) != about.inputs.get(field):
            raise InputError(f"{file} ({field}) was changed since the run began; put the old file back")


def _differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key in before.keys() | now.keys():
        a, b = before.get(key), now.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from _differences(a, b, f"{prefix}{key}.")
        elif a != b:
            yield f"{prefix}{key}: {a} -> {b}"


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
