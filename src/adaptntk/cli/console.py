"""What the command line shows: messages, progress with the time left, and errors in one line."""

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bar, TimeElapsedColumn, TimeRemainingColumn

from adaptntk.errors import AdaptNTKError

Item = TypeVar("Item")

SECONDS_BETWEEN_LINES = 10

out = Console(highlight=False, soft_wrap=True, markup=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)


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
        err.print(self.format(record))


def set_up(verbose: bool) -> None:
    """Our messages on the terminal, other libraries' chatter off it."""
    logger = logging.getLogger("adaptntk")
    logger.handlers[:] = [ConsoleHandler()]
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    logger.propagate = False
    if not verbose:
        warnings.filterwarnings("ignore")


Command = TypeVar("Command", bound=Callable[..., Any])


def one_line_errors(command: Command) -> Command:
    """Bad input ends with one clear line and exit code 2; a defect of ours keeps its traceback."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except AdaptNTKError as error:
            err.print(f"adaptntk: {' '.join(str(error).split())}")
            sys.exit(2)
        except KeyboardInterrupt:
            err.print("adaptntk: interrupted")
            # Native threads may still be busy: leave at once.
            os._exit(130)

    return run  # type: ignore[return-value]
