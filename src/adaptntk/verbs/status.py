"""``adaptntk status``"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from adaptntk.progress import Show
from adaptntk.verbs.settings import verb
from adaptntk.verbs.shared import RunFolder

if TYPE_CHECKING:
    from adaptntk.report.run_progress import Status


class StatusReport(NamedTuple):
    status: "Status"

    def lines(self) -> Iterable[Any]:
        from rich import box
        from rich.table import Table

        yield self.status.title
        table = Table(box=box.SIMPLE)
        for name in self.status.table.heading:
            table.add_column(name, no_wrap=True)
        for row in self.status.table.rows:
            table.add_row(*row)
        if self.status.table.rows:
            yield table
        yield from self.status.lines


@verb(RunFolder)
def status(settings: RunFolder, show: Show) -> StatusReport:
    """Show where a campaign stands: rounds, labels, errors, time, and what it is doing now."""
    from adaptntk.campaign.layout import read_run
    from adaptntk.report.run_progress import status_of

    return StatusReport(status_of(read_run(settings.run)))
