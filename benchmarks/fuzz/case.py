"""One case: files in a folder, a command line, and what must come of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

Expected = Literal["refused", "accepted", "either"]
Rng = np.random.Generator

# Made by a file that runs code while it is read: it must never appear.
MARKER = "CODE-WAS-RUN"


class WrongOutputError(Exception):
    """What was written, or said, is not what the input asks for."""


@dataclass
class Case:
    """What is done in a folder, and what must come of it.

    Args:
        story: how the input was made, in a few words.
        words: of the command line, with paths relative to the folder.
        expected: whether it must be refused; ``either`` where a mutation may make valid input.
        blamed: the error must name one of these; anything may be named where there are none.
        check: looks at what was written by a command that succeeded, and raises `WrongOutputError`.
        written: files and folders that a command that succeeds may make or change.
        mended: folders in which what an interruption leaves is cut off, before anything is refused.
        usage: the command line itself is wrong: its parser may answer, in its own words.
        nobody: runs without the rights of the owner of the files.
    """

    story: str
    words: list[str]
    expected: Expected = "either"
    blamed: tuple[str, ...] = ()
    check: Callable[[Path], None] | None = None
    written: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()
    usage: bool = False
    nobody: bool = False


@dataclass(frozen=True)
class Result:
    """What came of a case."""

    number: int
    kind: str
    case: Case
    code: int | None
    output: str
    seconds: float
    failures: dict[str, str] = field(default_factory=dict)  # by category


def pick(rng: Rng, choices: Iterable[Any]) -> Any:
    """One of several, all alike."""
    found = list(choices)
    return found[int(rng.integers(len(found)))]


def chance(rng: Rng, share: float) -> bool:
    return bool(rng.random() < share)
