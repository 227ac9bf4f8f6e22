"""Runs a case in this process and judges what came of it."""

import contextlib
import gc
import hashlib
import json
import os
import re
import shlex
import signal
import stat
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from adaptntk.cli.app import app
from benchmarks.fuzz.case import MARKER, Case, Result, WrongOutputError

LONGEST = 60.0
CODES = (0, 2)
NOBODY = 65534
CATEGORIES = (
    "traceback", "hang", "wrong code", "silent acceptance", "wrong refusal", "unclear error", "files left",
    "input changed", "wrong output", "code run",
)  # fmt: skip
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NOT_FINITE = re.compile(r"(?<![\w.\-/'\"])[-+]?(nan|inf)(?![\w'\"])", re.IGNORECASE)


class HangError(BaseException):
    """A case took longer than a minute; nothing may catch this."""


def judge(number: int, kind: str, case: Case, folder: Path) -> Result:
    """Run a case in its folder."""
    before = snapshot(folder)
    spare = folder.parent / "spare"  # for files without a name: what stays there was left behind
    spare.mkdir(exist_ok=True)
    began = time.perf_counter()
    with _inside(folder, spare, case.nobody), _watched(number, case):
        code, output, error, exception = _invoke(case.words)
    seconds = time.perf_counter() - began
    failures: dict[str, str] = {}
    if isinstance(exception, HangError):
        failures["hang"] = _last_frames(exception)
    elif exception is not None or "Traceback (most recent call last)" in output + error:
        failures["traceback"] = error[-1000:] if exception is None else _last_frames(exception)
    elif code not in CODES:
        failures["wrong code"] = f"exit code {code}"
    else:
        failures |= _judge_words(case, code, output, error)
    failures |= _judge_files(case, code, before, snapshot(folder), folder)
    if outside := sorted({path.name for path in folder.parent.iterdir()} - {"case", "spare", "material"}):
        failures["files left"] = f"outside of the folder: {', '.join(outside)}"
    if any(spare.iterdir()):  # those of objects that nobody holds any more do not count
        gc.collect()
    if left := sorted(path.name for path in spare.iterdir()):
        failures["files left"] = f"temporary files: {', '.join(left)}"
    return Result(number, kind, case, code, output + error, seconds, failures)


def _invoke(words: list[str]) -> tuple[int | None, str, str, BaseException | None]:
    try:
        result = CliRunner().invoke(app, words)
    except HangError as error:
        return None, "", "", error
    raised = result.exception if not isinstance(result.exception, SystemExit) else None
    return result.exit_code, result.stdout, result.stderr, raised


def _last_frames(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    places = " > ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
    return f"{type(error).__name__}: {str(error)[:300]} ({places})"


def _judge_words(case: Case, code: int | None, output: str, error: str) -> dict[str, str]:
    """What was said, and whether it should have been."""
    failures: dict[str, str] = {}
    if found := _CONTROL.search(output + error):
        failures["unclear error"] = f"control character {found.group()!r} was printed"
    if code == 0:
        if case.expected == "refused":
            failures["silent acceptance"] = f"accepted: {' / '.join(output.splitlines())[:300]}"
        # A simulation that ends because a number is not finite says so; a status shows what is written.
        said = "\n".join(line for line in output.splitlines() if not line.startswith("wrote "))
        if (found := _NOT_FINITE.search(said)) and case.words[0] not in ("md", "status"):
            failures["wrong output"] = f"printed {found.group()}: {' / '.join(output.splitlines())[:300]}"
        return failures
    errors = [line for line in error.splitlines() if line.startswith("adaptntk: ")]
    if case.expected == "accepted":
        failures["wrong refusal"] = " / ".join(errors)
    elif case.usage and error.startswith(("Usage:", "Error:")) and not errors:
        return failures
    elif len(errors) != 1:
        failures["unclear error"] = f"{len(errors)} error lines: {error[-500:]}"
    elif case.blamed and not any(name in errors[0] for name in case.blamed):
        failures["unclear error"] = f"none of {', '.join(case.blamed)} is named: {errors[0][:500]}"
    elif len(errors[0]) > 2000:
        failures["unclear error"] = f"an error of {len(errors[0]):,} characters: {errors[0][:300]}"
    return failures


Snapshot = dict[str, tuple[Any, ...]]


def snapshot(folder: Path) -> Snapshot:
    """Every file with its kind and content."""
    found: Snapshot = {}
    for path in folder.rglob("*"):
        about = path.lstat()
        name, kind = str(path.relative_to(folder)), stat.S_IFMT(about.st_mode)
        if kind == stat.S_IFREG:
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if about.st_size < 1e8 else about.st_mtime_ns
            found[name] = kind, about.st_size, digest
        elif kind == stat.S_IFLNK:
            found[name] = kind, os.readlink(path)
        else:
            found[name] = (kind,)
    return found


def _judge_files(case: Case, code: int | None, before: Snapshot, after: Snapshot, folder: Path) -> dict[str, str]:
    """What was written, and whether it should have been."""
    failures = {}
    allowed = case.written if code == 0 else case.mended

    def excused(name: str) -> bool:
        # Locks stay where they are: to remove one is a race with whoever waits for it.
        # The record of a training stands beside its model.
        name = name.removesuffix(".training.json")
        return name.endswith(".lock") or any(name == a or name.startswith(f"{a}/") for a in allowed)

    made = sorted(name for name in after.keys() - before.keys() if not excused(name))
    changed = sorted(name for name in before if not excused(name) and after.get(name) != before[name])
    if MARKER in after:
        failures["code run"] = "the marker file appeared"
    if made:
        failures["files left"] = ", ".join(made)[:500]
    if changed:
        failures["input changed"] = ", ".join(changed)[:500]
    if code == 0 and case.check is not None:
        try:
            case.check(folder)
        except WrongOutputError as error:
            failures["wrong output"] = str(error)[:500]
        except Exception as error:  # what was written cannot be read
            failures["wrong output"] = f"{type(error).__name__}: {error}"[:500]
    return failures


@contextlib.contextmanager
def _inside(folder: Path, spare: Path, nobody: bool) -> Iterator[None]:
    """In a folder, with temporary files in another one, perhaps without rights."""
    here, place = os.getcwd(), tempfile.tempdir
    user = os.geteuid()
    os.chdir(folder)
    tempfile.tempdir = str(spare)
    if nobody and user == 0:
        spare.chmod(0o777)
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if os.geteuid() != user:
            os.seteuid(user)
        tempfile.tempdir = place
        os.chdir(here)


@contextlib.contextmanager
def _watched(number: int, case: Case) -> Iterator[None]:
    """An alarm after a minute; where compiled code does not hear it, the end of everything after two."""

    def alarm(*_: object) -> None:
        raise HangError

    def give_up() -> None:
        said = f"case {number} hangs and cannot be stopped: adaptntk {shlex.join(case.words)}\n"
        os.write(2, said.encode(errors="replace"))
        os._exit(1)

    last_resort = threading.Timer(2 * LONGEST, give_up)
    last_resort.daemon = True
    last_resort.start()
    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        last_resort.cancel()


def strict_json(path: Path) -> Any:
    """A JSON file without the constants that JSON does not have."""

    def refuse(name: str) -> Any:
        raise WrongOutputError(f"{path.name} holds {name}")

    return json.loads(path.read_text(), parse_constant=refuse)
