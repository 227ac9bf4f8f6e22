"""One experiment in one folder: a plan by preset, jobs side by side, and on again after a kill.

A benchmark is a plan, a kind of job, a summary of what the jobs left on disk, and a table.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from adaptntk.errors import InputError
from adaptntk.execution import choose_workers, run_jobs
from adaptntk.files import locked, make_folder, write_atomically

# Below the package's logger, which workers and the command line show.
log = logging.getLogger("adaptntk.benchmarks")

Plan = TypeVar("Plan")


class Job(Protocol):
    """A piece of work that leaves its results in a folder of its own; interrupted, it goes on from what is there."""

    @property
    def name(self) -> str:
        """What people read while it runs."""

    @property
    def done(self) -> bool:
        """Has it left all its results?"""

    def run(self) -> None:
        """Do what is left to do."""


def find_plan(plans: Mapping[str, Plan], preset: str, seeds: int = 1) -> Plan:
    """The plan of a preset."""
    if preset not in plans:
        raise InputError(f"unknown preset {preset!r}: choose one of {', '.join(plans)}")
    if seeds < 1:
        raise InputError(f"at least one seed is needed, not {seeds}")
    return plans[preset]


@contextmanager
def experiment(output: str | Path, identity: Mapping[str, Any]) -> Iterator[Path]:
    """The folder of an experiment, and nobody else in it for as long as this lasts."""
    folder = make_folder(output)
    with locked(folder):
        check_same_experiment(folder, identity)
        yield folder


def check_same_experiment(folder: Path, identity: Mapping[str, Any]) -> None:
    """Refuse to mix results of different experiments in a folder; the first one to come says what it is for."""
    path = folder / "plan.json"
    text = json.dumps(identity, indent=1, default=str) + "\n"
    if path.exists() and path.read_text() != text:
        raise InputError(f"{folder}: holds results of another experiment (see {path}); choose another folder")
    write_atomically(path, lambda temporary: temporary.write_text(text))


def run_all(work: Sequence[Job], workers: int | None, device: str) -> None:
    """Run every job that is not done, side by side, and say after each how long the others will take."""
    left = [job for job in work if not job.done]
    began = time.perf_counter()
    for done, (job, _) in enumerate(run_jobs(_run, left, choose_workers(len(left), workers, device)), start=1):
        seconds = (time.perf_counter() - began) / done * (len(left) - done)
        log.info("%s is complete: %d of %d, about %d min left", job.name, done, len(left), round(seconds / 60))


def _run(job: Job) -> None:
    job.run()
