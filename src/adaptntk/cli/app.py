"""All verbs in one application."""

from typing import Annotated

import typer

from adaptntk.cli import console
from adaptntk.cli.config import config
from adaptntk.cli.data import data
from adaptntk.cli.demo import demo
from adaptntk.cli.evaluate import evaluate
from adaptntk.cli.fit import fit
from adaptntk.cli.md import md
from adaptntk.cli.report import report
from adaptntk.cli.run import run
from adaptntk.cli.score import score
from adaptntk.cli.select import select
from adaptntk.cli.status import status
from adaptntk.cli.train import train
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
    app.command()(console.one_line_errors(verb))
app.add_typer(config, name="config")
app.add_typer(data, name="data")


def main() -> None:
    """Entry point of the ``adaptntk`` command."""
    app()
