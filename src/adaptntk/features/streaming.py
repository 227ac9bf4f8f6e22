"""Gradients of many graphs in batches, collected and projected: all of them never exist at once."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from adaptntk.core.sketch.gaussian import Sketch
from adaptntk.core.sketch.registry import make_sketch
from adaptntk.features.estimate import seconds_of
from adaptntk.models.protocol import Potential, parameter_count

Differentiate = Callable[[list[int], list[Any]], Tensor]
"""Numbers of rows, and a graph for each, to gradients of their energies."""

# More graphs at a time are no faster.
_LARGEST_BATCH = 32


class Task(NamedTuple):
    """One row: the gradient of a graph, or the first one's less the second one's; divided by ``divisor``."""

    row: int
    graphs: tuple[Any, ...]
    divisor: float


@dataclass(frozen=True)
class Streaming:
    """How gradients become rows of features.

    Gradients of batches are collected up to a part of the budget, and projected together: a product with many rows runs
    at the speed of the processor instead of its memory, and a sketch that is too large to keep is drawn once per
    collection. Sketched rows are float64, others have the potential's precision.
    """

    potential: Potential
    sketch: Sketch
    memory_budget: int

    @cached_property
    def parameters(self) -> int:
        return parameter_count(self.potential)

    @property
    def row_dtype(self) -> torch.dtype:
        return self.potential.dtype if self.sketch.kind == "none" else torch.float64

    @property
    def row_bytes(self) -> int:
        """Of a row of features."""
        return self.sketch.dim(self.parameters) * self.row_dtype.itemsize

    @property
    def gradient_bytes(self) -> int:
        """Of a gradient that is not projected yet."""
        return self.parameters * self.potential.dtype.itemsize

    @property
    def collection(self) -> int:
        """How many gradients, at most 256, are collected before they are projected, in an eighth of the budget.

        In half of it when the sketch is too large to be kept, since it is then drawn anew for each collection.
        """
        share = self.memory_budget // (8 if self.sketch.fits(self.parameters) else 2)
        return int(np.clip(share // self.gradient_bytes, 1, 256))

    def rows(self, count: int, tasks: Iterable[Task], differentiate: Differentiate) -> Tensor:
        """So many rows of features, (count, width), each made by one of the tasks; zero where there is none."""
        device, dtype = self.potential.device, self.potential.dtype
        rows = torch.zeros(count, self.sketch.dim(self.parameters), dtype=self.row_dtype, device=device)
        collected = torch.empty(min(self.collection, count), self.parameters, dtype=dtype, device=device)
        waiting: list[int] = []

        def project() -> None:
            rows[torch.tensor(waiting, device=device)] = self.sketch.apply(collected[: len(waiting)])
            waiting.clear()

        for batch in self.batches(tasks):
            if len(waiting) + len(batch) > len(collected):
                project()
            place = collected[len(waiting) : len(waiting) + len(batch)]
            numbers = [task.row for task in batch]
            first, *second = (list(graphs) for graphs in zip(*(task.graphs for task in batch), strict=True))
            place.copy_(differentiate(numbers, first))
            for graphs in second:  # in place, and before anything is rounded: nearly equal numbers are subtracted
                place.sub_(differentiate(numbers, graphs))
            place.div_(torch.tensor([task.divisor for task in batch], dtype=dtype, device=device)[:, None])
            waiting += numbers
        if waiting:
            project()
        return rows

    def batches(self, tasks: Iterable[Task]) -> Iterator[list[Task]]:
        """Tasks done together, as many as fit; all are padded to the largest, so neighbours should be of like size."""
        batch: list[Task] = []
        largest, most = 0, min(self.collection, _LARGEST_BATCH)
        for task in tasks:
            needed = max(self.potential.gradient_memory(graph) for graph in task.graphs)
            largest = max(largest, needed)
            if batch and (len(batch) == most or (len(batch) + 1) * largest > self.memory_budget // 8):
                yield batch
                batch, largest = [], needed
            batch.append(task)
        if batch:
            yield batch

    def projection_seconds(self, collection: int, collections: int) -> float:
        """Time to project so many collections: the first time S is drawn, later only if it could not be kept."""
        # Structured sketches have costs that do not grow with the columns: a probe must be wide to show the others.
        columns = min(self.parameters, 4096 if self.sketch.kind == "gaussian" else 2**18)
        # A sketch of its own: the probe's blocks are of no use to the work itself.
        trial = make_sketch(self.sketch.kind, self.sketch.dim(self.parameters), self.sketch.seed)
        probe = torch.zeros(collection, columns, dtype=self.potential.dtype, device=self.potential.device)
        first, again = (seconds_of(lambda: trial.apply(probe), self.potential.device) for _ in range(2))
        later = again if self.sketch.fits(self.parameters) else first
        return (first + later * (collections - 1)) * self.parameters / columns
