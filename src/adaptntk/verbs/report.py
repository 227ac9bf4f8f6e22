"""``adaptntk report``"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from adaptntk.files import check_writable, write_atomically
from adaptntk.progress import Show
from adaptntk.verbs.settings import option, verb
from adaptntk.verbs.shared import RunFolder


class ReportSettings(RunFolder):
    beside: tuple[Path, ...] = option("Another campaign to draw into the learning curve; may be repeated.", ())
    output: Path | None = option("The page; report.html in the folder by default.", None, short="-o")


class PageReport(NamedTuple):
    path: Path

    def lines(self) -> Iterable[str]:
        size = self.path.stat().st_size
        yield f"wrote {self.path} ({size / 1e6:.1f} MB)" if size >= 1e5 else f"wrote {self.path} ({size / 1e3:.0f} kB)"


@verb(ReportSettings)
def report(settings: ReportSettings, show: Show) -> PageReport:
    """Write one HTML page about a campaign, finished or not; it needs no network.

    Learning curve, uncertainty against error, where the labels went, information, time, failures, and a viewer of
    candidates and picks.
    """
    from adaptntk.campaign.layout import RunDirectory, read_run
    from adaptntk.report.campaign import campaign_page

    path = RunDirectory(settings.run).report if settings.output is None else settings.output
    content = read_run(settings.run)
    check_writable(path)
    page = campaign_page(content, [read_run(other) for other in settings.beside])
    write_atomically(path, lambda temporary: temporary.write_text(page, encoding="utf-8"))
    return PageReport(path)
