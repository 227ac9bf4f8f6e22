"""How long work reports its progress without knowing who watches."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Progress(Protocol):
    """Wraps an iteration: ``for item in progress(items, "what is done", total)``."""

    def __call__(self, items: Iterable[Item], description: str, total: int) -> Iterator[Item]: ...


def silent(items: Iterable[Item], description: str, total: int) -> Iterator[Item]:
    """Shows nothing."""
    return iter(items)


@dataclass(frozen=True)
class Show:
    """What a verb tells while it works: progress, and lines that are results already. Nothing by default."""

    progress: Progress = silent
    line: Callable[[str], None] = lambda text: None


SILENT = Show()
