"""What the monitor costs per step of a simulation."""

import copy
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms, units
from ase.md.langevin import Langevin

from adaptntk import Fitted, read_structures
from adaptntk.files import write_json
from adaptntk.md.calculator import UncertaintyCalculator
from adaptntk.md.dynamics import watch
from adaptntk.md.physical_rules import PHYSICAL_RULES
from adaptntk.md.rules import ConformalThreshold
from benchmarks.harness.stopwatch import time_in_turns

STEPS, ROUNDS = 50, 15


def measured_cost(uncertainty: Fitted, folder: Path) -> dict[str, Any]:
    """From the folder, if it was measured before."""
    path = folder / "cost.json"
    if not path.exists():
        write_json(path, cost(uncertainty, folder))
    return json.loads(path.read_text())


def cost(uncertainty: Fitted, folder: Path) -> dict[str, Any]:
    """Milliseconds of processor time per step of the same dynamics on one thread, in turns."""
    from mace.calculators import MACECalculator

    torch.set_num_threads(1)
    potential = uncertainty.potential
    stock = MACECalculator(models=copy.deepcopy(potential.module), device="cpu", default_dtype="float32")  # type: ignore[attr-defined]
    start = read_structures(folder / "test.xyz")[0]
    rules = [*PHYSICAL_RULES, ConformalThreshold(0.99, patience=10**6)]

    def dynamics(calculator: object) -> Langevin:
        atoms = Atoms(numbers=start.numbers, positions=start.positions, calculator=calculator)
        rng = np.random.default_rng(0)
        return Langevin(atoms, 0.5 * units.fs, temperature_K=300, friction=0.01 / units.fs, rng=rng, fixcm=False)

    def monitored(every: int) -> None:
        watch(dynamics(UncertaintyCalculator(uncertainty, every)), rules, STEPS, every, 300)

    work = {
        "MACECalculator": lambda: dynamics(stock).run(STEPS),
        "ours, no uncertainty": lambda: dynamics(UncertaintyCalculator(uncertainty, None)).run(STEPS),
        "ours, monitor every 10": lambda: monitored(10),
        "ours, monitor every step": lambda: monitored(1),
    }
    times = time_in_turns({name: (function, STEPS) for name, function in work.items()}, ROUNDS, clock=time.process_time)
    return {
        name: {
            "ms_per_step": timing.summary(1e3),
            "over_MACECalculator": timing.over(times["MACECalculator"]).summary(),
            "over_ours_without": timing.over(times["ours, no uncertainty"]).summary(),
        }
        for name, timing in times.items()
    }
