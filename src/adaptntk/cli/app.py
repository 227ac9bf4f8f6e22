"""All verbs in one application."""

import os
import sys
from typing import Annotated

import typer

from adaptntk.cli import console
from adaptntk.cli.command import add_command
from adaptntk.verbs import config, data, demo, evaluate, fit, md, report, run, score, select, status, train
from adaptntk.version import __version__

app = typer.Typer(
    help="Calibrated uncertainty and batch selection for neural-network potentials, from one trained model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def common(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show warnings of other libraries.")] = False,
) -> None:
    """Options before the verb."""
    console.set_up(verbose)
    if version:
        console.out.print(__version__)
        raise typer.Exit


for verb in (train, fit, score, select, evaluate, md, run, status, report, demo):
    add_command(app, verb)
for name, about, members in (
    ("config", "The configuration of a campaign.", (config.template, config.schema, config.check)),
    ("data", "Make or convert labelled data sets.", (data.md, data.rmd17)),
):
    group = typer.Typer(help=about, no_args_is_help=True)
    for member in members:
        add_command(group, member)
    app.add_typer(group, name=name)


def main() -> None:
    """Run the command that the arguments of the process name."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character is no reason to fail.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if os.path.expanduser("~") == "~":
        # Nor is a user without a home, which libraries look for when they are imported.
        os.environ["HOME"] = os.devnull  # where nobody can make anything, not even root
    app()
