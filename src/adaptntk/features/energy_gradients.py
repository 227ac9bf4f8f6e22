"""(potential, structures, sketch) to feature rows, streamed: n x P gradients never exist at once."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from ase import Atoms
from torch import Tensor

from adaptntk.core.sketch.gaussian import Sketch
from adaptntk.core.sketch.registry import make_sketch
from adaptntk.data.structure_file import structure_sizes
from adaptntk.errors import InputError
from adaptntk.memory import DEFAULT_BUDGET, GIBIBYTE
from adaptntk.models.protocol import Potential, parameter_count
from adaptntk.progress import Progress, silent

NORMALISATIONS = {"none": 0.0, "sqrt_n": 0.5, "per_atom": 1.0}
"""``phi / N^k``: the total energy grows with the number of atoms N, the force error does not."""

# More structures at a time are no faster.
_LARGEST_BATCH = 32


@dataclass(frozen=True)
class Estimate:
    """What extracting features will take, measured on a few structures before the work starts."""

    structures: int
    parameters: int
    seconds: float
    memory: int
    sketched: bool
    kept: bool = True

    def __str__(self) -> str:
        minutes, seconds = divmod(round(self.seconds), 60)
        duration = f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
        return (
            f"{self.structures:,} structures x {self.parameters:,} parameters: about {duration}, "
            f"{self.memory / GIBIBYTE:.2f} GiB"
        )

    def check(self, memory_budget: int) -> None:
        """Refuse work that needs more memory than allowed, before it starts."""
        if self.memory > 1.1 * memory_budget:
            advice = "raise --memory"
            if not self.sketched:
                advice += ", or use --sketch gaussian"
            elif self.kept:
                advice += ", or keep the features on disk with --store"
            raise InputError(f"{self} is more than the memory budget of {memory_budget / GIBIBYTE:.2g} GiB: {advice}")


def extract_features(
    potential: Potential,
    structures: Sequence[Atoms],
    sketch: Sketch,
    normalise: str = "none",
    memory_budget: int = DEFAULT_BUDGET,
    progress: Progress = silent,
) -> Tensor:
    """Projected gradients of the energy over all parameters, one row per structure.

    Gradients are computed for batches of structures of like size, collected up to a part of ``memory_budget``, and
    then projected together: a product with many rows runs at the speed of the processor instead of its memory,
    and a sketch that is too large to keep is drawn once per collection. Sketched rows are float64; unsketched
    ones keep the model's precision.
    """
    power = _power(normalise)
    parameters = parameter_count(potential)
    device = potential.device
    row_dtype = potential.dtype if sketch.kind == "none" else torch.float64
    rows = torch.empty(len(structures), sketch.dim(parameters), dtype=row_dtype, device=device)
    chunk = chunk_size(potential, sketch, memory_budget)
    collected = torch.empty(min(chunk, len(structures)), parameters, dtype=potential.dtype, device=device)
    waiting: list[int] = []
    sizes = structure_sizes(structures).astype(float)

    def project() -> None:
        rows[torch.tensor(waiting, device=device)] = sketch.apply(collected[: len(waiting)])
        waiting.clear()

    for batch in _batches(potential, structures, chunk, memory_budget, progress):
        if len(waiting) + len(batch) > chunk:
            project()
        scale = torch.tensor(sizes[[index for index, _ in batch]] ** power, dtype=potential.dtype, device=device)
        gradients = potential.energy_gradients([graph for _, graph in batch])
        torch.div(gradients, scale[:, None], out=collected[len(waiting) : len(waiting) + len(batch)])
        waiting += [index for index, _ in batch]
    if waiting:
        project()
    return rows


def project_gradient(gradient: Tensor, atoms: int, sketch: Sketch, normalise: str) -> Tensor:
    """The feature row of one structure whose gradient (1 x P) is known, as `extract_features` makes it."""
    return sketch.apply(gradient / float(atoms) ** _power(normalise))


def _batches(
    potential: Potential, structures: Sequence[Atoms], most: int, memory_budget: int, progress: Progress
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


def chunk_size(potential: Potential, sketch: Sketch, memory_budget: int) -> int:
    """How many gradients are collected before they are projected, at most 256.

    They get an eighth of the budget; a half when the sketch is too large to be kept, since it is then drawn
    anew for each collection.
    """
    parameters = parameter_count(potential)
    share = memory_budget // 8 if sketch.fits(parameters) else memory_budget // 2
    return int(np.clip(share // (parameters * potential.dtype.itemsize), 1, 256))


def estimate_features(
    potential: Potential,
    structures: Sequence[Atoms],
    sketch: Sketch,
    memory_budget: int = DEFAULT_BUDGET,
    full_rows: bool = False,
    kept: bool = True,
) -> Estimate:
    """Time a few gradients and one multiplication, and add up what will be held in memory.

    Args:
        full_rows: whether full gradients are kept besides the sketched ones.
        kept: whether the rows of all structures are held at once, rather than in a store on disk.
    """
    parameters = parameter_count(potential)
    sample = [structures[i] for i in np.linspace(0, len(structures) - 1, min(len(structures), 8)).astype(int)]
    potential.energy_gradients([potential.graph(sample[0])])  # the first call pays for set-up

    def differentiate() -> None:
        for batch in _batches(potential, sample, len(sample), memory_budget, silent):
            potential.energy_gradients([graph for _, graph in batch])

    gradients = _seconds(differentiate, potential.device)
    seconds = gradients / int(structure_sizes(sample).sum()) * int(structure_sizes(structures).sum())
    chunk = min(chunk_size(potential, sketch, memory_budget), len(structures))
    row = parameters * potential.dtype.itemsize
    sketched = sketch.kind != "none"
    if sketched:
        seconds += _projection_seconds(potential, sketch, chunk, -(-len(structures) // chunk))
    memory = chunk * row + sketch.memory(parameters)
    memory += (len(structures) if kept else chunk) * (
        (8 * sketch.dim(parameters) if sketched else 0) + (row if full_rows or not sketched else 0)
    )
    return Estimate(len(structures), parameters, seconds, memory, sketched, kept)


def _projection_seconds(potential: Potential, sketch: Sketch, chunk: int, chunks: int) -> float:
    """Time to project so many collections: the first time S is drawn, later only if it could not be kept."""
    parameters = parameter_count(potential)
    # Structured sketches have costs that do not grow with the columns: a probe must be wide to show the others.
    columns = min(parameters, 4096 if sketch.kind == "gaussian" else 2**18)
    # A sketch of its own: the probe's blocks are of no use to the work itself.
    trial = make_sketch(sketch.kind, sketch.dim(parameters), sketch.seed)
    probe = torch.zeros(chunk, columns, dtype=potential.dtype, device=potential.device)
    first, again = (_seconds(lambda: trial.apply(probe), potential.device) for _ in range(2))
    later = again if sketch.fits(parameters) else first
    return (first + later * (chunks - 1)) * parameters / columns


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    def finish() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    finish()
    began = time.perf_counter()
    work()
    finish()
    return time.perf_counter() - began


def _power(normalise: str) -> float:
    if normalise not in NORMALISATIONS:
        raise InputError(f"unknown normalisation {normalise!r}: choose one of {', '.join(NORMALISATIONS)}")
    return NORMALISATIONS[normalise]
