"""How long work reports its progress without knowing who watches."""

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Progress(Protocol):
    """Wraps an iteration: ``for item in progress(items, "what is done", total)``."""

    def __call__(self, items: Iterable[Item], description: str, total: int) -> Iterator[Item]: ...


def silent(items: Iterable[Item], description: str, total: int) -> Iterator[Item]:
    """Shows nothing."""
    return iter(items)
