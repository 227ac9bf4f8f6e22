"""Work in several processes: the same results, the first failure told, no orphans."""

import signal
import subprocess
import sys
import time

import pytest

from adaptntk.errors import InputError
from adaptntk.execution import choose_workers, run_jobs


def square(number):
    return number * number


def refuse(number):
    if number == 2:
        raise InputError("not this one")
    return number


@pytest.mark.parametrize("workers", [1, 2])
def test_results_do_not_depend_on_the_workers(workers):
    assert dict(run_jobs(square, [1, 2, 3], workers)) == {1: 1, 2: 4, 3: 9}


@pytest.mark.parametrize("workers", [1, 2])
def test_the_first_failure_is_raised(workers):
    with pytest.raises(InputError, match="not this one"):
        list(run_jobs(refuse, [1, 2, 3], workers))


def test_how_many_workers():
    assert choose_workers(10, 3, "cpu") == 3
    assert choose_workers(2, 8, "cpu") == 2
    assert choose_workers(10, None, "cuda:0") == 1
    assert 1 <= choose_workers(10, None, "auto") <= 10


SCRIPT = """
import os, time
from adaptntk.execution import run_jobs
def wait(path):
    open(path, "w").write(str(os.getpid()))
    time.sleep(60)
if __name__ == "__main__":
    import sys
    list(run_jobs(wait, sys.argv[1:], 2))
"""


def test_workers_end_with_their_parent(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    files = [tmp_path / "a", tmp_path / "b"]
    process = subprocess.Popen([sys.executable, str(script), *map(str, files)])
    deadline = time.monotonic() + 120
    while not all(path.exists() and path.read_text() for path in files):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    workers = [int(path.read_text()) for path in files]
    while any(alive(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def alive(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().split()[2] != "Z"
    except OSError:
        return False


def test_a_failure_does_not_wait_for_the_others(tmp_path):
    began = time.monotonic()
    with pytest.raises(InputError, match="at once"):
        list(run_jobs(fail_or_sleep, [0, 100], 2))
    assert time.monotonic() - began < 60


def fail_or_sleep(seconds):
    time.sleep(seconds)
    raise InputError("at once")
