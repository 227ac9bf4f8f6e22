"""Labels are computed in a process of their own, which may hang, crash or outlive whoever asked.

The process writes a label to disk itself, before anybody is told: a label that was paid for is never lost, even if
the campaign was killed meanwhile. It holds a lock on the structure while it works, so that whoever asks for the
same label later waits for it instead of paying again.
"""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

import numpy as np
from ase import Atoms

from adaptntk.data.labels import STRESS
from adaptntk.data.structures import ENERGY, FORCES, structure_hash, write_structures
from adaptntk.errors import AdaptNTKError, InputError, require
from adaptntk.execution import deaf
from adaptntk.files import locked, make_folder
from adaptntk.labelers.labeler import Labeler, LabelerSpec, check_geometry, check_label
from adaptntk.labelers.record import Attempt, FailureRecord, LabelFiles, RecordFile, write_label
from adaptntk.labelers.registry import build_labeler

# Signals by which somebody ends a process, whatever structure it is at work on.
ENDED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Seconds that a labeler which has nothing to do may take to leave; one that has finishes its label alone.
LONGEST_GOODBYE = 0.5
TIME_LIMIT = "the time limit of {:g} s was exceeded"
# Seconds that a labeler may take to start up, before its first label.
LONGEST_START = 60.0
# One label at a time in each, on one core: small calculations are only slowed down by more threads, and sums over
# threads differ from run to run.
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Request:
    """One structure to be labelled, with its provenance in ``info``, for a run directory."""

    spec: LabelerSpec
    atoms: Atoms
    folder: Path

    @property
    def files(self) -> LabelFiles:
        return LabelFiles(self.folder)

    @property
    def label_file(self) -> Path:
        return self.files.label(structure_hash(self.atoms))

    @property
    def failure(self) -> RecordFile[FailureRecord]:
        return self.files.failure(structure_hash(self.atoms))

    @property
    def settled(self) -> bool:
        """Whether there is a label, or the proof that there is none."""
        return self.label_file.exists() or self.failure.path.exists()


def label_structure(request: Request) -> bool:
    """Label a structure, or put it into quarantine with its story; whether there is a label now.

    Runs in any worker of any executor. What is on disk already is not done again.
    """
    make_folder(request.files.labels)
    attempts: list[Attempt] = []
    while not request.settled:
        began = time.perf_counter()
        error = _process_of_this_thread(request.spec).label(request)
        if isinstance(error, InputError):
            raise error  # nothing is wrong with the structure: the disk is full or may not be written to
        if error is None:
            break
        attempts.append(Attempt(error, round(time.perf_counter() - began, 3)))
        if len(attempts) >= request.spec.attempts or error == TIME_LIMIT.format(request.spec.time_limit):
            make_folder(request.files.quarantine)
            write_structures(request.failure.structures, [request.atoms])
            origin = [request.atoms.info.get(key) for key in ("round", "role", "chosen_by")]
            request.failure.write(FailureRecord(structure_hash(request.atoms), tuple(attempts), *origin))
    return request.label_file.exists()


class LabelProcess:
    """A child process with one labeler in it."""

    def __init__(self, spec: LabelerSpec) -> None:
        self.spec = spec
        self.connection, theirs = Pipe()
        with theirs, deaf():
            # A session of its own: an interruption from the keyboard shall not cost a label that is nearly done.
            self.process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=os.environ | THREADS, start_new_session=True,
            )  # fmt: skip
        atexit.register(self.dismiss)

    def label(self, request: Request) -> str | InputError | None:
        """None once the label is on disk, else what went wrong: with the structure, or with the disk."""
        try:
            self.connection.send(request)
            answer: str | InputError | None = self.connection.recv()
            return answer
        except (EOFError, ConnectionError):
            code = self.process.wait()
        self.end()
        if code == -signal.SIGALRM:
            return TIME_LIMIT.format(self.spec.time_limit)
        if -code in ENDED_BY:
            return _ended(-code)
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"the process of the labeler died ({how})"

    def dismiss(self) -> None:
        """Tell the process that nobody will ask any more, and wait a moment for it to leave."""
        self.connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=LONGEST_GOODBYE)

    def end(self) -> None:
        """End the process and all that it started, unless that was done before."""
        if not self.connection.closed:
            self.connection.close()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            atexit.unregister(self.dismiss)


