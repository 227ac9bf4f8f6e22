"""Ctrl-C, SIGTERM and SIGHUP end a command with one line, once what it started has been ended."""

import _thread
import atexit
import gc
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any, NoReturn

SIGNALS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
# Libraries that clear all errors may swallow an interruption: it is raised again after so many seconds. After so many
# more the process ends, whatever becomes of its helpers.
PATIENCE = 6.0


class _Interruption:
    """What is going on: the signal that came first, and whether it has to be raised once more."""

    first: signal.Signals | None = None
    again = False


def listen() -> None:
    """Make all of them a `KeyboardInterrupt` from now on.

    Scripts start what runs in the background with SIGINT ignored; who sends it all the same means it. ``nohup`` is
    heeded.
    """
    for number in SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)
    sys.unraisablehook = _not_lost
    # Millions of objects that nobody needs any more would be searched for cycles at the end, for seconds.
    atexit.register(gc.freeze)


def ignore() -> None:
    """A command that is leaving is not disturbed."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def leave(hint: str = "") -> NoReturn:
    """End after an interruption: the line, then what was registered for the end, but no waiting for native threads."""
    ignore()
    number = _Interruption.first or signal.SIGINT
    sys.stderr.write(f"adaptntk: {SIGNALS[number]}{hint}\n")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    atexit._run_exitfuncs()
    os._exit(128 + number)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _Interruption.first:
        _Interruption.first = signal.Signals(number)
        threading.Thread(target=_insist, daemon=True).start()
    elif not _Interruption.again:
        return  # who asks twice does not keep us from leaving in order
    _Interruption.again = False
    raise KeyboardInterrupt


def _insist() -> None:
    time.sleep(PATIENCE)
    _raise_again()
    time.sleep(PATIENCE)
    os._exit(128 + (_Interruption.first or 0))


def _raise_again() -> None:
    _Interruption.again = True
    _thread.interrupt_main(_Interruption.first or signal.SIGINT)


def _not_lost(what: Any) -> None:
    """An interruption that falls into a place that cannot raise, such as a finaliser, is raised again after it."""
    if isinstance(what.exc_value, KeyboardInterrupt):
        _raise_again()
    else:
        sys.__unraisablehook__(what)
