"""``adaptntk status``"""

from adaptntk.cli import console, options


def status(run: options.RunFolder) -> None:
    """Show where a campaign stands: rounds, labels, errors, time, and what it is doing now."""
    from rich import box
    from rich.table import Table

    from adaptntk.verbs.report import campaign_status

    found = campaign_status(run)
    console.out.print(found.title)
    table = Table(box=box.SIMPLE)
    for name in found.table.heading:
        table.add_column(name, no_wrap=True)
    for row in found.table.rows:
        table.add_row(*row)
    if found.table.rows:
        console.out.print(table)
    for line in found.lines:
        console.out.print(line)
