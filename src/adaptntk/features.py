"""(potential, structures, sketch) to feature rows, streamed: n x P gradients never exist at once."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from ase import Atoms
from torch import Tensor

from adaptntk.core.sketch import Sketch
from adaptntk.errors import InputError
from adaptntk.memory import DEFAULT_BUDGET, GIBIBYTE
from adaptntk.models.protocol import Potential, energy_gradients, parameter_count
from adaptntk.progress import Progress, silent

NORMALISATIONS = {"none": 0.0, "sqrt_n": 0.5, "per_atom": 1.0}
"""``phi / N^k``: the total energy grows with the number of atoms N, the force error does not."""


@dataclass(frozen=True)
class Estimate:
    """What extracting features will take, measured on a few structures before the work starts."""

    structures: int
    parameters: int
    seconds: float
    memory: int

    def __str__(self) -> str:
        minutes, seconds = divmod(round(self.seconds), 60)
        duration = f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
        return (
            f"{self.structures:,} structures x {self.parameters:,} parameters: about {duration}, "
            f"{self.memory / GIBIBYTE:.2f} GiB"
        )


def extract_features(
    potential: Potential,
    structures: Sequence[Atoms],
    sketch: Sketch,
    normalise: str = "none",
    memory_budget: int = DEFAULT_BUDGET,
    progress: Progress = silent,
) -> Tensor:
    """Projected gradients of the energy over all parameters, one row per structure.

    Gradients are collected up to a part of ``memory_budget``, then projected together: drawing the sketch is
    paid once per collection. Sketched rows are float64; unsketched ones keep the model's precision.
    """
    power = _power(normalise)
    parameters = parameter_count(potential)
    chunk = chunk_size(potential, memory_budget)
    kept: list[Tensor] = []
    waiting: list[Tensor] = []
    for index, atoms in enumerate(progress(structures, "energy gradients", len(structures))):
        gradient = energy_gradients(potential, [potential.graph(atoms)])
        waiting.append(gradient / len(atoms) ** power)
        if len(waiting) == chunk or index == len(structures) - 1:
            kept.append(sketch.apply(torch.cat(waiting)))
            waiting.clear()
    if not kept:
        return torch.zeros(0, sketch.dim(parameters), dtype=torch.float64, device=potential.device)
    return torch.cat(kept)


def chunk_size(potential: Potential, memory_budget: int) -> int:
    """Gradients collected before they are projected: an eighth of the budget, and at most 256."""
    row = parameter_count(potential) * potential.dtype.itemsize
    return int(np.clip(memory_budget // 8 // row, 1, 256))


def estimate_features(
    potential: Potential,
    structures: Sequence[Atoms],
    sketch: Sketch,
    memory_budget: int = DEFAULT_BUDGET,
    probes: int = 3,
) -> Estimate:
    """Time a few gradients and one multiplication, and add up what will be held in memory."""
    parameters = parameter_count(potential)
    sample = [structures[i] for i in np.linspace(0, len(structures) - 1, probes).astype(int)]
    energy_gradients(potential, [potential.graph(sample[0])])  # the first call pays for set-up
    began = time.perf_counter()
    for atoms in sample:
        energy_gradients(potential, [potential.graph(atoms)])
    per_atom = (time.perf_counter() - began) / sum(len(atoms) for atoms in sample)
    seconds = per_atom * sum(len(atoms) for atoms in structures)
    chunk = min(chunk_size(potential, memory_budget), len(structures))
    columns = min(parameters, 4096)
    probe = torch.zeros(chunk, columns, dtype=potential.dtype, device=potential.device)
    if sketch.kind != "none":
        began = time.perf_counter()
        sketch.apply(probe)
        seconds += (time.perf_counter() - began) * parameters / columns * -(-len(structures) // chunk)
    row = parameters * potential.dtype.itemsize
    # Twice: the collected gradients, and the copy that joins them.
    memory = 2 * chunk * row + sketch.memory(parameters)
    memory += len(structures) * (row if sketch.kind == "none" else 8 * sketch.dim(parameters))
    return Estimate(len(structures), parameters, seconds, memory)


def check_budget(estimate: Estimate, memory_budget: int) -> None:
    """Refuse work that needs more memory than allowed, before it starts."""
    if estimate.memory > 1.25 * memory_budget:
        raise InputError(
            f"{estimate} is more than the memory budget of {memory_budget / GIBIBYTE:.1f} GiB: raise --memory, "
            "or use a sketch (--sketch gaussian) instead of full gradients"
        )


def _power(normalise: str) -> float:
    if normalise not in NORMALISATIONS:
        raise InputError(f"unknown normalisation {normalise!r}: choose one of {', '.join(NORMALISATIONS)}")
    return NORMALISATIONS[normalise]
