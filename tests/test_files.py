"""Files that are complete or absent, and folders that one process has for itself."""

import os
import signal
import stat
import subprocess
import sys

import pytest

from adaptntk.errors import InputError
from adaptntk.files import check_folder, is_locked, locked, make_folder, write_atomically, write_json, write_table


def test_a_failed_write_leaves_nothing_and_a_finished_one_is_readable(tmp_path):
    def fail(path):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="No space left"):
        write_atomically(tmp_path / "a", fail)
    assert list(tmp_path.iterdir()) == []
    umask = os.umask(0o022)
    try:
        write_atomically(tmp_path / "a", lambda path: path.write_text("whole"))
    finally:
        os.umask(umask)
    assert (tmp_path / "a").read_text() == "whole"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644


def test_tables_and_json(tmp_path):
    write_table(tmp_path / "a.csv", {"x": [1, 2], "y": ["a", "b"]})
    assert (tmp_path / "a.csv").read_text().split() == ["x,y", "1,a", "2,b"]
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert not (tmp_path / "a.json").exists()


def test_folders_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="not a directory"):
        check_folder(tmp_path / "file" / "below")
    with pytest.raises(InputError, match="cannot write"):
        make_folder(tmp_path / "file" / "below")
    check_folder(tmp_path / "new" / "folder")
    assert not (tmp_path / "new").exists()


HOLDER = """
import sys, time
from adaptntk.files import locked
with locked(sys.argv[1]):
    print("mine", flush=True)
    time.sleep(60)
"""


def test_a_lock_is_told_refused_waited_for_and_let_go_when_its_holder_dies(tmp_path):
    assert is_locked(tmp_path) is False
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "mine\n"
    assert is_locked(tmp_path)
    with pytest.raises(InputError, match="another process is working there"), locked(tmp_path):
        pass
    with locked(tmp_path, name=".another"):
        pass
    holder.send_signal(signal.SIGKILL)
    with locked(tmp_path, wait=True):
        assert is_locked(tmp_path)
    holder.communicate()
    assert is_locked(tmp_path) is False


def test_what_goes_wrong_inside_is_told_as_it_is(tmp_path):
    with pytest.raises(PermissionError), locked(tmp_path):
        raise PermissionError("not ours")
    assert is_locked(tmp_path) is False
