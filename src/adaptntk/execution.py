"""Where work runs: in this process, or in several side by side."""

import logging
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def choose_workers(jobs: int, wanted: int | None, device: str) -> int:
    """As many as there are cores: two networks on a core each train faster than one after the other on both.

    One on a GPU, which a single network of this size keeps busy.
    """
    if wanted is not None:
        return max(1, min(wanted, jobs))
    if device.startswith("cuda") or (device == "auto" and _has_gpu()):
        return 1
    return max(1, min(available_cores(), jobs))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def available_cores() -> int:
    """The cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_jobs(function: Callable[[Job], Result], jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, Result]]:
    """Each job and its result, in the order in which they end.

    Workers are fresh processes that share the cores evenly; they end when the process that started them does, however
    that ends. The first failure is raised, and jobs that have not begun are given up.
    """
    if workers <= 1 or len(jobs) <= 1:
        for job in jobs:
            yield job, function(job)
        return
    threads = max(1, available_cores() // workers)
    executor = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(threads, os.getpid(), logging.getLogger("adaptntk").level),
    )
    with executor:
        futures = {executor.submit(function, job): job for job in jobs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def _start_worker(threads: int, parent: int, level: int) -> None:
    import torch

    torch.set_num_threads(threads)
    logger = logging.getLogger("adaptntk")
    logger.handlers[:] = [logging.StreamHandler(sys.stderr)]
    logger.setLevel(level)
    logger.propagate = False
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """An orphan would go on writing to a folder in which somebody else has begun again."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
