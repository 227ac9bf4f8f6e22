"""``python -m benchmarks features``: gradients and sketches against the ways that others take."""

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from ase import Atoms
from torch import Tensor

from adaptntk.cli.console import show_progress
from adaptntk.core.sketch.gaussian import GaussianSketch
from adaptntk.core.sketch.registry import make_sketch
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.files import make_folder
from adaptntk.models.family import EnergyReference
from adaptntk.models.mace.family import PAPER, SMALL, TINY, MACEArchitecture, build_network
from adaptntk.models.mace.graph import mean_neighbours
from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.protocol import choose_device, energy_gradients_one_by_one, parameter_count
from adaptntk.report.tables import aligned
from benchmarks.cost.figures import draw_features
from benchmarks.cost.torch_func import vectorised_gradients
from benchmarks.data.sources import given_frames
from benchmarks.harness.experiment import find_plan
from benchmarks.harness.record import save_record
from benchmarks.harness.stopwatch import Timing, show_range, time_in_turns
from benchmarks.settings import Features

NETWORKS = {"small": SMALL, "paper": PAPER}
LOOPED = 8
"""Structures that the slow rivals are timed on."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is measured."""

    networks: dict[str, MACEArchitecture]
    structures: int
    batch: int
    rounds: int
    dim: int
    channels: tuple[int, ...]
    copies: tuple[int, ...]
    dims: tuple[int, ...]
    columns: int


PLANS = {
    "full": Plan(NETWORKS, 64, 16, 5, 512, (8, 16, 32, 64, 128), (1, 2, 4, 8), (128, 256, 512, 1024, 2048), 100_000),
    "smoke": Plan(
        {"small": TINY},
        8, 4, 1, 64, (4, 8), (1, 2), (32, 64), 1000,
    ),
}  # fmt: skip


def run(settings: Features) -> str:
    """Measure, write ``features.json`` and ``features.png``."""
    plan = find_plan(PLANS, settings.preset)
    structures = given_frames(settings, plan.structures)
    # One composition, and in one order of atoms, as torch.func needs it.
    first = structures[0].numbers.tolist()
    frames = [atoms for atoms in structures if atoms.numbers.tolist() == first][: plan.structures]
    folder = make_folder(settings.output)
    result = _measure(plan, frames, settings.device)
    save_record(folder, "features", {"preset": settings.preset, **result})
    drawn = draw_features(folder)
    lines = [line for name, network in result["networks"].items() for line in _shown(name, network)]
    return "\n".join([result["structures"], *lines, f"wrote {folder / 'features.json'} and {drawn}"])


def _measure(plan: Plan, frames: list[Atoms], device: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "structures": f"{len(frames)} x {frames[0].get_chemical_formula()}",
        "batch": plan.batch,
        "dim": plan.dim,
        "unit": "ms per structure: median, lowest and highest of the rounds",
        "networks": {},
    }
    for name in show_progress(list(plan.networks), "networks", len(plan.networks)):
        result["networks"][name] = _compare(plan, plan.networks[name], frames, device)
    base = plan.networks[next(iter(plan.networks))]
    result["by_parameters"] = [
        _cost(dataclasses.replace(base, hidden_irreps=f"{n}x0e + {n}x1o"), frames[: plan.batch], plan, device)
        for n in show_progress(plan.channels, "numbers of parameters", len(plan.channels))
    ]
    result["by_atoms"] = [
        _cost(base, [_cluster(atoms, n) for atoms in frames[:4]], plan, device)
        for n in show_progress(plan.copies, "numbers of atoms", len(plan.copies))
    ]
    result["by_dim"] = _sketch_cost(plan)
    return result


def _shown(name: str, network: dict[str, Any]) -> list[str]:
    """What is printed of a network."""
    times = network["milliseconds"] | {
        f"sketch: {kind}": found["milliseconds"] for kind, found in network["sketches"].items()
    }
    rows = [["ms per structure", "median and range"], *([work, show_range(found)] for work, found in times.items())]
    return [
        f"\n{name}: {network['parameters']:,} parameters",
        *aligned(rows),
        *(f"{ratio} = {show_range(found)}" for ratio, found in network["ratios"].items()),
        f"largest relative error against the loop: {network['largest_relative_error']:.1e}",
    ]


