"""``python -m benchmarks step``: a step of training, ours and MACE's own; and several networks as one computation."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.build import bulk
from torch import Tensor

from adaptntk.data.xtb_md import build_molecule
from adaptntk.files import make_folder
from adaptntk.models.family import EnergyReference, Outputs
from adaptntk.models.mace.family import MACEArchitecture, build_network
from adaptntk.models.mace.graph import MACEGraph, mean_neighbours
from adaptntk.models.mace.layout import Layout
from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.mace.tape import forward_pass
from adaptntk.training.recipe import PRESETS
from adaptntk.training.weights import Weights
from benchmarks.cost.torch_func import EnergyOfEdges, padded_edges
from benchmarks.harness.experiment import find_plan
from benchmarks.harness.record import save_record
from benchmarks.harness.stopwatch import show_range, time_in_turns
from benchmarks.settings import Step


@dataclass(frozen=True)
class Plan:
    """Networks, batches of each system, how often, and how many networks are stacked."""

    networks: tuple[str, ...]
    batches: dict[str, tuple[int, ...]]
    rounds: int
    stacks: tuple[int, ...]
    radial: tuple[int, ...] = (64, 64, 64)


RATIOS = (("ours", "recorded"), ("stock", "recorded"), ("stock", "ours"))
PLANS = {
    "full": Plan(("16x0e + 16x1o + 16x2e", "32x0e + 32x1o"), {"ethanol": (1, 5, 10)}, 5, (2, 4, 8)),
    "smoke": Plan(("4x0e + 4x1o",), {"ethanol": (2,)}, 2, (2,), (8,)),
}


def run(asked: Step) -> str:
    """Measure, write ``step.json``, and say the ratios."""
    plan = find_plan(PLANS, asked.preset)
    make_folder(asked.output)
    torch.set_num_threads(1)
    lines, steps = [], []
    for irreps in plan.networks:
        for system, batches in plan.batches.items():
            frames = _frames(system)
            ours, stock = (_network(irreps, frames, plan.radial, fast) for fast in (True, False))
            for batch in batches:
                found = _compare(ours, stock, frames[:batch], plan.rounds)
                steps.append({"network": irreps, "system": system, "batch": batch, **found})
                median, ratios = found["recorded"]["median"], [show_range(found[f"{a} / {b}"]) for a, b in RATIOS]
                where = f"{irreps}, {batch} x {system}: {median:.1f} ms when recorded"
                lines.append(f"{where}; as calls / recorded = {ratios[0]}, MACE / recorded = {ratios[1]}")
    stacked = _stacks(plan)
    lines += [f"throughput of {count} stacked networks / separate ones = {s:.2f}" for count, s in stacked.items()]
    save_record(asked.output, "step", {"preset": asked.preset, "milliseconds": steps, "stacked over separate": stacked})
    return "\n".join(lines)


def _frames(system: str) -> list[Atoms]:
    perfect = build_molecule("ethanol") if system == "ethanol" else bulk("Si", cubic=True).repeat(2)
    frames = []
    for seed in range(10):
        atoms = perfect.copy()
        atoms.rattle(0.05, seed=seed)
        frames.append(atoms)
    return frames


def _network(irreps: str, frames: Sequence[Atoms], radial: tuple[int, ...], fast: bool) -> MACEPotential:
    numbers = tuple(sorted({int(number) for number in frames[0].numbers}))
    reference = EnergyReference(numbers, (0.0,) * len(numbers), 1.0, 0.0)
    architecture = MACEArchitecture(irreps, 3, 3, 5.0, radial)
    neighbours = mean_neighbours(frames, architecture.cutoff)
    return MACEPotential(build_network(architecture, reference, neighbours, torch.float32, 0), fast=fast)


def _compare(ours: MACEPotential, stock: MACEPotential, frames: Sequence[Atoms], rounds: int) -> dict[str, Any]:
    """Milliseconds of the processor for a step, in turns."""
    work: dict[str, tuple[Callable[[], object], float]] = {
        "recorded": (_step(ours, frames, recorded=True), 1.0),
        "ours": (_step(ours, frames), 1.0),
        "stock": (_step(stock, frames), 1.0),
    }
    times = time_in_turns(work, rounds, clock=time.process_time)
    found = {name: timing.summary(1e3) for name, timing in times.items()}
    ratios = {f"{slow} / {fast}": times[slow].over(times[fast]).summary() for slow, fast in RATIOS}
    return found | ratios


def _step(potential: MACEPotential, frames: Sequence[Atoms], recorded: bool = False) -> Callable[[], object]:
    """Forces, a loss, its gradient, and what the optimiser makes of it; or the same from a record of it."""
    graphs = [potential.graph(atoms) for atoms in frames]
    weights, chosen = Weights(potential, PRESETS["standard"]), torch.arange(len(graphs))
    one = torch.ones((), dtype=potential.dtype)
    replay = potential.captured_step(graphs, len(graphs), _loss) if recorded else None

    def step() -> None:
        if replay is None:
            weights.step(_loss(potential.training_outputs(graphs, training=True), chosen, one), 0, 1.0)
        else:
            weights.step_along(replay(chosen, one)[1], 0, 1.0)

    return step


def _loss(found: Outputs, chosen: Tensor, energy_weight: Tensor) -> Tensor:
    return energy_weight * found.energies.square().mean() + found.forces.square().mean()


def _stacks(plan: Plan) -> dict[str, float]:
    """Throughput of networks that are stacked, over that of separate ones; all on one thread.

    So two threads, shared by the stack, would have to be twice as fast as one to reach it on two cores.
    """
    frames = _frames("ethanol")[:5]
    potential = _network(plan.networks[0], frames, plan.radial, fast=True)
    graphs = [potential.graph(atoms) for atoms in frames]
    work: dict[str, tuple[Callable[[], object], float]] = {"alone": (_step(potential, frames), 1.0)}
    work |= {str(count): (_stacked(potential, graphs, count), float(count)) for count in plan.stacks}
    times = time_in_turns(work, plan.rounds, clock=time.process_time)
    return {name: times["alone"].over(times[name]).summary()["median"] for name in work if name != "alone"}


def _stacked(potential: MACEPotential, graphs: Sequence[MACEGraph], count: int) -> Callable[[], object]:
    """Gradients of a loss of energy and slopes, for so many networks at once; no optimiser."""
    width = max(int(graph.neighbours.max()) for graph in graphs)
    inputs = [padded_edges(potential, graph, width) for graph in graphs]
    atoms = [len(graph) for graph in graphs]
    attributes, harmonics, radial = (torch.cat([each[part] for each in inputs]) for part in range(3))
    first = np.cumsum([0, *atoms])[:-1]
    edge_index = torch.cat([each[3] + int(start) for each, start in zip(inputs, first, strict=True)], dim=1)
    elements = np.concatenate([graph.elements for graph in graphs])
    of_atom = np.repeat(np.arange(len(graphs)), atoms)
    layout = Layout(elements, of_atom, np.full(sum(atoms), width), len(graphs), potential.device)
    energy = EnergyOfEdges(potential)
    weights = {f"stock.{name}": torch.stack([tensor.detach()] * count) for name, tensor in potential.parameters()}

    def energies(parameters: dict[str, Tensor], harmonics: Tensor, radial: Tensor) -> Tensor:
        return torch.func.functional_call(energy, parameters, (attributes, harmonics, radial, edge_index))

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        slopes, value = torch.func.grad_and_value(energies, argnums=(1, 2))(parameters, harmonics, radial)
        return value.square() + slopes[0].square().mean() + slopes[1].square().mean()

    with forward_pass(layout):
        # What modules keep must not be made within torch.func.
        energy(attributes, harmonics, radial, edge_index)

    def step() -> None:
        with forward_pass(layout):
            torch.func.vmap(torch.func.grad(loss))(weights)

    return step
