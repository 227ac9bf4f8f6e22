"""Where work runs: in this process, in several side by side, or on a cluster; one interface for all."""

import atexit
import gc
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
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


_QUIET = "ignore:resource_tracker:UserWarning"
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


def _track_quietly() -> None:
    """Start the process that removes the semaphores of those that were killed: it need not say so.

    It lets signals through when it is started, so that it has to be there before others are.
    """
    if _QUIET not in sys.warnoptions:
        sys.warnoptions.append(_QUIET)
    resource_tracker.ensure_running()


@contextmanager
def deaf() -> Iterator[None]:
    """Processes and threads that are started meanwhile do not hear when all are interrupted or told to end.

    Whoever started them hears it, and ends them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class LocalExecutor(ProcessPoolExecutor):
    """Fresh processes that end when the process that started them does, however that ends."""

    def __init__(self, workers: int, threads: int) -> None:
        _track_quietly()
        told = threads, os.getpid(), logging.getLogger("adaptntk").level
        super().__init__(workers, multiprocessing.get_context("spawn"), _start_worker, told)

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        with deaf():
            return super().submit(function, *args, **kwargs)

    def kill(self) -> None:
        """End the workers in the middle of their work."""
        for process in list((self._processes or {}).values()):  # from Python 3.14 on there is kill_workers()
            process.kill()


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
        executor = LocalExecutor(count, threads)
        try:
            yield executor
        except BaseException:
            executor.kill()  # nobody waits for their results any more
            raise
        finally:
            executor.shutdown(cancel_futures=True)
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
        # On loopback, without a web page. One thread each: labels and trainings hold on to their process. What the
        # workers say of their own end is not shown: errors of jobs are raised here.
        how = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None, "silence_logs": "CRITICAL"}
        _track_quietly()
        with ExitStack() as opened:
            with deaf():
                cluster = opened.enter_context(LocalCluster(n_workers=workers, **how))
                client = opened.enter_context(Client(cluster))
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
    # Millions of objects that nobody needs any more would be searched for cycles at the end, for seconds.
    atexit.register(gc.freeze)
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # no word about caches from every worker
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """An orphan would go on writing to a folder in which somebody else has begun again."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
