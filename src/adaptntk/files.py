"""Writing files so that they are complete or absent."""

import csv
import errno
import json
import math
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from adaptntk.errors import InputError

Record = TypeVar("Record")


LOCK = ".lock"
# Seconds: who only looks whether somebody works in a folder holds its lock for a moment, too.
LONGEST_LOOK = 0.5
# A file that is being written lives in a hidden folder of its own, under its final name: no pattern finds it there.
_WORKPLACE = ".adaptntk-tmp-"
# No text of ours comes near; a larger one is somebody else's, and is not worth the memory.
_LARGEST_TEXT = 256 * 2**20
# A number with more digits is none of ours, and may not fit where numbers go.
_MOST_DIGITS = 40
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Call ``write(temporary_path)``, then fsync, rename to ``path`` and fsync the directory."""
    target = check_writable(path)
    try:
        with _workplace(target.parent) as place:
            temporary = place / target.name
            temporary.touch()
            permissions = temporary.stat().st_mode
            write(temporary)
            temporary.chmod(permissions)  # safetensors makes private files
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(target)
            sync_folder(target.parent)
    except (OSError, RuntimeError, SafetensorError) as error:  # the last two: torch and safetensors on a full disk
        raise InputError(f"cannot write {path}: {getattr(error, 'strerror', None) or shortened(error, 200)}") from None


def sync_folder(folder: Path) -> None:
    """Bring a directory itself to disk: without it a power failure may take back a rename or a new file."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that know no such call
            raise
    finally:
        os.close(handle)


@contextmanager
def _workplace(folder: Path) -> Iterator[Path]:
    """A hidden folder for a file that is being written; it is locked for as long as its writer lives."""
    while True:
        place = Path(tempfile.mkdtemp(dir=folder, prefix=_WORKPLACE))
        lock = _lock(place / "lock")
        try:
            lock.acquire(blocking=False)
        except (Timeout, FileNotFoundError):
            continue  # somebody swept it before the lock was held
        except OSError:
            pass  # no locks here: files are written all the same, but what a dead writer leaves is never swept
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
            lock.release()
        return


def sweep_temporaries(folder: str | Path) -> int:
    """Remove what killed writers left in a folder and below; how many there were.

    A writer that is alive holds a lock, on this machine or, where a shared file system passes locks on, on another one.
    Where the file system has no locks nothing can be told, and nothing is removed.
    """
    swept = 0
    for place in filter(is_temporary, Path(folder).rglob(f"{_WORKPLACE}*")):
        with suppress(Timeout, OSError), _lock(place / "lock").acquire(blocking=False):
            shutil.rmtree(place)
            swept += 1
    return swept


def is_temporary(path: Path) -> bool:
    """Whether it is the place of a file that is being written, or was when its writer was killed."""
    return (
        re.fullmatch(re.escape(_WORKPLACE) + ".{8}", path.name) is not None and path.is_dir() and not path.is_symlink()
    )


