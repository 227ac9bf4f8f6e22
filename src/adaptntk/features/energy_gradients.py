"""The paper's features: the gradient of the energy over all parameters, projected by a sketch. One row per structure.

Beyond it, if wanted, rows of the forces and of the stress of labelled structures.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from ase import Atoms
from torch import Tensor

from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch, Sketch
from adaptntk.core.sketch.registry import make_sketch
from adaptntk.data.structures import Structures, structure_sizes
from adaptntk.errors import InputError
from adaptntk.features.displacements import displaced, step, strain_step, strained
from adaptntk.features.estimate import Estimate, seconds_of
from adaptntk.features.feature_map import NORMALISATIONS, FeatureMap, size_powers
from adaptntk.features.streaming import Differentiate, Streaming, Task
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.models.protocol import Potential, Predictions, SinglePoint, parameter_count
from adaptntk.progress import Progress, counted, silent

_DRAWN_AGAIN = "the sketch is too large to keep and is drawn again and again: --sketch srht needs no such time"


@dataclass(frozen=True)
class EnergyGradients(FeatureMap):
    """``S dE/dtheta / N^k``.

    Args:
        sketch: the projection; `NoSketch()` keeps the full gradient, in the model's precision.
        normalise: which power k of the number of atoms; see `NORMALISATIONS`.
        force_rows: K, how many random directions of the forces are learnt from a label (`further`).
        strain_rows: how many random strains of the cell, from a label with a cell in all directions.
    """

    sketch: Sketch = field(default_factory=GaussianSketch)
    normalise: str = "none"
    force_rows: int = 0
    strain_rows: int = 0
    name: ClassVar[str] = "energy"

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind, count in (("force", self.force_rows), ("strain", self.strain_rows)):
            if count < 0:
                raise InputError(f"the number of {kind} rows must not be negative, but is {count}")

    @property
    def further_rows(self) -> int:  # type: ignore[override]
        return self.force_rows + self.strain_rows

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
        differentiate: Differentiate,
    ) -> Tensor:
        tasks = self._energy_tasks(potential, structures, progress)
        return Streaming(potential, self.sketch, memory_budget).rows(len(structures), tasks, differentiate)[:, None]

    def further(
        self,
        potential: Potential,
        structures: Structures,
        memory_budget: int = DEFAULT_BUDGET,
        progress: Progress = silent,
    ) -> Tensor:
        """Beside energy rows per atom ``S d(v.F)/dtheta / sqrt(3 N K)`` of K random directions v of all atoms.

        And ``S d(e:V/N)/dtheta / sqrt(9 K)`` of K random strains e, zero where there is no cell in all directions.
        """
        if not self.further_rows:
            return super().further(potential, structures)
        count = len(structures) * self.further_rows
        tasks = self._further_tasks(potential, structures, progress)
        streaming = Streaming(potential, self.sketch, memory_budget)
        rows = streaming.rows(count, tasks, lambda _, graphs: potential.energy_gradients(graphs))
        return rows.view(len(structures), self.further_rows, rows.shape[1])

    def _energy_tasks(self, potential: Potential, structures: Structures, progress: Progress) -> Iterator[Task]:
        divisors = size_powers(structures, NORMALISATIONS[self.normalise])
        for index in progress(_by_size(structures), "energy gradients", len(structures)):
            yield Task(index, (potential.graph(structures[index]),), float(divisors[index]))

    def _further_tasks(self, potential: Potential, structures: Structures, progress: Progress) -> Iterator[Task]:
        # 1 / sqrt(3 N K), times N^(1 - k) as the energy per atom: a force component and that energy count alike, and so
        # does a component of the virial per atom.
        power, dtype = NORMALISATIONS[self.normalise], potential.dtype
        of_forces = 2 * step(dtype) * np.sqrt(3 * self.force_rows) * size_powers(structures, power - 0.5)
        of_strains = 2 * strain_step(dtype) * np.sqrt(9 * self.strain_rows) * size_powers(structures, power)
        for index in progress(_by_size(structures), "force rows", len(structures)):
            atoms, row = structures[index], index * self.further_rows
            for number, pair in enumerate(displaced(atoms, self.force_rows, dtype), row):
                yield Task(number, tuple(map(potential.graph, pair)), float(of_forces[index]))
            if atoms.pbc.all():
                for number, pair in enumerate(strained(atoms, self.strain_rows, dtype), row + self.force_rows):
                    yield Task(number, tuple(map(potential.graph, pair)), float(of_strains[index]))

    def unsketched(self) -> "EnergyGradients | None":
        """The same without a projection; None if there is none."""
        return replace(self, sketch=NoSketch()) if self.sketched else None

    def project(self, full: Tensor) -> Tensor:
        """Blocks of this map from those of the `unsketched` one; further rows as well."""
        return self.sketch.apply(full.flatten(0, 1)).unflatten(0, full.shape[:2])

    def observe(self, potential: Potential, atoms: Atoms) -> tuple[SinglePoint, Tensor]:
        point = potential.single_point(atoms, gradient=True)
        assert point.gradient is not None
        return point, self.sketch.apply(point.gradient / float(len(atoms)) ** NORMALISATIONS[self.normalise])

    def estimate(
        self,
        potential: Potential,
        structures: Structures,
        memory_budget: int,
        kept: bool = True,
        taught: Structures = (),
    ) -> Estimate:
        """Time a few gradients and one multiplication, and add up what will be held in memory."""
        sample = [structures[i] for i in np.linspace(0, len(structures) - 1, min(len(structures), 8)).astype(int)]
        potential.energy_gradients([potential.graph(sample[0])])  # the first call pays for set-up
        streaming, further = Streaming(potential, self.sketch, memory_budget), len(taught) * self.further_rows
        parameters, collection = streaming.parameters, min(streaming.collection, max(len(structures), further))

        def differentiate() -> None:
            for batch in streaming.batches(self._energy_tasks(potential, sample, silent)):
                potential.energy_gradients([task.graphs[0] for task in batch])

        seconds = seconds_of(differentiate, potential.device) / int(structure_sizes(sample).sum())
        # A further row is made of two gradients.
        seconds *= int(structure_sizes(structures).sum()) + 2 * self.further_rows * int(structure_sizes(taught).sum())
        held = (len(structures) if kept else min(collection, len(structures))) + further
        memory = collection * streaming.gradient_bytes + self.sketch.memory(parameters) + held * streaming.row_bytes
        advice = "raise --memory" + (", or learn fewer force rows" if further else "")
        if self.sketched:
            collections = -(-len(structures) // collection) - (-further // collection)
            seconds += streaming.projection_seconds(collection, collections)
            advice += ", or keep the features on disk with --store" if kept else ""
        else:
            advice += ", or use --sketch gaussian"
        remark = None if self.sketch.fits(parameters) else _DRAWN_AGAIN
        return Estimate(len(structures), parameters, seconds, memory, advice, remark, further)

    def spec(self, potential: Potential) -> dict[str, Any]:
        sketch = self.sketch.spec(parameter_count(potential))
        further = {name: count for name in ("force_rows", "strain_rows") if (count := getattr(self, name))}
        return {"map": self.name, "normalise": self.normalise, "sketch": sketch, **further}

    def identity(self, potential: Potential) -> dict[str, Any]:
        return replace(self, force_rows=0, strain_rows=0).spec(potential)

    def summary(self, potential: Potential) -> str:
        rows = ("force row", self.force_rows), ("strain row", self.strain_rows)
        told = " and ".join(counted(count, name) for name, count in rows if count)
        further = f", with {told} of each label" if told else ""
        if not self.sketched:
            return f"full{further}"
        remark = "" if self.sketch.kind == "gaussian" else f" by {self.sketch.kind} (the theorem is for gaussian)"
        return f"sketched to {self.width(potential)}{remark}{further}"

    @classmethod
    def restore(cls, spec: dict[str, Any], memory_budget: int = DEFAULT_BUDGET) -> "EnergyGradients":
        sketch = spec["sketch"]
        made = make_sketch(sketch["kind"], sketch["dim"], sketch["seed"], memory_budget // 2)
        return cls(made, spec["normalise"], spec.get("force_rows", 0), spec.get("strain_rows", 0))


def _by_size(structures: Structures) -> list[int]:
    """Structures that are differentiated together are of like size, so that little is padded."""
    return np.argsort(structure_sizes(structures), kind="stable").tolist()
