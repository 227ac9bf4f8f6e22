"""Commands made from the settings of verbs."""

import inspect
import typing
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
        settings.check_given([name for name in options if _was_given(context, name)])
        for line in verb(settings, show=Show(console.show_progress, console.out.print)).lines():
            console.out.print(line)

    parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    hints = typing.get_type_hints(verb.settings)
    for item, about in describe(verb.settings):
        kind, default = hints[item.name], item.default
        repeated = item_type(kind)
        if repeated is not None:
            kind, default = list[repeated] | None, None  # type: ignore[valid-type]
        parameters.append(
            inspect.Parameter(
                item.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if default is MISSING else default,
                annotation=Annotated[kind, _parameter(item.name, about)],
            )
        )
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    group.command(name=verb.name, help=inspect.cleandoc(verb.help))(run)


def _parameter(name: str, about: Description) -> Any:
    if about.argument:
        return typer.Argument(help=about.help, metavar=about.metavar)
    names = [about.short] if about.short else []
    return typer.Option(
        *names,
        about.flag or f"--{name.replace('_', '-')}",
        help=about.help,
        metavar=about.metavar,
        min=about.least,
        show_default=about.default_text or True,
    )


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    # By name: some versions of typer bring their own click, with an enumeration of its own.
    return source is not None and source.name == "COMMANDLINE"
