"""Does the monitor stop a simulation before the forces go wrong, and what does it cost?

Trains a small network on ethanol at 300 K (GFN2-xTB), calibrates it on other trajectories, runs it at 300 K and at
1200 K, labels every recorded frame with xTB, and asks at which frame each rule would have stopped. The runs are
recorded without uncertainty rules: a rule only looks, so the run up to its stop is the same with or without it. The
rule was chosen on ten runs at each temperature (development); what it is worth is said by ten others (test). An hour
on one core; an interrupted run goes on where it stopped.

    python benchmarks/md_monitor.py WORK_FOLDER
"""

import argparse
import copy
import itertools
import json
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import ase.io
import numpy as np
import torch
from ase import Atoms, units
from ase.calculators.calculator import CalculationFailed
from ase.md.langevin import Langevin

from adaptntk import (
    NTKUncertainty,
    build_molecule,
    load_uncertainty,
    read_structures,
    sample_md,
    verbs,
    write_structures,
)
from adaptntk.core.metrics import force_rmse, spearman
from adaptntk.data.structures import FORCES, reference_forces
from adaptntk.files import write_json
from adaptntk.md.calculator import UncertaintyCalculator
from adaptntk.md.dynamics import MDSettings, run_md, watch
from adaptntk.md.monitor import Monitor
from adaptntk.md.physical_rules import PHYSICAL_RULES
from adaptntk.md.rules import ConformalThreshold, ErrorLevel, Observation, UncertaintyRule
from benchmarks.record import save_result
from benchmarks.stopwatch import table, time_in_turns

# Trajectories of the reference, and labelled frames of each. A calibration speaks for structures drawn like its own, so
# it takes many independent trajectories, none of which the training saw.
TRAJECTORIES = {"train": (20, 20), "valid": (5, 20), "calibration": (80, 25), "test": (20, 1)}
COLD, HOT = 300, 1200
STEPS = 2000
INTERVAL = 5
SETS = {"development": range(10), "test": range(10, 20)}
# Errors and levels in units of the typical force error on the calibration set. Chosen on the development runs: the
# conformal threshold with five alarms or one of twice the threshold.
# Of a larger set (alarms at 2 to 5, coverages of 0.9 to 0.999, patience of 1 to 5, lost at 1.5, 2 or never), those that
# tell something are recorded.
ALARMS = (3.0, 4.0)
TOLERANCES = (5.0, 10.0)
CHOSEN = {"rule": "conformal-threshold", "every": 5, "coverage": 0.99, "patience": 5, "lost": 2.0}
# Alarms needed, and the multiple of the threshold that needs none.
PATIENCE = [(1, math.inf), (5, math.inf), (5, 2.0)]

log = logging.getLogger("adaptntk.md_monitor")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recorded", action="store_true", help="judge the runs that are there, and make no others")
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    uncertainty = prepare(folder)
    typical = typical_error(uncertainty, read_structures(folder / "calibration.xyz"))
    rules: dict[float | None, list[UncertaintyRule]] = {
        alarm: [ErrorLevel(alarm * typical, 0.9, p, lost=x) for p, x in PATIENCE] for alarm in ALARMS
    }
    rules[None] = [ConformalThreshold(c, p, lost=x) for c in (0.99, 0.999) for p, x in PATIENCE]
    verdicts, described = [], {}
    for name, seeds in SETS.items():
        runs = {
            t: [
                Recorded(record(folder, uncertainty, t, seed))
                for seed in seeds
                if recording(folder, t, seed).exists() or not options.recorded
            ]
            for t in (COLD, HOT)
        }
        described[name] = {f"{t} K": describe(uncertainty, runs[t]) | stops(uncertainty, runs[t]) for t in runs}
        verdicts += [
            {"set": name, "rule": rule.name, "alarm": alarm, "coverage": rule.coverage, "patience": rule.patience}  # type: ignore[attr-defined]
            | {"lost": rule.lost if math.isfinite(rule.lost) else None, "every": stride * INTERVAL}
            | verdict
            for stride in (1, 2)
            for alarm, group in rules.items()
            for rule in group
            for verdict in judge(rule, uncertainty, runs, typical, stride)
        ]
    chosen = [row for row in verdicts if CHOSEN.items() <= row.items()]
    for line in table(chosen):
        print(line)
    result = {
        "data": f"ethanol, GFN2-xTB at 300 K; trajectories and frames of each: {TRAJECTORIES}",
        "runs": f"{STEPS} steps of 0.5 fs at most, observed every {INTERVAL}; how many there are is with the frames",
        "unit": f"alarm and tolerance in units of the typical force error, {typical:.4f} eV/Å",
        "typical_force_error": typical,
        "chosen": chosen,
        "frames": described,
        "cost": measured_cost(uncertainty, folder),
        "verdicts": verdicts,
    }
    print(f"wrote {save_result(Path(__file__).parent / 'results', 'md_monitor', result)}")


