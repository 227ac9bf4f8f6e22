"""Where work runs: in this process, in several side by side, or on a cluster; one interface for all."""

import logging
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from adaptntk.errors import InputError

Job = TypeVar("Job")
Result = TypeVar("Result")


def choose_workers(jobs: int, wanted: int | None, device: str) -> int:
    """As many as there are cores: two networks on a core each train faster than one after the other on both.

    One on a GPU, which a single network of this size keeps busy.
    """
    if wanted is not None:
        return max(1, min(wanted, jobs))
    import torch

    if device.startswith("cuda") or (device == "auto" and torch.cuda.is_available()):
        return 1
    return max(1, min(available_cores(), jobs))


def available_cores() -> int:
    """The cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


EXECUTORS = ("serial", "local", "dask")


class SerialExecutor(Executor):
    """Does the work at once, in this thread."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def check_executor(kind: str, scheduler: str | None = None) -> None:
    """Refuse an unknown name, and a scheduler that would not be used."""
    if kind not in EXECUTORS:
        raise InputError(f"unknown executor {kind!r}: choose one of {', '.join(EXECUTORS)}")
    if scheduler is not None and kind != "dask":
        raise InputError(f"a scheduler belongs to the executor dask, not to {kind}")


@contextmanager
def open_executor(
    kind: str = "local", workers: int | None = None, scheduler: str | None = None, threads: int = 1
) -> Iterator[Executor]:
    """A ``concurrent.futures.Executor`` for as long as this lasts.

    Args:
        kind: ``serial``, ``local`` (processes on this machine) or ``dask``.
        workers: how many; as many as there are cores when not given. A scheduler elsewhere has its own.
        scheduler: address of a running Dask scheduler; a cluster on this machine is made when not given.
        threads: of each worker.
    """
    check_executor(kind, scheduler)
    count = workers or max(1, available_cores() // threads)
    if kind == "serial":
        yield SerialExecutor()
    elif kind == "local":
        # Fresh processes that end when the process that started them does, however that ends.
        told = threads, os.getpid(), logging.getLogger("adaptntk").level
        executor = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _start_worker, told)
        try:
            yield executor
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
    else:
        with _dask_client(scheduler, count) as client:
            yield client.get_executor()


@contextmanager
def _dask_client(scheduler: str | None, workers: int) -> Iterator[Any]:
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise InputError("the executor dask needs the package: pip install adaptntk[dask]") from None
    if scheduler is None:
        # On loopback, without a web page. One thread each: labels and trainings hold on to their process.
        how = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
        with LocalCluster(n_workers=workers, **how) as cluster, Client(cluster) as client:
            yield client
        return
    try:
        client = Client(scheduler, timeout=30)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"no Dask scheduler answers at {scheduler} ({type(error).__name__})") from None
    with client:
        yield client


@contextmanager
def limited_threads(threads: int) -> Iterator[None]:
    """So many threads for torch and numpy: sums over another number of threads differ in their last digits."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads):
            yield
    finally:
        torch.set_num_threads(before)


def run_limited(threads: int, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function with so many threads: what is submitted to an executor, so that all give the same numbers."""
    with limited_threads(threads):
        return function(*arguments)


def run_jobs(function: Callable[[Job], Result], jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, Result]]:
    """Each job and its result, in the order in which they end.

    Workers are fresh processes that share the cores evenly. The first failure is raised, and jobs that have not begun
    are given up.
    """
    if workers <= 1 or len(jobs) <= 1:
        for job in jobs:
            yield job, function(job)
        return
    with open_executor("local", workers, threads=max(1, available_cores() // workers)) as executor:
        futures = {executor.submit(function, job): job for job in jobs}
        for future in as_completed(futures):
            yield futures[future], future.result()


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
