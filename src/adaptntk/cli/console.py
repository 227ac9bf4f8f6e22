"""What the command line shows: messages, progress with the time left, and errors in one line."""

import errno
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bar, TimeElapsedColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.text import Text

from adaptntk.cli.interruption import leave
from adaptntk.errors import AdaptNTKError

Item = TypeVar("Item")

SECONDS_BETWEEN_LINES = 10
LONGEST_ERROR = 1500


def visible(text: str) -> str:
    """Text that can do nothing to a terminal: what has no shape of its own, or turns the writing, is spelled out.

    Names of files, entries of structures and texts of errors may hold such characters, and come from others.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """Visible text without line breaks, so that it cannot pass for several messages, and not longer than a page."""
    line = visible(" ".join(line.strip() for line in text.splitlines()))
    return line if len(line) <= LONGEST_ERROR else f"{line[: LONGEST_ERROR // 2]} ... {line[-LONGEST_ERROR // 2 :]}"


class SafeConsole(Console):
    """Whatever is shown, a message or a cell of a table, is visible text; only rich itself moves the cursor."""

    def render_str(self, text: str, **how: Any) -> Text:
        """Here for the width of cells, too: what is spelled out is longer."""
        return super().render_str(visible(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


out = SafeConsole(highlight=False, soft_wrap=True, markup=False, emoji=False)
err = SafeConsole(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def show_progress(items: Iterable[Item], description: str, total: int) -> Iterator[Item]:
    """A bar with the time left, on a terminal; a line every ten seconds, in a log file."""
    if not err.is_terminal:
        yield from _progress_lines(items, description, total)
        return
    times = TimeElapsedColumn(), "left", TimeRemainingColumn()
    with Bar("{task.description}", BarColumn(), MofNCompleteColumn(), *times, console=err, transient=True) as bar:
        yield from bar.track(items, total=total, description=description)


def _progress_lines(items: Iterable[Item], description: str, total: int) -> Iterator[Item]:
    began = last = time.monotonic()
    for count, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES and count < total:
            last = now
            left = round((now - began) / count * (total - count))
            err.print(f"{description}: {count:,} of {total:,}, {left // 60}:{left % 60:02d} left")


class ConsoleHandler(logging.Handler):
    """Log messages as plain lines, above a running progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        err.print(text if record.exc_info else one_line(text))


def set_up(verbose: bool) -> None:
    """Our messages on the terminal, other libraries' chatter off it."""
    logger = logging.getLogger("adaptntk")
    logger.handlers[:] = [ConsoleHandler()]
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    logger.propagate = False
    if not verbose:
        warnings.filterwarnings("ignore")
        logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells users without a home where its cache is


# What the user or the machine can be at fault for, wherever it is met; a file that is not there may be our fault.
_OF_THE_SYSTEM = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ENAMETOOLONG,
    errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EMFILE, errno.ENFILE,
}  # fmt: skip
Command = TypeVar("Command", bound=Callable[..., Any])


def one_line_errors(command: Command) -> Command:
    """Bad input ends with one clear line and exit code 2; a defect of ours keeps its traceback."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except AdaptNTKError as error:
            err.print(f"adaptntk: {one_line(str(error))}")
            sys.exit(2)
        except OSError as error:
            if error.errno not in _OF_THE_SYSTEM or error.filename is None:
                raise
            err.print(f"adaptntk: cannot use {one_line(str(error.filename))}: {error.strerror}")
            sys.exit(2)
        except KeyboardInterrupt:
            leave("; go on with --resume" if "resume" in kwargs else "")

    return run  # type: ignore[return-value]