def prepare(folder: Path) -> NTKUncertainty:
    """Data, network and uncertainty, from the folder where they are there already."""
    model, ntk = folder / "ethanol.model", folder / "ethanol.ntk"
    seeds = itertools.count()
    for name, (trajectories, frames) in TRAJECTORIES.items():
        own = list(itertools.islice(seeds, trajectories))
        if not (folder / f"{name}.xyz").exists():
            log.info("%s: %d trajectories", name, trajectories)
            sampled = [sample_md(build_molecule("ethanol"), frames, COLD, interval=40, seed=seed) for seed in own]
            write_structures(folder / f"{name}.xyz", [frame for run in sampled for frame in run])
    if not model.exists():
        verbs.train(train=folder / "train.xyz", valid=folder / "valid.xyz", output=model, resume=True)
    if not ntk.exists():
        files = {name: folder / f"{name}.xyz" for name in ("train", "valid", "calibration")}
        verbs.fit(model=model, output=ntk, **files)
    return load_uncertainty(ntk)


def typical_error(uncertainty: NTKUncertainty, frames: Sequence[Atoms]) -> float:
    """Root mean square force error over labelled structures like those of the training."""
    errors = force_rmse(uncertainty.potential.predict(frames).forces, reference_forces(frames))
    return float(np.sqrt(np.mean(errors**2)))


def recording(folder: Path, temperature: int, seed: int) -> Path:
    """Where a labelled trajectory is kept."""
    return folder / f"md-{temperature}-{seed}.xyz"


def record(folder: Path, uncertainty: NTKUncertainty, temperature: int, seed: int) -> list[Atoms]:
    """One labelled trajectory from a structure of the test set; frames that xTB cannot label end it."""
    path = recording(folder, temperature, seed)
    if not path.exists():
        start = read_structures(folder / "test.xyz")[seed]
        run = run_md(uncertainty, start, MDSettings(temperature, STEPS, interval=INTERVAL), PHYSICAL_RULES, seed)
        log.info("%s K, run %d: %s", temperature, seed, run.stopped or f"{run.steps} steps")
        write_structures(path, labelled(run.frames))
    return ase.io.read(path, ":")


def labelled(frames: Sequence[Atoms]) -> list[Atoms]:
    """Frames with xTB forces beside those of the network."""
    from tblite.ase import TBLite

    done = []
    reference = TBLite(method="GFN2-xTB", verbosity=0)
    for frame in frames:
        atoms = Atoms(numbers=frame.numbers, positions=frame.positions, calculator=reference)
        try:
            frame.arrays[FORCES] = atoms.get_forces()
        except CalculationFailed:
            log.info("xTB failed at step %d", frame.info["step"])
            break
        done.append(frame)
    return done


@dataclass(frozen=True)
class Recorded:
    """A labelled trajectory."""

    frames: Sequence[Atoms]

    @cached_property
    def errors(self) -> np.ndarray:
        """Root mean square force error of each frame, eV/Å."""
        return force_rmse([frame.get_forces() for frame in self.frames], reference_forces(self.frames))

    @cached_property
    def observations(self) -> list[Observation]:
        """What a monitor would have seen."""
        return [
            Observation(i["step"], i["time"], frame, self.frames[0], i["temperature"], variance=i["ntk_variance"])
            for frame in self.frames
            for i in [frame.info]
        ]

    def stopped_by(self, rule: UncertaintyRule, uncertainty: NTKUncertainty, stride: int) -> int | None:
        """The frame at which the rule ends the run, if it sees each ``stride``-th."""
        monitor = Monitor([rule], uncertainty.calibration)
        places = range(0, len(self.observations), stride)
        return next((n for n in places if monitor.observe(self.observations[n]) is not None), None)


