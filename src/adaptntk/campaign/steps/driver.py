"""What every step needs: the run directory, the configuration, and an executor that does the work."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ase import Atoms

from adaptntk.campaign.config import Campaign
from adaptntk.campaign.layout import RoundDirectory, RunDirectory, read_given
from adaptntk.data.labels import without_isolated
from adaptntk.data.structures import structure_hash
from adaptntk.execution import run_limited
from adaptntk.labelers.process import Request
from adaptntk.progress import Progress, silent

# Structures from which the random labels are drawn, for each one wanted: what fails is replaced.
SPARE = 5
Timer = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True)
class Driver:
    """Sends work to an executor, and shows how it gets on."""

    run: RunDirectory
    config: Campaign
    executor: Executor
    progress: Progress = silent
    streak: list[Request] = field(default_factory=list)  # what could not be labelled since the last label

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """One piece of work."""
        return self._submit(function, *arguments).result()

    def map(self, function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], what: str) -> list[Any]:
        """Many, side by side; results in the order of the jobs."""
        return self._finish([self._submit(function, *arguments) for arguments in jobs], what)

    def seed(self, number: int, what: int) -> int:
        """Another seed for everything that is random."""
        return int(np.random.SeedSequence([self.config.seed, number, what]).generate_state(1)[0])

    def rng(self, number: int, what: int) -> np.random.Generator:
        """A generator of its own for everything that is drawn or shuffled."""
        return np.random.default_rng([self.config.seed, number, what])

    def test_structures(self) -> list[Atoms]:
        """Labelled structures that the user set apart; often there are none."""
        test, start = self.config.test, self.config.start
        return [] if test is None else [*without_isolated(read_given(start, test, labelled=True))]

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        return self.executor.submit(run_limited, self.config.threads, function, *arguments)

    def _finish(self, futures: Sequence[Future[Any]], what: str) -> list[Any]:
        for future in self.progress(as_completed(futures), what, len(futures)):
            future.result()
        return [future.result() for future in futures]


@contextmanager
def timed(here: RoundDirectory) -> Iterator[Timer]:
    """Sums the time of steps that come in turns, and writes it down once all of it is complete."""
    seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def part_of(step: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        seconds[step] += time.perf_counter() - began

    yield part_of
    here.add_seconds(seconds)


def marked(atoms: Atoms) -> Atoms:
    """The structure with its hash."""
    atoms.info["hash"] = structure_hash(atoms)
    return atoms