_local = threading.local()


def _process_of_this_thread(spec: LabelerSpec) -> LabelProcess:
    """Started when first needed, and again after it died."""
    current: LabelProcess | None = getattr(_local, "process", None)
    if current is not None and current.spec == spec and current.process.poll() is None:
        return current
    if current is not None:
        current.end()
    _local.process = LabelProcess(spec)
    return _local.process


_CHILD = """
import sys
from multiprocessing.connection import Connection
from adaptntk.labelers.process import serve
serve(Connection(int(sys.argv[1])))
"""


def serve(connection: Connection) -> None:
    """What the child process does: label whatever it is asked to, until nobody asks any more."""
    labelers: dict[str, Labeler] = {}
    ended: list[int] = []
    for number in ENDED_BY:
        # A label that is being computed is finished; the programs of a labeler hear what they are told.
        signal.signal(number, lambda number, _: ended.append(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDED_BY)
    while True:
        try:
            request: Request = connection.recv()
        except (EOFError, ConnectionError):
            return
        ended.clear()
        try:
            answer: str | InputError | None = _label_and_write(request, labelers)
        except (InputError, OSError) as error:
            answer = InputError(str(error))
        if answer is not None and ended:
            answer = _ended(ended[-1])
        with contextlib.suppress(ConnectionError):
            connection.send(answer)


def _ended(number: int) -> InputError:
    """Nothing is wrong with the structure."""
    return InputError(f"the labeler was ended from outside ({signal.Signals(number).name}); go on with --resume")


def _label_and_write(request: Request, labelers: dict[str, Labeler]) -> str | None:
    # Whoever else is at work on this structure is waited for.
    with locked(request.files.locks, wait=True, name=request.label_file.stem):
        if request.label_file.exists():
            return None
        with _reserved(request):
            try:
                labelled = _label(request, labelers)
            except Exception as error:  # whatever a calculator raises is the story of this label
                kind = "" if isinstance(error, AdaptNTKError) else f"{type(error).__name__}: "  # ours speak plainly
                return " ".join(f"{kind}{error}".split())[:2000]
        write_label(request.label_file, labelled)
        return None


def _label(request: Request, labelers: dict[str, Labeler]) -> Atoms:
    check_geometry(request.atoms, request.spec)
    if "labeler" not in labelers:
        with _time_limit(max(request.spec.time_limit, LONGEST_START)):
            labelers["labeler"] = build_labeler(request.spec)
    began = time.perf_counter()
    with _time_limit(request.spec.time_limit):
        energy, forces = labelers["labeler"].label(request.atoms)
    check_label(request.atoms, energy, forces, request.spec)
    labelled = request.atoms.copy()
    labelled.info.pop(STRESS, None)  # of the structure that this one was made from
    labelled.info |= {ENERGY: float(energy), "label_seconds": round(time.perf_counter() - began, 4)}
    labelled.arrays[FORCES] = np.asarray(forces, dtype=float)
    return labelled


@contextlib.contextmanager
def _reserved(request: Request) -> Iterator[None]:
    """Keep room on the disk for the label while it is computed: one that cannot be kept should not be paid for."""
    with tempfile.TemporaryFile(dir=request.files.labels) as file:
        file.write(bytes(1000 + 200 * len(request.atoms)))
        file.flush()
        os.fsync(file.fileno())
        yield


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """The system ends this process after so long, even in compiled code that never comes back."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def check_spec(spec: LabelerSpec) -> None:
    """Refuse a labeler that cannot be built, before anything is computed."""
    sensible = spec.time_limit > 0 and spec.attempts >= 1
    require(sensible, "a labeler needs a positive time limit and at least one attempt")
    build_labeler(spec)
