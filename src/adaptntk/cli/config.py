"""``adaptntk config template|schema|check``"""

import json
from pathlib import Path
from typing import Annotated

import typer

from adaptntk.cli import console

config = typer.Typer(help="The configuration of a campaign.", no_args_is_help=True)


@config.command()
@console.one_line_errors
def template(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write; shown when not given.")] = None,
) -> None:
    """A configuration with every field, its default and its meaning."""
    from adaptntk.campaign.config import template as make

    _give(make(), output)


@config.command()
@console.one_line_errors
def schema(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write; shown when not given.")] = None,
) -> None:
    """The JSON schema, with which editors complete and check the file."""
    from adaptntk.campaign.config import schema as make

    _give(json.dumps(make(), indent=1) + "\n", output)


@config.command()
@console.one_line_errors
def check(config: Annotated[Path, typer.Argument(metavar="CAMPAIGN.YAML")]) -> None:
    """Check a configuration and its files, and say what it will do; nothing is computed."""
    from adaptntk.campaign.config import read_config
    from adaptntk.labelers.process import check_labeler

    found = read_config(config)
    check_labeler(found.label.spec)
    later = f"then {found.round.total} in each of up to {found.stop.rounds} rounds"
    console.out.print(
        f"{config}: {found.name}, {found.first.total} labels to begin with, {later}, "
        f"by {found.label.kind}; run directory {found.output}"
    )


def _give(text: str, output: Path | None) -> None:
    from adaptntk.files import write_atomically

    if output is None:
        console.out.print(text, end="")
    else:
        write_atomically(output, lambda temporary: temporary.write_text(text))
        console.out.print(f"wrote {output}")
