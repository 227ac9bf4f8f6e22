"""How values look in a notebook: one line, whatever they hold."""

from collections.abc import Collection
from dataclasses import fields
from typing import Any, TypeVar

Kind = TypeVar("Kind")

# Longer texts, and collections of more, are told by their type and size.
_LONGEST, _MOST = 60, 3


def short_repr(kind: type[Kind]) -> type[Kind]:
    """Decorate a dataclass that holds arrays or many things: its ``repr`` says what they are, not each number."""

    def represent(value: Any) -> str:
        held = {item.name: getattr(value, item.name) for item in fields(value) if item.repr}
        told = ", ".join(f"{name}={_short(part)}" for name, part in held.items() if not _is_empty(part))
        return f"{type(value).__name__}({told})"

    kind.__repr__ = represent  # type: ignore[method-assign]
    return kind


def _is_empty(value: Any) -> bool:
    """An array without numbers."""
    return hasattr(value, "dtype") and 0 in getattr(value, "shape", ())


def _short(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, Collection) and not isinstance(value, str) and len(value) > _MOST:
        return f"<{type(value).__name__} of {len(value)}>"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_short, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_short(held)}" for key, held in value.items()) + "}"
    text = repr(value)
    return text if len(text) <= _LONGEST and "\n" not in text else f"{type(value).__name__}(...)"