def _compare(plan: Plan, architecture: MACEArchitecture, frames: list[Atoms], device: str) -> dict[str, Any]:
    stock, fast = _potentials(architecture, frames, device)
    sketch = GaussianSketch(plan.dim)
    structured = make_sketch("srht", plan.dim)
    graphs = [stock.graph(atoms) for atoms in frames]
    batches = [graphs[start : start + plan.batch] for start in range(0, len(graphs), plan.batch)]
    few = graphs[:LOOPED]
    work: dict[str, tuple[Callable[[], object], float]] = {
        "stock forward": (lambda: [_forward(stock, batch) for batch in batches], len(graphs)),
        "stock batched backward": (lambda: [_backward(stock, batch) for batch in batches], len(graphs)),
        "fast forward": (lambda: [_forward(fast, batch) for batch in batches], len(graphs)),
        "fast batched backward": (lambda: [_backward(fast, batch) for batch in batches], len(graphs)),
        "gradients": (lambda: [fast.energy_gradients(batch) for batch in batches], len(graphs)),
        "features (gaussian)": (lambda: EnergyGradients(sketch).extract(fast, frames), len(frames)),
        "features (srht)": (lambda: EnergyGradients(structured).extract(fast, frames), len(frames)),
        "loop": (lambda: energy_gradients_one_by_one(stock, few), len(few)),
        "loop + sketch": (lambda: [sketch.apply(energy_gradients_one_by_one(stock, [g])) for g in few], len(few)),
        "torch.func": (lambda: vectorised_gradients(fast, few), len(few)),
    }
    times = time_in_turns(work, plan.rounds, stock.device)
    rows = fast.energy_gradients(graphs)
    expected = energy_gradients_one_by_one(stock, few)
    error = float(((rows[: len(few)] - expected).norm(dim=1) / expected.norm(dim=1)).max())
    features = times["features (gaussian)"]
    return {
        "parameters": parameter_count(stock),
        "milliseconds": {name: timing.summary(1e3) for name, timing in times.items()},
        "ratios": {
            "features / stock batched backward": features.over(times["stock batched backward"]).summary(),
            "loop + sketch / features": times["loop + sketch"].over(features).summary(),
            "loop / gradients": times["loop"].over(times["gradients"]).summary(),
            "torch.func / gradients": times["torch.func"].over(times["gradients"]).summary(),
        },
        "largest_relative_error": error,
        "expected_distance_error_of_sketches": round((2 / plan.dim) ** 0.5, 4),
        "sketches": _sketches(rows, plan),
    }


