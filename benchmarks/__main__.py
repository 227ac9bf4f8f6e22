"""``python -m benchmarks NAME``: what it costs on this machine and how good it is, beside what others do."""

import typer

from adaptntk.cli import console
from adaptntk.cli.command import add_command
from benchmarks.commands import COMMANDS

app = typer.Typer(
    help="What it costs on this machine and how good it is, beside what others do.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def common() -> None:
    """Messages are shown."""
    console.set_up(verbose=False)


for command in COMMANDS:
    add_command(app, command)

if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
