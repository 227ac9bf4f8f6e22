"""``python -m benchmarks scores``: what it costs to ask about a structure.

The energy row of the paper, that of joint features, and the forces of a committee, beside one prediction of energy and
forces. Cost does not depend on what a network has learnt, so its weights are random.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from ase import Atoms

from adaptntk.data.structures import ENERGY, FORCES
from adaptntk.data.xtb_md import build_molecule
from adaptntk.files import make_folder
from adaptntk.models.family import Architecture
from adaptntk.models.protocol import parameter_count
from adaptntk.training.labelled import untrained_network
from adaptntk.training.recipe import PRESETS
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.fitted import Fitted
from adaptntk.uncertainty.workbench import GivenModel
from benchmarks.harness.experiment import find_plan
from benchmarks.harness.record import save_record
from benchmarks.harness.stopwatch import show_range, time_in_turns
from benchmarks.settings import Scores

MEMBERS = 16


@dataclass(frozen=True)
class Plan:
    """Networks by preset, molecules of rattled atoms, labels, and how many structures are asked about how often."""

    presets: tuple[str, ...]
    molecules: tuple[str, ...]
    labels: int
    asked: int
    rounds: int


PLANS = {
    "full": Plan(("standard",), ("ethanol", "benzene"), 200, 64, 7),
    "smoke": Plan(("tiny",), ("water",), 8, 4, 2),
}


def run(asked: Scores) -> str:
    """Measure, write ``scores.json``, and say the ratios."""
    plan = find_plan(PLANS, asked.preset)
    make_folder(asked.output)
    torch.set_num_threads(1)
    lines, found = [], {}
    for preset in plan.presets:
        for molecule in plan.molecules:
            name = f"{preset}, {molecule}"
            found[name] = _measure(PRESETS[preset].architecture, molecule, plan)
            ratios = {key: show_range(value) for key, value in found[name]["ratios"].items()}
            lines.append(f"{name}: " + ", ".join(f"{key} = {text}" for key, text in ratios.items()))
    save_record(asked.output, "scores", {"preset": asked.preset, "networks": found})
    return "\n".join(lines)


def _measure(architecture: Architecture, molecule: str, plan: Plan) -> dict[str, Any]:
    """Milliseconds of the processor for a structure, in turns; and ratios round by round."""
    frames = _rattled(molecule, plan.labels + plan.asked)
    train, queries = frames[: plan.labels], frames[plan.labels :]
    recipe = replace(PRESETS["standard"], architecture=architecture)
    potential = untrained_network(_labelled(train), recipe, torch.float32, 0)
    bench = GivenModel(train, potential=potential)
    energy, joint = (fit(bench, "ntk", options) for options in ({}, {"features": "joint", "committee": MEMBERS}))
    work: dict[str, tuple[Callable[[], object], float]] = {
        "prediction": (lambda: potential.predict(queries), len(queries)),
        "energy row": (lambda: energy.score(queries), len(queries)),
        "joint row": (lambda: joint.score(queries), len(queries)),
        "committee": (lambda: joint.score_atoms(queries), len(queries)),
    }
    times = time_in_turns(work, plan.rounds, clock=time.process_time)
    ratios = {
        "joint row / energy row": times["joint row"].over(times["energy row"]),
        f"committee of {MEMBERS} / prediction": times["committee"].over(times["prediction"]),
    }
    return {
        "parameters": parameter_count(potential),
        "atoms": len(queries[0]),
        "dimensions": {"energy row": _width(energy), "joint row": _width(joint)},
        "milliseconds": {name: timing.summary(1e3) for name, timing in times.items()},
        "ratios": {name: timing.summary() for name, timing in ratios.items()},
    }


def _width(fitted: Fitted) -> int:
    assert fitted.features is not None
    return int(fitted.features.blocks.shape[2])


def _rattled(molecule: str, count: int) -> list[Atoms]:
    perfect, frames = build_molecule(molecule), []
    for seed in range(count):
        atoms = perfect.copy()
        atoms.rattle(0.05, seed=seed)
        frames.append(atoms)
    return frames


def _labelled(frames: list[Atoms]) -> list[Atoms]:
    """With labels of nothing in particular, from which the network takes its scale."""
    for number, atoms in enumerate(frames):
        atoms.info[ENERGY] = 0.01 * number
        atoms.arrays[FORCES] = atoms.positions - atoms.positions.mean(axis=0)
    return frames