def _sketches(rows: Tensor, plan: Plan) -> dict[str, Any]:
    """Time per row of all ways to project real gradients, and error of the squared distances between neighbours.

    Gradients of like structures are nearly parallel, so that their norms would show one error many times.
    """
    parameters = rows.shape[1]
    ours = {f"adaptntk {kind}": make_sketch(kind, plan.dim).apply for kind in ("gaussian", "srht", "sparse")}
    projections: dict[str, Callable[[Tensor], Tensor]] = {
        **ours,
        "adaptntk gaussian, drawn anew": GaussianSketch(plan.dim, memory_budget=0).apply,
        "bfloat16 product, S kept": _bfloat16(parameters, plan.dim, rows.device),
        **_rivals(parameters, plan.dim, rows.device),
    }
    work = {name: (partial(project, rows), len(rows)) for name, project in projections.items()}
    times = time_in_turns(work, max(1, plan.rounds // 2), rows.device)
    distances = rows.double().diff(dim=0).square().sum(1)
    result = {}
    for name, project in projections.items():
        error = project(rows).double().diff(dim=0).square().sum(1) / distances - 1
        result[name] = {
            "milliseconds": times[name].summary(1e3),
            "distance_error": round(float(error.square().mean().sqrt()), 4),
        }
    return result


def _rivals(parameters: int, dim: int, device: torch.device) -> dict[str, Callable[[Tensor], Tensor]]:
    """Projectors of TRAK and dattri, where they are installed: ``pip install '.[benchmarks]'``."""
    found: dict[str, Callable[[Tensor], Tensor]] = {}
    # TRAK leaves the division by the root of p to others.
    peers = (("TRAK", "trak.projectors", dim**0.5), ("dattri", "dattri.func.projection", 1.0))
    for name, module, divisor in peers:
        try:
            package: Any = importlib.import_module(module)
        except ImportError:
            continue
        projector = package.BasicProjector(parameters, dim, 0, package.ProjectionType.normal, device)
        found[f"{name} BasicProjector"] = partial(_project, projector, divisor)
    return found


def _project(projector: Any, divisor: float, rows: Tensor) -> Tensor:
    return projector.project(rows, 0) / divisor


def _bfloat16(parameters: int, dim: int, device: torch.device) -> Callable[[Tensor], Tensor]:
    matrix = GaussianSketch(dim).normals(0, parameters, device).T.to(torch.bfloat16)
    return lambda rows: (rows.to(torch.bfloat16) @ matrix).float() / dim**0.5


def _cost(architecture: MACEArchitecture, frames: list[Atoms], plan: Plan, device: str) -> dict[str, Any]:
    stock, fast = _potentials(architecture, frames, device)
    graphs = [stock.graph(atoms) for atoms in frames]
    work: dict[str, tuple[Callable[[], object], float]] = {
        "stock batched backward": (lambda: _backward(stock, graphs), len(graphs)),
        "gradients": (lambda: fast.energy_gradients(graphs), len(graphs)),
        "loop": (lambda: energy_gradients_one_by_one(stock, graphs[:4]), min(4, len(graphs))),
    }
    times = time_in_turns(work, max(1, plan.rounds // 2), stock.device)
    return {
        "parameters": parameter_count(stock),
        "atoms": len(frames[0]),
        "milliseconds": {name: timing.summary(1e3) for name, timing in times.items()},
    }


def _sketch_cost(plan: Plan) -> list[dict[str, Any]]:
    rows = torch.randn(64, plan.columns, generator=torch.Generator().manual_seed(0))
    result = []
    for dim in plan.dims:
        sketches = {kind: make_sketch(kind, dim) for kind in ("gaussian", "srht", "sparse")}
        work = {kind: (partial(sketch.apply, rows), len(rows)) for kind, sketch in sketches.items()}
        times: dict[str, Timing] = time_in_turns(work, max(1, plan.rounds // 2))
        result.append({"dim": dim, "milliseconds": {kind: timing.summary(1e3) for kind, timing in times.items()}})
    return result


def _potentials(
    architecture: MACEArchitecture, frames: list[Atoms], device: str
) -> tuple[MACEPotential, MACEPotential]:
    """An untrained network, as it is and by its twin: the cost does not depend on the weights."""
    numbers = tuple(sorted({int(z) for atoms in frames for z in atoms.numbers}))
    neighbours = mean_neighbours(frames, architecture.cutoff)
    reference = EnergyReference(numbers, tuple(0.0 for _ in numbers), 1.0, 0.0)
    module = build_network(architecture, reference, neighbours, torch.float32, seed=0).to(choose_device(device))
    stock, fast = (MACEPotential(module, "0" * 64, fast=fast) for fast in (False, True))
    return stock, fast


def _forward(potential: MACEPotential, graphs: Sequence[Any]) -> Tensor:
    with torch.no_grad():
        return potential.energies(graphs)


def _backward(potential: MACEPotential, graphs: Sequence[Any]) -> tuple[Tensor | None, ...]:
    """The gradient of the summed energy: what a plain backward pass over a batch costs."""
    parameters = [tensor for _, tensor in potential.parameters()]
    return torch.autograd.grad(potential.energies(graphs).sum(), parameters, allow_unused=True)


def _cluster(molecule: Atoms, copies: int) -> Atoms:
    """Copies of a molecule in a row, at van der Waals distance."""
    step = float(np.ptp(molecule.positions[:, 0])) + 3.0
    whole = molecule.copy()
    for number in range(1, copies):
        other = molecule.copy()
        other.positions[:, 0] += number * step
        whole += other
    return whole
