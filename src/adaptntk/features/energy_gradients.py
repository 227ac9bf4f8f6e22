"""The paper's features: the gradient of the energy over all parameters, projected by a sketch. One row per structure.

Streamed: structures x parameters numbers never exist at once, unless full gradients are asked for.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from ase import Atoms
from torch import Tensor

from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch, Sketch
from adaptntk.core.sketch.registry import make_sketch
from adaptntk.data.structures import Structures, structure_sizes
from adaptntk.features.estimate import Estimate, seconds_of
from adaptntk.features.feature_map import NORMALISATIONS, FeatureMap, size_powers
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.models.protocol import Potential, Predictions, SinglePoint, parameter_count
from adaptntk.progress import Progress, silent

_DRAWN_AGAIN = "the sketch is too large to keep and is drawn again and again: --sketch srht needs no such time"
# More structures at a time are no faster.
_LARGEST_BATCH = 32


@dataclass(frozen=True)
class EnergyGradients(FeatureMap):
    """``S dE/dtheta / N^k``.

    Args:
        sketch: the projection; `NoSketch()` keeps the full gradient, in the model's precision.
        normalise: which power k of the number of atoms; see `NORMALISATIONS`.
    """

    sketch: Sketch = field(default_factory=GaussianSketch)
    normalise: str = "none"
    name: ClassVar[str] = "energy"

    @property
    def sketched(self) -> bool:
        """Are the gradients projected at all?"""
        return self.sketch.kind != "none"

    def width(self, potential: Potential) -> int:
        return self.sketch.dim(parameter_count(potential))

    def extract(
        self,
        potential: Potential,
        structures: Structures,
        memory_budget: int = DEFAULT_BUDGET,
        progress: Progress = silent,
    ) -> Tensor:
        """Gradients of batches of structures of like size, collected up to a part of the budget, projected together.

        A product with many rows runs at the speed of the processor instead of its memory, and a sketch that is too
        large to keep is drawn once per collection. Sketched rows are float64.
        """
        return self._extract(potential, structures, memory_budget, progress, lambda _, g: potential.energy_gradients(g))

    def extract_and_predict(
        self,
        potential: Potential,
        structures: Structures,
        batch_size: int = 16,
        memory_budget: int = DEFAULT_BUDGET,
        progress: Progress = silent,
    ) -> tuple[Tensor, Predictions]:
        found: dict[int, tuple[float, Any]] = {}

        def differentiate(indices: list[int], graphs: list[Any]) -> Tensor:
            rows, predicted = potential.gradients_and_predictions(graphs)
            if predicted is not None:
                found.update(zip(indices, zip(predicted.energies, predicted.forces, strict=True), strict=True))
            return rows

        blocks = self._extract(potential, structures, memory_budget, progress, differentiate)
        if len(found) < len(structures):
            return blocks, potential.predict(structures, batch_size, progress)
        energies, forces = zip(*(found[index] for index in range(len(structures))), strict=True)
        return blocks, Predictions(np.array(energies), list(forces))

    def _extract(
        self,
        potential: Potential,
        structures: Structures,
        memory_budget: int,
        progress: Progress,
        differentiate: Callable[[list[int], list[Any]], Tensor],
    ) -> Tensor:
        count, device, dtype = len(structures), potential.device, potential.dtype
        row_dtype = torch.float64 if self.sketched else dtype
        rows = torch.empty(count, self.width(potential), dtype=row_dtype, device=device)
        chunk = self._chunk_size(potential, memory_budget)
        collected = torch.empty(min(chunk, count), parameter_count(potential), dtype=dtype, device=device)
        scales = size_powers(structures, NORMALISATIONS[self.normalise])
        waiting: list[int] = []

        def project() -> None:
            rows[torch.tensor(waiting, device=device)] = self.sketch.apply(collected[: len(waiting)])
            waiting.clear()

        for batch in _batches(potential, structures, chunk, memory_budget, progress):
            if len(waiting) + len(batch) > chunk:
                project()
            indices, graphs = (list(part) for part in zip(*batch, strict=True))
            scale = torch.tensor(scales[indices], dtype=dtype, device=device)
            place = collected[len(waiting) : len(waiting) + len(batch)]
            torch.div(differentiate(indices, graphs), scale[:, None], out=place)
            waiting += indices
        if waiting:
            project()
        return rows[:, None]

    def unsketched(self) -> "EnergyGradients | None":
        """The same without a projection; None if there is none."""
        return EnergyGradients(NoSketch(), self.normalise) if self.sketched else None

    def project(self, full: Tensor) -> Tensor:
        """Blocks of this map from those of the `unsketched` one."""
        return self.sketch.apply(full[:, 0])[:, None]

    def observe(self, potential: Potential, atoms: Atoms) -> tuple[SinglePoint, Tensor]:
        point = potential.single_point(atoms, gradient=True)
        assert point.gradient is not None
        return point, self.sketch.apply(point.gradient / float(len(atoms)) ** NORMALISATIONS[self.normalise])

    def estimate(self, potential: Potential, structures: Structures, memory_budget: int, kept: bool = True) -> Estimate:
        """Time a few gradients and one multiplication, and add up what will be held in memory."""
        parameters = parameter_count(potential)
        sample = [structures[i] for i in np.linspace(0, len(structures) - 1, min(len(structures), 8)).astype(int)]
        potential.energy_gradients([potential.graph(sample[0])])  # the first call pays for set-up

        def differentiate() -> None:
            for batch in _batches(potential, sample, len(sample), memory_budget, silent):
                potential.energy_gradients([graph for _, graph in batch])

        seconds = seconds_of(differentiate, potential.device) / int(structure_sizes(sample).sum())
        seconds *= int(structure_sizes(structures).sum())
        chunk = min(self._chunk_size(potential, memory_budget), len(structures))
        row = parameters * potential.dtype.itemsize
        memory = chunk * row + self.sketch.memory(parameters)
        memory += (len(structures) if kept else chunk) * (8 * self.width(potential) if self.sketched else row)
        advice = "raise --memory"
        if self.sketched:
            seconds += self._projection_seconds(potential, chunk, -(-len(structures) // chunk))
            advice += ", or keep the features on disk with --store" if kept else ""
        else:
            advice += ", or use --sketch gaussian"
        remark = None if self.sketch.fits(parameters) else _DRAWN_AGAIN
        return Estimate(len(structures), parameters, seconds, memory, advice, remark)

    def spec(self, potential: Potential) -> dict[str, Any]:
        sketch = self.sketch.spec(parameter_count(potential))
        return {"map": self.name, "normalise": self.normalise, "sketch": sketch}

    def summary(self, potential: Potential) -> str:
        if not self.sketched:
            return "full"
        remark = "" if self.sketch.kind == "gaussian" else f" by {self.sketch.kind} (the theorem is for gaussian)"
        return f"sketched to {self.width(potential)}{remark}"

    @classmethod
    def restore(cls, spec: dict[str, Any], memory_budget: int = DEFAULT_BUDGET) -> "EnergyGradients":
        sketch = spec["sketch"]
        return cls(make_sketch(sketch["kind"], sketch["dim"], sketch["seed"], memory_budget // 2), spec["normalise"])

    def _chunk_size(self, potential: Potential, memory_budget: int) -> int:
        """How many gradients, at most 256, are collected before they are projected, in an eighth of the budget.

        In half of it when the sketch is too large to be kept, since it is then drawn anew for each collection.
        """
        parameters = parameter_count(potential)
        share = memory_budget // (8 if self.sketch.fits(parameters) else 2)
        return int(np.clip(share // (parameters * potential.dtype.itemsize), 1, 256))

    def _projection_seconds(self, potential: Potential, chunk: int, chunks: int) -> float:
        """Time to project so many collections: the first time S is drawn, later only if it could not be kept."""
        parameters = parameter_count(potential)
        # Structured sketches have costs that do not grow with the columns: a probe must be wide to show the others.
        columns = min(parameters, 4096 if self.sketch.kind == "gaussian" else 2**18)
        # A sketch of its own: the probe's blocks are of no use to the work itself.
        trial = make_sketch(self.sketch.kind, self.width(potential), self.sketch.seed)
        probe = torch.zeros(chunk, columns, dtype=potential.dtype, device=potential.device)
        first, again = (seconds_of(lambda: trial.apply(probe), potential.device) for _ in range(2))
        later = again if self.sketch.fits(parameters) else first
        return (first + later * (chunks - 1)) * parameters / columns


def _batches(
    potential: Potential, structures: Structures, most: int, memory_budget: int, progress: Progress
) -> Iterator[list[tuple[int, Any]]]:
    """(index, graph) of structures to be differentiated together: of like size, so that little is padded."""
    order = np.argsort(structure_sizes(structures), kind="stable").tolist()
    batch: list[tuple[int, Any]] = []
    largest = 0
    for index in progress(order, "energy gradients", len(order)):
        graph = potential.graph(structures[index])
        needed = potential.gradient_memory(graph)
        # All are padded to the largest of them.
        largest = max(largest, needed)
        if batch and ((len(batch) + 1) * largest > memory_budget // 8 or len(batch) == min(most, _LARGEST_BATCH)):
            yield batch
            batch, largest = [], needed
        batch.append((index, graph))
    if batch:
        yield batch
