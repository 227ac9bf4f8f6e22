"""``adaptntk report`` and ``adaptntk status``"""

from collections.abc import Sequence
from pathlib import Path

from adaptntk.files import check_writable, write_atomically
from adaptntk.report.run_directory import read_run
from adaptntk.report.run_progress import Status, status_of
from adaptntk.verbs.labels import PathLike


def write_report(run: PathLike, output: PathLike | None = None, beside: Sequence[PathLike] = ()) -> Path:
    """``adaptntk report``: one self-contained HTML page from a run directory, finished or not.

    Args:
        run: the folder of the campaign.
        output: the page; ``report.html`` in the folder by default.
        beside: folders of other campaigns, whose learning curves are drawn too.
    """
    from adaptntk.report.campaign import campaign_page  # draws figures: not needed for the status

    path = Path(run) / "report.html" if output is None else Path(output)
    content = read_run(run)
    check_writable(path)
    page = campaign_page(content, [read_run(other) for other in beside])
    write_atomically(path, lambda temporary: temporary.write_text(page, encoding="utf-8"))
    return path


def campaign_status(run: PathLike) -> Status:
    """``adaptntk status``: what a campaign has done so far, and which step of which round is unfinished."""
    return status_of(read_run(run))