def check_writable(path: str | Path) -> Path:
    """Refuse an output path before hours of work are spent on it; where the file will be, which a link may say."""
    path = Path(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise InputError(f"cannot write {path}: it is a directory")
        if not stat.S_ISREG(mode):  # a rename would put a file in its place
            raise InputError(f"cannot write {path}: it is a device or a pipe; give the name of a file")
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    if not target.parent.is_dir():
        raise InputError(f"cannot write {path}: the directory {target.parent} does not exist")
    _try_writing(target.parent, f"cannot write {path}")
    return target


def _try_writing(folder: Path, refusal: str) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{refusal}: {error.strerror or error}") from None


def check_folder(folder: str | Path) -> None:
    """Refuse an output folder that cannot be made or written to, without making it."""
    parent = Path(folder).absolute()
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise InputError(f"cannot write to {folder}: {parent} is not a directory")
    _try_writing(parent, f"cannot write to {folder}")


@contextmanager
def locked(folder: str | Path, wait: bool = False, name: str = LOCK) -> Iterator[None]:
    """Keep everyone else out of a folder for as long as this lasts; the system lets go when a process dies.

    ``wait`` for whoever is there, instead of refusing. A file system without locks is refused: marker files in their
    place would outlive their process, and two that believe they are alone would spoil what both write.
    """
    path = make_folder(folder)
    lock = _lock(path / name)
    try:
        held = lock.acquire(timeout=-1 if wait else LONGEST_LOOK)
    except Timeout:
        raise InputError(f"{folder}: another process is working there; wait for it or stop it") from None
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in _NO_LOCKS:
            with suppress(OSError):  # the folder, if it was not there before
                (path / name).unlink()
                path.rmdir()
            why = f"its file system has no locks ({why}); put it on a local disk"
        raise InputError(f"cannot lock {folder}: {why}") from None
    with held:
        yield


def _lock(path: Path) -> FileLock:
    return FileLock(path, fallback_to_soft=False)


def is_locked(folder: str | Path) -> bool | None:
    """Does a process hold the folder's lock? None where that cannot be told: in a folder of somebody else."""
    path = Path(folder) / LOCK
    if not path.exists():
        return False
    try:
        with _lock(path).acquire(blocking=False):
            return False
    except Timeout:
        return True
    except OSError:
        return None


def make_folder(folder: str | Path) -> Path:
    """Make the folder, and its parents, if they are not there; what was made is on disk."""
    path = Path(folder)
    new = [each for each in (path, *path.parents) if not each.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        for each in new:
            sync_folder(each.parent)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror or error}") from None
    return path


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


def plain(value: Any) -> Any:
    """As JSON has it: arrays are lists, and what is undefined or infinite is None."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, int | str) else str(value)


def write_text(path: str | Path, text: str) -> None:
    """Write text, atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def check_readable(path: Path, kind: str) -> None:
    """Refuse what cannot be read as a file that somebody gave us."""
    try:
        if not path.exists():
            raise InputError(f"{path}: no such file")
        if path.is_dir():
            raise InputError(f"{path}: is a directory, not a {kind}")
        if not path.is_file():
            raise InputError(f"{path}: is no ordinary file; give a {kind}")
        if path.stat().st_size == 0:
            raise InputError(f"{path}: the file is empty")
        with path.open("rb"):
            pass
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def read_text(path: str | Path) -> str:
    """The text of a file; a pipe, a device or a huge file is refused instead of waited for."""
    path = Path(path)
    try:
        # A pipe that nobody writes to would keep us waiting for ever.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise InputError(f"cannot read {path}: not a file")
            if about.st_size > _LARGEST_TEXT:
                raise InputError(f"cannot read {path}: {about.st_size:,} bytes are far too many for such a file")
            return file.read().decode()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise damaged(path, f"byte {error.start} is not text in UTF-8") from None


def parse_json(text: str) -> Any:
    """JSON as the standard has it: finite numbers, each key once; ``ValueError`` in one line for anything else."""
    try:
        return json.loads(
            text, object_pairs_hook=_once, parse_int=_number(int), parse_float=_number(float), parse_constant=_no_number
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        double = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise ValueError(f"{double!r} stands there twice")
    return found


def _number(kind: Callable[[str], float]) -> Callable[[str], float]:
    def convert(text: str) -> float:
        if len(text) > _MOST_DIGITS or not math.isfinite(value := kind(text)):
            return _no_number(text)
        return value

    return convert


def _no_number(text: str) -> float:
    raise ValueError(f"{shortened(text)} is no number that can be used")


def shortened(text: object, most: int = 60) -> str:
    """The beginning of what may be megabytes, for a message in one line."""
    text = " ".join(str(text).split())
    return text if len(text) <= most else f"{text[:most]}..."


def read_record(path: Path, kind: type[Record]) -> Record:
    """A JSON file of ours as the type it was written from; what was edited or damaged is told in one line."""
    text = read_text(path)
    try:
        content = parse_json(text)
    except ValueError as error:
        raise damaged(path, error) from None
    return as_record(kind, content, path)


def as_record(kind: type[Record], content: Any, path: Path) -> Record:
    """The content of a file as the type that it must have; entries that the type does not know are left out."""
    from pydantic import ValidationError  # takes long to import, and most that write files read no records

    try:
        return _validator(kind).validate_python(content)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        where = shortened(".".join(map(str, first["loc"])) or "content")
        raise damaged(path, f"{where}: {shortened(first['msg'], 200)}") from None


@cache
def _validator(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def damaged(path: Path, why: object) -> InputError:
    """What to say of a file of ours that is there but makes no sense."""
    return InputError(f"{path}: cannot be read, it was changed or damaged ({why}); restore it or remove it")
