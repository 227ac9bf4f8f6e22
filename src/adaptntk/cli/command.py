"""Commands made from the settings of verbs."""

import inspect
import typing
from functools import partial
from typing import Annotated, Any

import typer

from adaptntk.cli import console
from adaptntk.progress import Show
from adaptntk.verbs.settings import MISSING, Description, Verb, describe, item_type


def add_command(group: typer.Typer, verb: Verb[Any, Any]) -> None:
    """Make a verb a command of the group."""

    @console.one_line_errors
    def run(context: typer.Context, **options: Any) -> None:
        # Options that may be repeated come as None when they were not given.
        settings = verb.settings(**{k: v for k, v in options.items() if v is not None})
        # By name: some versions of typer bring their own click, with an enumeration of its own.
        sources = {name: context.get_parameter_source(name) for name in options}
        settings.check_given([name for name, source in sources.items() if source and source.name == "COMMANDLINE"])
        for line in verb(settings, show=Show(console.show_progress, console.out.print)).lines():
            console.out.print(line)

    parameter = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
    parameters = [parameter("context", annotation=typer.Context)]
    hints = typing.get_type_hints(verb.settings)
    for item, about in describe(verb.settings):
        kind, default = hints[item.name], item.default
        repeated = item_type(kind)
        if repeated is not None:
            kind, default = list[repeated] | None, None  # type: ignore[valid-type]
        default = inspect.Parameter.empty if default is MISSING else default
        parameters.append(
            parameter(item.name, default=default, annotation=Annotated[kind, _described(item.name, about)])
        )
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {item.name: item.annotation for item in parameters}
    group.command(name=verb.name, help=inspect.cleandoc(verb.help))(run)


def _described(name: str, about: Description) -> Any:
    words: dict[str, Any] = {"help": about.help, "metavar": about.metavar}
    if about.argument:
        return typer.Argument(**words)
    names = [*filter(None, [about.short]), about.name(name)]
    return typer.Option(*names, min=about.least, show_default=about.default_text or True, **words)
