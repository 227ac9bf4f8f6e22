"""``python -m benchmarks scores``: what it costs to ask about a structure.

The energy row of the paper, that of joint features, and the forces of a committee, beside one prediction of energy and
forces; with networks that were trained for a while.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from adaptntk.data.xtb_md import build_molecule, sample_md
from adaptntk.files import make_folder
from adaptntk.models.protocol import parameter_count
from adaptntk.training.loop import train as train_network
from adaptntk.training.recipe import PRESETS, Recipe
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.fitted import Fitted
from adaptntk.uncertainty.workbench import GivenModel
from benchmarks.harness.experiment import find_plan
from benchmarks.harness.fitting import PAPER
from benchmarks.harness.record import save_record
from benchmarks.harness.stopwatch import show_range, time_in_turns
from benchmarks.settings import Scores

MEMBERS = 16


@dataclass(frozen=True)
class Plan:
    """Networks by preset, molecules, labels, steps, and how many structures are asked about how often."""

    presets: tuple[str, ...]
    molecules: tuple[str, ...]
    labels: int
    steps: int
    asked: int
    rounds: int


PLANS = {
    "full": Plan(("standard",), ("ethanol", "benzene"), 200, 500, 64, 7),
    "smoke": Plan(("tiny",), ("water",), 20, 10, 4, 2),
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
            recipe = PRESETS[preset].lasting(steps=plan.steps)
            found[name] = _measure(recipe, molecule, plan, asked.output / f"{preset}-{molecule}.model")
            ratios = {key: show_range(value) for key, value in found[name]["ratios"].items()}
            lines.append(f"{name}: " + ", ".join(f"{key} = {text}" for key, text in ratios.items()))
    save_record(asked.output, "scores", {"preset": asked.preset, "networks": found})
    return "\n".join(lines)


def _measure(recipe: Recipe, molecule: str, plan: Plan, path: Path) -> dict[str, Any]:
    """Milliseconds of the processor for a structure, in turns; and ratios round by round."""
    frames = sample_md(build_molecule(molecule), plan.labels + plan.asked, 500.0, interval=10, seed=0)
    learnt, queries = frames[: plan.labels], frames[plan.labels :]
    train, valid = learnt[::2] + learnt[1::4], learnt[3::4]
    potential = train_network(train, valid, path, recipe, device="cpu").potential
    bench = GivenModel(train, potential=potential)
    energy, joint = (fit(bench, "ntk", options) for options in (PAPER, {"committee": MEMBERS}))
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
        "members compute in": str(joint.check_committee().precision or potential.dtype).removeprefix("torch."),
        "dimensions": {"energy row": _width(energy), "joint row": _width(joint)},
        "milliseconds": {name: timing.summary(1e3) for name, timing in times.items()},
        "ratios": {name: timing.summary() for name, timing in ratios.items()},
    }


def _width(fitted: Fitted) -> int:
    assert fitted.features is not None
    return int(fitted.features.blocks.shape[2])
