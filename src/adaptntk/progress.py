"""How long work reports its progress without knowing who watches, and how times and numbers are told."""

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


def duration(seconds: float) -> str:
    """3.5 ms, 120 ms, 1.2 s, 12 s, 3 min 20 s, 2 h 5 min: two or three digits, whatever the size."""
    if 0 < seconds < 0.9995:
        thousandths = 1000 * seconds
        return f"{thousandths:.0f} ms" if thousandths >= 9.95 else f"{thousandths:.2g} ms"
    if seconds < 100:
        return f"{seconds:.1f} s" if 0 < seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, left = divmod(minutes, 60)
    return f"{hours:,} h {left} min" if hours else f"{minutes} min {rest} s"


def counted(count: int, what: str) -> str:
    """``1 round``, ``2,000 rounds``."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
