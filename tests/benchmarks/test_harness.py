"""Jobs side by side, in a folder of their own, and on again after a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchmarks.harness.experiment import experiment, find_plan, run_all
from benchmarks.harness.record import save_outcome
from benchmarks.harness.stopwatch import Timing, show_range, time_in_turns

from adaptntk.errors import InputError

COUNT = 4


@dataclass(frozen=True)
class Count:
    """Writes a line, and waits, for each number; goes on after the last line."""

    folder: Path
    number: int
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return f"job {self.number}"

    @property
    def file(self) -> Path:
        return self.folder / f"{self.number}.txt"

    @property
    def done(self) -> bool:
        return self.lines() == COUNT

    def lines(self) -> int:
        return len(self.file.read_text().split()) if self.file.exists() else 0

    def run(self) -> None:
        for line in range(self.lines(), COUNT):
            with self.file.open("a") as file:
                file.write(f"{line}\n")
            time.sleep(self.seconds)


def jobs(folder: Path, seconds: float = 0.0) -> list[Count]:
    return [Count(folder, number, seconds) for number in range(3)]


@pytest.mark.parametrize("workers", [1, 2])
def test_only_what_is_left_is_done(workers, tmp_path):
    (tmp_path / "1.txt").write_text("0\n1\n")
    (tmp_path / "2.txt").write_text("0\n1\n2\n3\n")
    before = (tmp_path / "2.txt").stat().st_mtime_ns
    run_all(jobs(tmp_path), workers, "cpu")
    assert [(tmp_path / f"{n}.txt").read_text() for n in range(3)] == ["0\n1\n2\n3\n"] * 3
    assert (tmp_path / "2.txt").stat().st_mtime_ns == before


DRIVER = """
import sys
from pathlib import Path
from benchmarks.harness.experiment import experiment, run_all
from tests.benchmarks.test_harness import jobs
if __name__ == "__main__":
    with experiment(sys.argv[1], {"plan": "count"}) as folder:
        run_all(jobs(folder, float(sys.argv[2])), 2, "cpu")
"""


def test_killed_and_resumed(tmp_path):
    """SIGKILL of the driver: its workers end too, the lock is free, and nothing is done twice."""
    script, folder = tmp_path / "driver.py", tmp_path / "out"
    script.write_text(DRIVER)
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen([sys.executable, script, folder, "1"], env=environment, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while jobs(folder)[0].lines() < 2:
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    time.sleep(1.5)
    counts = [job.lines() for job in jobs(folder)]
    assert 0 < sum(counts) < 3 * COUNT
    time.sleep(1.5)
    assert [job.lines() for job in jobs(folder)] == counts
    with experiment(folder, {"plan": "count"}):
        run_all(jobs(folder), 1, "cpu")
    assert [job.file.read_text() for job in jobs(folder)] == ["0\n1\n2\n3\n"] * 3


def test_one_experiment_in_a_folder_and_one_process_at_a_time(tmp_path):
    with experiment(tmp_path / "out", {"preset": "smoke"}) as folder:
        assert json.loads((folder / "plan.json").read_text()) == {"preset": "smoke"}
        with (
            pytest.raises(InputError, match="another process is working there"),
            experiment(folder, {"preset": "smoke"}),
        ):
            pass
    with pytest.raises(InputError, match="another experiment"), experiment(folder, {"preset": "cpu"}):
        pass


def test_plans_by_preset():
    assert find_plan({"cpu": 1, "smoke": 2}, "smoke") == 2
    with pytest.raises(InputError, match="choose one of cpu, smoke"):
        find_plan({"cpu": 1, "smoke": 2}, "huge")
    with pytest.raises(InputError, match="at least one seed"):
        find_plan({"cpu": 1}, "cpu", seeds=0)


def test_what_is_left_behind(tmp_path):
    save_outcome(tmp_path, {"error": 0.5}, "| a |\n", timings={"seconds": 3})
    assert json.loads((tmp_path / "results.json").read_text()) == {"error": 0.5}
    assert (tmp_path / "table.md").read_text() == "| a |\n"
    record = json.loads((tmp_path / "timings.json").read_text())
    assert record["seconds"] == 3
    assert {"date", "commit", "machine", "python", "versions"} <= record.keys()
    assert record["versions"]["torch"] is not None


def test_times_in_turns():
    calls = []
    ticks = iter(range(100))
    work = {"a": (lambda: calls.append("a"), 2), "b": (lambda: calls.append("b"), 1)}
    times = time_in_turns(work, rounds=2, clock=lambda: next(ticks))
    assert calls == ["a", "b"] * 3
    assert times["a"].seconds == [0.5, 0.5]
    assert times["b"].over(times["a"]).seconds == [2, 2]
    assert show_range(Timing([1.0, 2.0, 4.0]).summary(10)) == "20.00 (10.00 .. 40.00)"
