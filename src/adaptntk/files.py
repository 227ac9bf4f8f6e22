"""Writing files so that they are complete or absent."""

import csv
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from adaptntk.errors import InputError

Record = TypeVar("Record")


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Call ``write(temporary_path)``, then fsync and rename to ``path``."""
    path = Path(path)
    check_writable(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        # mkstemp makes private files; give the result the permissions any new file would have.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except (OSError, RuntimeError, SafetensorError) as error:  # the last two: torch and safetensors on a full disk
        raise InputError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: str | Path) -> None:
    """Refuse an output path before hours of work are spent on it."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a directory")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the directory {path.parent} does not exist")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None


def check_folder(folder: str | Path) -> None:
    """Refuse an output folder that cannot be made or written to, without making it."""
    parent = Path(folder).absolute()
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise InputError(f"cannot write to {folder}: {parent} is not a directory")
    check_writable(parent / "probe")


@contextmanager
def locked(folder: str | Path, wait: bool = False, name: str = ".lock") -> Iterator[None]:
    """Keep everyone else out of a folder for as long as this lasts; the system lets go when a process dies.

    ``wait`` for whoever is there, instead of refusing. Where the file system has no locks, a marker file stands in; one
    that a broken machine left behind has to be removed by hand.
    """
    lock = FileLock(make_folder(folder) / name)
    try:
        held = lock.acquire(blocking=wait)
    except Timeout:
        raise InputError(f"{folder}: another process is working there; wait for it or stop it") from None
    except (OSError, NotImplementedError) as error:
        raise InputError(f"cannot lock {folder}: {getattr(error, 'strerror', None) or error}") from None
    with held:
        yield


def is_locked(folder: str | Path) -> bool | None:
    """Does a process hold the folder's lock? None where that cannot be told: in a folder of somebody else."""
    path = Path(folder) / ".lock"
    if not path.exists():
        return False
    try:
        with FileLock(path).acquire(blocking=False):
            return False
    except Timeout:
        return True
    except (OSError, NotImplementedError):
        return None


def make_folder(folder: str | Path) -> Path:
    """Make the folder, and its parents, if they are not there."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from None
    return Path(folder)


def write_table(path: str | Path, columns: Mapping[str, Sequence[object]]) -> None:
    """Write columns of equal length as CSV, atomically."""

    def write(temporary: Path) -> None:
        with temporary.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))

    write_atomically(path, write)


def write_json(path: str | Path, content: Any) -> None:
    """Write numbers and strings as JSON, atomically; not a number is refused."""
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_text(path: str | Path, text: str) -> None:
    """Write text, atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_record(path: Path, kind: type[Record]) -> Record:
    """A JSON file of ours as the type it was written from; what was edited or damaged is told in one line."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise damaged(path, error) from None
    return as_record(kind, content, path)


def as_record(kind: type[Record], content: Any, path: Path) -> Record:
    """The content of a file as the type that it must have; entries that the type does not know are left out."""
    from pydantic import ValidationError  # takes long to import, and most that write files read no records

    try:
        return _validator(kind).validate_python(content)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "content"
        raise damaged(path, f"{where}: {first['msg']}") from None


@cache
def _validator(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def damaged(path: Path, why: object) -> InputError:
    """What to say of a file of ours that is there but makes no sense."""
    return InputError(f"{path}: cannot be read, it was changed or damaged ({why}); restore it or remove it")
