"""Markdown tables that read well in a terminal too."""

from rich import box
from rich.console import Console
from rich.table import Table


def aligned(rows: list[list[str]]) -> list[str]:
    """Lines of a table with columns of even width; the first row is the heading."""
    table = Table(*rows[0], box=box.MARKDOWN)
    for row in rows[1:]:
        table.add_row(*row)
    console = Console(width=10_000, markup=False, emoji=False, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return [line for line in capture.get().splitlines() if line.strip()]
