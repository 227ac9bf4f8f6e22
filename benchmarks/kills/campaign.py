"""The campaign that is killed: what it is, what is on disk of it, and the process that runs it."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from adaptntk.campaign.layout import RunDirectory
from adaptntk.errors import require
from adaptntk.files import is_locked, is_temporary

CLONE = Path(__file__).parents[2]
# An entry of the environment that all processes of one campaign have, wherever they are.
MARK = "ADAPTNTK_KILLS"
CONFIG: dict[str, Any] = {
    "name": "water",
    "start": {"molecule": "water"},
    "first": {"train": 8, "valid": 10, "holdout": 4},
    "round": {"train": 3, "valid": 1, "holdout": 2},
    "explore": {
        "temperatures": [200.0, 400.0], "trajectories": 1, "steps": 60, "interval": 3, "coverage": 0.9,
        "patience": 12, "min_distance": 0.01,
    },
    "train": {"preset": "tiny", "epochs": 6},
    "uncertainty": {"sketch_dim": 64},
    "stop": {"rounds": 2},
    "execution": {"executor": "serial", "device": "cpu", "workers": 2},
}  # fmt: skip
LABEL_SECONDS = 0.05


@dataclass
class Patient:
    """A campaign in a folder of its own, which may be killed and go on."""

    folder: Path
    process: "subprocess.Popen[str] | None" = None
    lost: list[str] = field(default_factory=list)
    seen: dict[str, str] = field(default_factory=dict)
    accounted: Counter[str] = field(default_factory=Counter)

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(self.folder / "runs" / CONFIG["name"])

    @property
    def mark(self) -> str:
        return f"{MARK}={self.folder}"

    def prepare(self) -> None:
        """Write its file."""
        self.folder.mkdir()
        settings = {"log": str(self.folder / "log"), "seconds": LABEL_SECONDS}
        label = {"kind": "benchmarks.kills.labeler.CountedLabeler", "settings": settings}
        (self.folder / "campaign.yaml").write_text(yaml.safe_dump(CONFIG | {"label": label}))

    def start(self, executor: str) -> None:
        """Run it, or go on with it, in a process group of its own."""
        words = [sys.executable, "-m", "adaptntk", "run", str(self.folder / "campaign.yaml"), "--resume"]
        path = os.pathsep.join([str(CLONE), *filter(None, [os.environ.get("PYTHONPATH")])])
        with (self.folder / "said").open("w") as said:
            self.process = subprocess.Popen(
                [*words, "--executor", executor], stdout=said, stderr=said, start_new_session=True, text=True,
                env=os.environ | {"PYTHONPATH": path, MARK: str(self.folder)},
            )  # fmt: skip

    def wait_for(self, condition: Callable[[], object], seconds: float = 300.0) -> None:
        """Until it holds; a campaign that hangs ends the benchmark."""
        deadline = time.monotonic() + seconds
        while not condition():
            require(
                time.monotonic() < deadline, f"{self.folder}: nothing happened for {seconds:g} s; see {self.said()}"
            )
            time.sleep(0.02)

    def at_work(self) -> bool:
        """Whether it has the lock of its run directory, or ended."""
        assert self.process is not None
        return self.process.poll() is not None or bool(is_locked(self.run.path))

    def said(self) -> list[str]:
        """The lines on its terminal."""
        return (self.folder / "said").read_text().splitlines()

    def stage(self) -> str:
        """What it was doing, by the last step that it announced."""
        steps = [line.rsplit(": ", 1)[1] for line in self.said() if line.startswith(f"{CONFIG['name']}, round")]
        return steps[-1] if steps else "begin"

    def kill_all(self) -> None:
        """The driver, its workers, and the processes that compute labels."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.wait_for(lambda: not [_kill(each) for each in self.processes()])

    def processes(self) -> list[int]:
        """All that run for it and are not dead, by their environment."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:  # ended meanwhile, or somebody else's
                continue
        return found

    def charged(self) -> Counter[str]:
        """How often the calculation of each structure was begun."""
        log = self.folder / "log"
        return Counter(log.read_text().split()) if log.exists() else Counter()

    def killed_labels(self) -> int:
        """How many calculations were begun since this was last asked, and ended without a label."""
        charged = self.charged()
        lost = [each for each in set(charged) - self.run.files.settled() if charged[each] > self.accounted[each]]
        self.accounted |= Counter({each: charged[each] for each in lost})
        return len(lost)

    def look(self) -> None:
        """Labels that were seen before are still there, byte for byte."""
        now = {path.name: _digest(path) for path in self.run.files.all_labels()}
        self.lost += [name for name, digest in self.seen.items() if now.get(name) != digest]
        self.seen = now

    def outcome(self) -> dict[str, Any]:
        """What must not depend on interruptions: labels, picks, errors, and the bytes of the models."""
        rounds = [entry.folder for entry in self.run.rounds()]
        records = [
            path for folder in rounds for path in sorted(folder.glob("[a-z]*.json")) if path.name != "seconds.json"
        ]
        models = [path for folder in rounds for path in sorted(folder.glob("model.*"))]
        tables = [folder / "holdout.csv" for folder in rounds]
        return {
            "labels": {label.hash: label.label_hash for label in self.run.label_records()},
            "quarantine": [path.name for path in self.run.files.all_failures()],
            "records": {str(path.relative_to(self.run.path)): json.loads(path.read_text()) for path in records},
            "bytes": {str(path.relative_to(self.run.path)): _digest(path) for path in [*models, *tables]},
            "verdict": json.loads(self.run.verdict.path.read_text()),
        }

    def left_over(self) -> list[str]:
        """What should not be there once it is finished."""
        hidden = [path for path in self.run.path.rglob(".*") if path.name != ".lock" or is_temporary(path)]
        odd = [path for path in self.run.path.rglob("*") if path.suffix in (".checkpoint", ".tmp")]
        return [str(path) for path in (*hidden, *odd)] + [f"process {each}" for each in self.processes()]


def _kill(process: int) -> int:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    return process


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
