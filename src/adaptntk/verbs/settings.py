"""A verb is a frozen dataclass of settings and one function; the command line is made from both.

A field holds its type, its default and its help in one place. `option` and `argument` make such fields.
"""

import dataclasses
import inspect
import operator
import typing
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from adaptntk.errors import InputError
from adaptntk.files import shortened
from adaptntk.progress import SILENT, Show

# Fields that name files to be written.
OUTPUTS = ("output", "candidates", "figure")


@dataclass(frozen=True)
class Description:
    """How a field looks on the command line."""

    help: str
    argument: bool = False  # stands without a name before it
    flag: str | None = None  # its name, where that is not the name of the field
    short: str | None = None  # one letter for it
    metavar: str | None = None  # what stands for the value
    default_text: str | None = None  # what to say of a default that is computed
    least: int | None = None  # the smallest number that is taken
    most: int | None = None  # the largest

    def name(self, field: str) -> str:
        """What the command line calls that field."""
        return field if self.argument else self.flag or f"--{field.replace('_', '-')}"


def option(help: str, default: Any = MISSING, **how: Any) -> Any:
    """A field that is an option; without a default it must be given."""
    return field(default=default, metadata={"description": Description(help, **how)})


def argument(help: str, default: Any = MISSING, **how: Any) -> Any:
    """A field that is an argument: on the command line it has no name."""
    return option(help, default, argument=True, **how)


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of the settings of every verb, all frozen dataclasses; an option written here is one of all verbs."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        """Paths may be given as strings, and several values as any iterable."""
        for name, kind in typing.get_type_hints(type(self)).items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _as_declared(value, kind))

    def check_outputs(self) -> None:
        """Refuse to write onto a file that is read, or twice onto one: what it held would be gone."""
        values = ((name, value if isinstance(value, tuple) else (value,)) for name, value in vars(self).items())
        paths = [(name, path) for name, several in values for path in several if isinstance(path, Path)]
        for name, output in paths:
            for other, path in paths if name in OUTPUTS and not output.is_dir() else ():
                if other != name and (output.absolute() == path.absolute() or _same_file(output, path)):
                    raise InputError(f"cannot write {output}: it is also the {other} of this command; choose another")

    def check_numbers(self) -> None:
        """Refuse numbers out of their range."""
        for item, about in describe(type(self)):
            value = getattr(self, item.name)
            for fits, limit, word in ((operator.ge, about.least, "least"), (operator.le, about.most, "most")):
                if value is not None and limit is not None and not fits(value, limit):
                    raise InputError(f"{about.name(item.name)} must be at {word} {limit}, not {shortened(value)}")

    def check_given(self, given: Iterable[str]) -> None:
        """Refuse fields that were set and do not belong together."""


def describe(settings: type[Settings]) -> list[tuple["dataclasses.Field[Any]", Description]]:
    """The fields in the order of the command line.

    Arguments, those of the base first; then options: those that must be given, those of the verb, those it shares.
    """
    bases = settings.__mro__
    declared = {name: depth for depth, base in reversed([*enumerate(bases)]) for name in inspect.get_annotations(base)}

    def place(pair: tuple["dataclasses.Field[Any]", Description]) -> tuple[bool, bool, int]:
        item, about = pair
        depth = declared[item.name]
        return not about.argument, item.default is not MISSING, -depth if about.argument else depth

    return sorted(((item, item.metadata["description"]) for item in fields(settings)), key=place)


def item_type(kind: Any) -> Any | None:
    """``X`` for ``tuple[X, ...]``: a field with any number of values."""
    parts = typing.get_args(kind)
    return parts[0] if parts[1:] == (Ellipsis,) else None


def _same_file(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _as_declared(value: Any, kind: Any) -> Any:
    item = item_type(kind)
    if item is not None:
        return tuple(_as_declared(part, item) for part in value)
    return Path(value) if kind in (Path, Path | None) else value


class Report(Protocol):
    """What a verb returns."""

    def lines(self) -> Iterable[Any]:
        """What the command line prints: text, or a table of the package rich."""


S = TypeVar("S", bound=Settings)
R = TypeVar("R", bound=Report)


class Verb(Generic[S, R]):
    """A verb as a function: ``score(ScoreSettings(...))``, or ``score(ntk="a.ntk", structures="pool.xyz", ...)``."""

    def __init__(self, settings: type[S], function: Callable[[S, Show], R]) -> None:
        self.settings, self.function = settings, function
        self.name, self.help = function.__name__, function.__doc__ or ""
        options = "\n".join(f"    {item.name}: {about.help}" for item, about in describe(settings))
        self.__doc__ = f"{self.help}\n\nKeyword arguments, which are the fields of `{settings.__name__}`:\n\n{options}"

    def __call__(self, settings: S | None = None, *, show: Show = SILENT, **options: Any) -> R:
        if settings is None:
            settings = self.settings(**options)
            settings.check_given(options)
        elif options:
            settings = dataclasses.replace(settings, **options)
        settings.check_numbers()
        settings.check_outputs()
        return self.function(settings, show)

    def __repr__(self) -> str:
        return f"<verb {self.name}>"


def verb(settings: type[S]) -> Callable[[Callable[[S, Show], R]], Verb[S, R]]:
    """Decorates the function of a verb."""
    return lambda function: Verb(settings, function)