def describe(uncertainty: NTKUncertainty, runs: Sequence[Recorded]) -> dict[str, object]:
    """How large errors and uncertainties are, and how often the bound held."""
    errors = np.concatenate([run.errors for run in runs])
    variance = np.array([frame.info["ntk_variance"] for run in runs for frame in run.frames])
    calibration = uncertainty.calibration
    assert calibration is not None
    sigma = calibration.forces.sigma(variance)
    held = {f"bound_held_{c}": float(np.mean(errors <= calibration.error_bound(variance, c))) for c in (0.9, 0.95)}
    return {
        "runs": len(runs),
        "frames": len(errors),
        "force_rmse": float(np.sqrt(np.mean(errors**2))),
        "sigma_rms": float(np.sqrt(np.mean(sigma**2))),
        "spearman": spearman(sigma, errors),
        **held,
    }


def stops(uncertainty: NTKUncertainty, runs: Sequence[Recorded]) -> dict[str, list[object]]:
    """Where the default rule ends each run (null: nowhere), the true error there, and where the run ended by itself."""
    places = [run.stopped_by(ConformalThreshold(), uncertainty, 1) for run in runs]
    return {
        "stopped_at_step": [None if place is None else INTERVAL * place for place in places],
        "error_there": [None if n is None else float(run.errors[n]) for run, n in zip(runs, places, strict=True)],
        "last_step": [int(run.frames[-1].info["step"]) for run in runs],
    }


def judge(
    rule: UncertaintyRule, uncertainty: NTKUncertainty, runs: dict[int, list[Recorded]], typical: float, stride: int
) -> list[dict[str, float]]:
    """For each tolerance: how many hot runs are stopped before, at and after the first frame whose error passes it.

    At 300 K a stop is a false alarm when the error never passes it. There, the share of all frames that alarm is given
    as well: that is what a coverage speaks of.
    """
    calibration = uncertainty.calibration
    assert calibration is not None
    stops = {t: [run.stopped_by(rule, uncertainty, stride) for run in runs[t]] for t in (COLD, HOT)}
    scores = [rule.score(frame.info["ntk_variance"], calibration) for run in runs[COLD] for frame in run.frames]
    found = []
    for tolerance in TOLERANCES:
        hot, cold = (
            [outcome(run, stop, tolerance * typical) for run, stop in zip(runs[t], stops[t], strict=True)]
            for t in (HOT, COLD)
        )
        names = ("before", "same frame", "late", "missed", "false alarm", "quiet")
        found.append(
            {"tolerance": tolerance}
            | {f"hot {name}": hot.count(name) for name in names if name in hot or name in names[:4]}
            | {
                "cold false alarm": cold.count("false alarm"),
                "cold quiet": cold.count("quiet"),
                "cold error passed": len(cold) - cold.count("false alarm") - cold.count("quiet"),
                "cold alarms per frame": float(np.mean(np.array(scores) > rule.threshold(calibration))),
            }
        )
    return found


def outcome(run: Recorded, stop: int | None, tolerance: float) -> str:
    """What the rule would have done in this run."""
    wrong = next((place for place, error in enumerate(run.errors) if error > tolerance), None)
    if wrong is None:
        return "quiet" if stop is None else "false alarm"
    if stop is None:
        return "missed"
    return "before" if stop < wrong else "same frame" if stop == wrong else "late"


def measured_cost(uncertainty: NTKUncertainty, folder: Path) -> dict[str, object]:
    """From the folder, if it was measured before."""
    path = folder / "cost.json"
    if not path.exists():
        write_json(path, cost(uncertainty, folder))
    return json.loads(path.read_text())


def cost(uncertainty: NTKUncertainty, folder: Path, steps: int = 50, rounds: int = 15) -> dict[str, object]:
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
        watch(dynamics(UncertaintyCalculator(uncertainty, every)), rules, steps, every, 300)

    work = {
        "MACECalculator": lambda: dynamics(stock).run(steps),
        "ours, no uncertainty": lambda: dynamics(UncertaintyCalculator(uncertainty, None)).run(steps),
        "ours, monitor every 10": lambda: monitored(10),
        "ours, monitor every step": lambda: monitored(1),
    }
    times = time_in_turns({name: (function, steps) for name, function in work.items()}, rounds, clock=time.process_time)
    rows = {
        name: {
            "ms_per_step": timing.summary(1e3),
            "over_MACECalculator": timing.over(times["MACECalculator"]).summary(),
            "over_ours_without": timing.over(times["ours, no uncertainty"]).summary(),
        }
        for name, timing in times.items()
    }
    for name, row in rows.items():
        print(name, {key: value["median"] for key, value in row.items()})
    return rows


if __name__ == "__main__":
    main()
