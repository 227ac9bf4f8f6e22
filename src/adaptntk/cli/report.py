"""``adaptntk report``"""

from pathlib import Path
from typing import Annotated

import typer

from adaptntk.cli import console, options


def report(
    run: options.RunFolder,
    beside: Annotated[
        list[Path] | None,
        typer.Option("--beside", help="Another campaign to draw into the learning curve; may be repeated."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The page; report.html in the folder by default.")
    ] = None,
) -> None:
    """Write one HTML page about a campaign, finished or not; it needs no network.

    Learning curve, uncertainty against error, where the labels went, information, time, failures, and a viewer of
    candidates and picks.
    """
    from adaptntk.verbs.report import write_report

    path = write_report(run, output, beside or ())
    console.out.print(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
