"""Files that are complete or absent, and folders that one process has for itself."""

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from adaptntk.errors import InputError
from adaptntk.files import (
    check_folder,
    is_locked,
    locked,
    make_folder,
    read_record,
    sweep_temporaries,
    write_atomically,
    write_json,
    write_table,
)


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
        write_atomically(tmp_path / "b", lambda path: save_file({"x": torch.zeros(2)}, path))
        write_atomically(tmp_path / "c", lambda path: torch.save({"x": torch.zeros(2)}, path))
    finally:
        os.umask(umask)
    assert (tmp_path / "a").read_text() == "whole"
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o644}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_only_files_are_replaced(tmp_path):
    """A rename would make a plain file of ``/dev/null``, and of a link."""

    def write(name):
        write_atomically(tmp_path / name, lambda path: path.write_text("whole"))

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to pipe").symlink_to("pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name, why in (("pipe", "a device or a pipe"), ("to pipe", "a device or a pipe"), ("loop", "Too many levels")):
        with pytest.raises(InputError, match=why):
            write(name)
    with pytest.raises(InputError, match="File name too long"):
        write("a" * 300)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/file")
    for _ in range(2):
        write("link")
    assert (tmp_path / "link").is_symlink()
    assert [(path.name, path.read_text()) for path in (tmp_path / "there").iterdir()] == [("file", "whole")]


def calls_of_the_system(monkeypatch):
    """What is synced and renamed, in order."""
    found, fsync, replace, rename = [], os.fsync, os.replace, os.rename

    def synced(handle):
        found.append(("fsync", Path(os.readlink(f"/proc/self/fd/{handle}"))))
        fsync(handle)

    def renamed(source, target, *more, rename=rename, **named):
        found.append(("rename", Path(target)))
        rename(source, target, *more, **named)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    monkeypatch.setattr(os, "replace", lambda *all, **named: renamed(*all, rename=replace, **named))
    return found


def test_a_file_is_on_disk_before_its_name_and_its_name_before_we_go_on(tmp_path, monkeypatch):
    calls = calls_of_the_system(monkeypatch)
    write_atomically(tmp_path / "a.txt", lambda path: path.write_text("whole"))
    (first, written), *rest = calls
    assert (first, written.name) == ("fsync", "a.txt")
    assert written.parent != tmp_path
    assert rest == [("rename", tmp_path / "a.txt"), ("fsync", tmp_path)]


def test_new_folders_are_on_disk(tmp_path, monkeypatch):
    calls = calls_of_the_system(monkeypatch)
    make_folder(tmp_path / "a" / "b")
    assert {path for _, path in calls} == {tmp_path, tmp_path / "a"}
    calls.clear()
    make_folder(tmp_path / "a" / "b")
    assert calls == []


WRITER = """
import sys, time
from pathlib import Path
from adaptntk.files import write_atomically
def write(path):
    path.write_text("half")
    print(path, flush=True)
    time.sleep(60)
write_atomically(Path(sys.argv[1]) / "deep.xyz", write)
"""


def test_what_killed_writers_leave_is_no_data_and_is_swept_but_nothing_of_the_living(tmp_path):
    (tmp_path / "below").mkdir()
    writers = []
    for folder in (tmp_path, tmp_path / "below"):
        command = [sys.executable, "-c", WRITER, str(folder)]
        writers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    halves = [Path(writer.stdout.readline().strip()) for writer in writers]
    assert all(half.read_text() == "half" and half.name == "deep.xyz" for half in halves)
    assert [*tmp_path.glob("*.xyz"), *(tmp_path / "below").glob("*.xyz")] == []
    assert sweep_temporaries(tmp_path) == 0
    for left, writer in zip((1, 0), writers, strict=True):
        writer.kill()
        writer.communicate()
        assert sweep_temporaries(tmp_path) == 1
        assert sum(half.exists() for half in halves) == left
    # Only what we make: neither other hidden folders nor files, and nothing beyond a link.
    (tmp_path / ".adaptntk-tmp-mine").mkdir()
    (tmp_path / ".adaptntk-tmp-abcdefgh").write_text("a file")
    (tmp_path / ".adaptntk-tmp-12345678").symlink_to(tmp_path / "below")
    before = sorted(tmp_path.iterdir())
    assert sweep_temporaries(tmp_path) == 0
    assert sorted(tmp_path.iterdir()) == before


def test_a_writer_whose_place_is_swept_before_it_is_locked_takes_another(tmp_path, monkeypatch):
    flock, swept = fcntl.flock, []

    def sweep_first(handle, how):
        if not swept and how & fcntl.LOCK_NB:
            swept.append(True)
            assert sweep_temporaries(tmp_path) == 1
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    write_atomically(tmp_path / "a", lambda path: path.write_text("whole"))
    assert swept
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


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
    (tmp_path / "probe").mkdir()
    check_folder(tmp_path)
    check_folder(tmp_path / "new" / "folder")


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


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_refused_and_files_are_written_all_the_same(tmp_path, monkeypatch, code):
    def without(handle, how):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", without)
    wanted = rf"cannot lock .*: its file system has no locks \({os.strerror(code)}\); put it on a local disk$"
    with pytest.raises(InputError, match=wanted), locked(tmp_path / "run"):
        pass
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".lock").touch()
    assert is_locked(tmp_path) is None
    write_atomically(tmp_path / "a", lambda path: path.write_text("whole"))
    (tmp_path / ".adaptntk-tmp-12345678").mkdir()
    # Whoever made it may be alive.
    assert sweep_temporaries(tmp_path) == 0


DAMAGED = {
    "deep": b"[" * 100_000,
    "digits": b'{"a": 1' + b"0" * 5000 + b"}",
    "long": b'{"a": 1' + b"0" * 50 + b"}",
    "overflow": b'{"a": 1e999}',
    "not a number": b'{"a": NaN}',
    "infinity": b'{"a": -Infinity}',
    "twice": b'{"a": 1, "a": 2}',
    "no text": b'{"a": \xff}',
    "nul": b'{"a": \x00}',
    "empty": b"",
    "cut": b'{"a": ',
    "list": b"[1, 2]",
    "type": b'{"a": "x"}',
    "null": b'{"a": null}',
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_record_is_told_in_one_short_line(tmp_path, name):
    path = tmp_path / "a.json"
    path.write_bytes(DAMAGED[name])
    with pytest.raises(InputError, match="it was changed or damaged") as no:
        read_record(path, dict[str, float])
    assert "\n" not in str(no.value)
    assert len(str(no.value)) < 300 + len(str(path))


def test_what_is_no_file_is_not_waited_for(tmp_path):
    path = tmp_path / "a.json"

    def refused():
        with pytest.raises(InputError, match=rf"cannot read {path}: ") as no:
            read_record(path, dict[str, float])
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        return str(no.value).removeprefix(f"cannot read {path}: ")

    assert refused() == "No such file or directory"
    path.mkdir()
    assert refused() == "Is a directory"
    os.mkfifo(path)
    assert refused() == "not a file"
    path.symlink_to(path)
    assert refused() == "Too many levels of symbolic links"
    with path.open("wb") as file:
        file.truncate(10**12)
    assert refused() == "1,000,000,000,000 bytes are far too many for such a file"


def test_who_only_looks_keeps_nobody_out(tmp_path):
    """A campaign is not refused because somebody asks for its status at that moment."""
    looking = os.open(tmp_path / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(looking, fcntl.LOCK_EX)
    threading.Timer(0.1, os.close, [looking]).start()
    with locked(tmp_path):
        pass
