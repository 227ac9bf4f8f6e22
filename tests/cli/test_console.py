"""Nothing that comes from a file reaches the terminal as a command."""

import logging
import os
import pty
import subprocess
import sys

import pytest
from rich.table import Table
from rich.text import Text

from adaptntk.cli import console

TITLE, CLEAR, BIDI, C1 = "\x1b]0;mine\x07", "\x1b[2J", "\u202e", "\x9b31m"
EVIL = f"a{TITLE}{CLEAR}\r{BIDI}{C1}\x00\udcff\u2066z"


def controls(text):
    return [c for c in text if not c.isprintable() and c not in "\n\t"]


def test_control_characters_are_spelled_out():
    assert console.visible("Å, 2 ± 1\n\tb") == "Å, 2 ± 1\n\tb"
    assert console.visible(CLEAR) == r"\x1b[2J"
    assert console.visible(BIDI) == r"\u202e"
    assert not controls(console.visible(EVIL))


@pytest.mark.parametrize("make", [str, Text, lambda text: _table(text)])
def test_everything_that_is_printed_is_visible(make):
    terminal = console.SafeConsole(force_terminal=True, color_system=None, width=200)
    with terminal.capture() as capture:
        terminal.print(make(EVIL))
    assert not controls(capture.get())
    assert "x1b[2J" in capture.get()


def _table(text):
    table = Table(text)
    table.add_row(text)
    return table


def test_a_message_is_one_line(capsys):
    console.ConsoleHandler().emit(logging.makeLogRecord({"msg": f"bad name: a\nadaptntk: all is well{EVIL}"}))
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert not controls(shown)


def test_names_are_no_markup(capsys):
    console.err.print("[bold]:cat:[/]")
    assert capsys.readouterr().err == "[bold]:cat:[/]\n"


def test_on_a_real_terminal(tmp_path):
    """A file name of bytes that are no text, with escape sequences and a line break, in an error."""
    name = os.fsencode(tmp_path) + b"/x\x1b]0;mine\x07\n\x9b2J\xff\xe2\x80\xae.ntk"
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "adaptntk", "score", name, b"x.xyz", b"-o", os.fsencode(tmp_path / "o.xyz")]
    done = subprocess.run(command, stdout=theirs, stderr=theirs, check=False)
    os.close(theirs)
    shown = os.read(ours, 10_000).decode().replace("\r\n", "\n")
    os.close(ours)
    assert done.returncode == 2
    assert shown.startswith("adaptntk: ")
    assert shown.count("\n") == 1
    assert not controls(shown)
