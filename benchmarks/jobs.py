"""What the long comparisons share: their presets, and jobs side by side with the time that is left."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from adaptntk.errors import InputError
from adaptntk.execution import choose_workers, run_jobs

log = logging.getLogger(__name__)

Plan = TypeVar("Plan")
Job = TypeVar("Job")


def find_plan(plans: Mapping[str, Plan], preset: str, seeds: int = 1) -> Plan:
    """The plan of a preset."""
    if preset not in plans:
        raise InputError(f"unknown preset {preset!r}: choose one of {', '.join(plans)}")
    if seeds < 1:
        raise InputError(f"at least one seed is needed, not {seeds}")
    return plans[preset]


def run_all(
    function: Callable[[Job], None], work: Sequence[Job], jobs: int | None, device: str, name: Callable[[Job], str]
) -> None:
    """Run every job and say after each how long the others will take."""
    began = time.perf_counter()
    for done, (job, _) in enumerate(run_jobs(function, work, choose_workers(len(work), jobs, device)), start=1):
        left = (time.perf_counter() - began) / done * (len(work) - done)
        log.info("%s is complete: %d of %d, about %d min left", name(job), done, len(work), round(left / 60))
