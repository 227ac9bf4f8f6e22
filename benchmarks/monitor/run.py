"""``python -m benchmarks monitor``: does the monitor stop a simulation before the forces go wrong?

Trains a small network on ethanol at 300 K (GFN2-xTB), calibrates it on other trajectories, runs it at 300 K and at
1200 K, labels every recorded frame with xTB, and asks at which frame each rule would have stopped. The runs are
recorded without uncertainty rules: a rule only looks, so the run up to its stop is the same with or without it. The
rule was chosen on ten runs at each temperature (development); what it is worth is said by ten others (test). An hour
on one core; an interrupted run goes on where it stopped.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adaptntk import Fitted, read_structures
from adaptntk.core.metrics import spearman
from adaptntk.files import locked, make_folder
from adaptntk.md.rules import ConformalThreshold, ErrorLevel, Reading, UncertaintyRule
from adaptntk.report.tables import aligned
from benchmarks.harness.record import save_record
from benchmarks.monitor.cost import measured_cost
from benchmarks.monitor.runs import (
    COLD,
    HOT,
    INTERVAL,
    STEPS,
    TRAJECTORIES,
    Recorded,
    prepare,
    record,
    recording,
    typical_error,
)
from benchmarks.settings import MonitorStudy

SETS = {"development": range(10), "test": range(10, 20)}
# Errors and levels in units of the typical force error on the calibration set. Chosen on the development runs: the
# conformal threshold with five alarms or one of twice the threshold.
# Of a larger set (alarms at 2 to 5, coverages of 0.9 to 0.999, patience of 1 to 5, lost at 1.5, 2 or never), those that
# tell something are recorded.
ALARMS = (3.0, 4.0)
TOLERANCES = (5.0, 10.0)
CHOSEN = {"rule": "conformal-threshold", "every": 5, "coverage": 0.99, "patience": 5, "lost": 2.0}
COVERAGES = (0.99, 0.999)
# Alarms needed, and the multiple of the threshold that needs none.
PATIENCE = [(1, math.inf), (5, math.inf), (5, 2.0)]


def run(settings: MonitorStudy) -> str:
    """Record, judge, measure the cost; writes ``md_monitor.json``."""
    folder = make_folder(settings.output)
    with locked(folder):
        uncertainty = prepare(folder)
        typical = typical_error(uncertainty, read_structures(folder / "calibration.xyz"))
        verdicts: list[dict[str, Any]] = []
        described = {}
        for name, seeds in SETS.items():
            runs = _runs(folder, uncertainty, seeds, settings.recorded)
            described[name] = {f"{t} K": describe(uncertainty, runs[t]) | stops(uncertainty, runs[t]) for t in runs}
            verdicts += [{"set": name} | row for row in _verdicts(uncertainty, runs, typical)]
        chosen = [row for row in verdicts if CHOSEN.items() <= row.items()]
        result = {
            "data": f"ethanol, GFN2-xTB at 300 K; trajectories and frames of each: {TRAJECTORIES}",
            "runs": f"{STEPS} steps of 0.5 fs at most, observed every {INTERVAL}; how many is with the frames",
            "unit": f"alarm and tolerance in units of the typical force error, {typical:.4f} eV/Å",
            "typical_force_error": typical,
            "chosen": chosen,
            "frames": described,
            "cost": measured_cost(uncertainty, folder),
            "verdicts": verdicts,
        }
        path = save_record(folder, "md_monitor", result)
    rows = [list(chosen[0]), *([str(value) for value in row.values()] for row in chosen)]
    return "\n".join([*aligned(rows), f"wrote {path}"])


def _runs(folder: Path, uncertainty: Fitted, seeds: Sequence[int], recorded: bool) -> dict[int, list[Recorded]]:
    """At both temperatures; only those that are there if nothing is to be recorded."""
    return {
        t: [
            Recorded(record(folder, uncertainty, t, seed))
            for seed in seeds
            if recording(folder, t, seed).exists() or not recorded
        ]
        for t in (COLD, HOT)
    }


def _verdicts(uncertainty: Fitted, runs: dict[int, list[Recorded]], typical: float) -> list[dict[str, Any]]:
    """What every rule would have done."""
    rules: dict[float | None, list[Any]] = {
        alarm: [ErrorLevel(alarm * typical, 0.9, patience=p, lost=x) for p, x in PATIENCE] for alarm in ALARMS
    }
    rules[None] = [ConformalThreshold(c, patience=p, lost=x) for c in COVERAGES for p, x in PATIENCE]
    return [
        {"rule": rule.name, "alarm": alarm, "coverage": rule.coverage, "patience": rule.patience}
        | {"lost": rule.lost if math.isfinite(rule.lost) else None, "every": stride * INTERVAL}
        | verdict
        for stride in (1, 2)
        for alarm, group in rules.items()
        for rule in group
        for verdict in judge(rule, uncertainty, runs, typical, stride)
    ]


def describe(uncertainty: Fitted, runs: Sequence[Recorded]) -> dict[str, object]:
    """How large errors and uncertainties are, and how often the bound held."""
    errors = np.concatenate([run.errors for run in runs])
    variance = np.array([frame.info["ntk_variance"] for run in runs for frame in run.frames])
    calibration = uncertainty.calibration
    assert calibration is not None
    sigma = calibration.force_sigma(variance)
    held = {f"bound_held_{c}": float(np.mean(errors <= calibration.error_bound(variance, c))) for c in (0.9, 0.95)}
    return {
        "runs": len(runs),
        "frames": len(errors),
        "force_rmse": float(np.sqrt(np.mean(errors**2))),
        "sigma_rms": float(np.sqrt(np.mean(sigma**2))),
        "spearman": spearman(sigma, errors),
        **held,
    }


def stops(uncertainty: Fitted, runs: Sequence[Recorded]) -> dict[str, list[object]]:
    """Where the default rule ends each run (null: nowhere), the true error there, and where the run ended by itself."""
    places = [run.stopped_by(ConformalThreshold(), uncertainty, 1) for run in runs]
    return {
        "stopped_at_step": [None if place is None else INTERVAL * place for place in places],
        "error_there": [None if n is None else float(run.errors[n]) for run, n in zip(runs, places, strict=True)],
        "last_step": [int(run.frames[-1].info["step"]) for run in runs],
    }


def judge(
    rule: UncertaintyRule, uncertainty: Fitted, runs: dict[int, list[Recorded]], typical: float, stride: int
) -> list[dict[str, float]]:
    """For each tolerance: how many hot runs are stopped before, at and after the first frame whose error passes it.

    At 300 K a stop is a false alarm when the error never passes it. There, the share of all frames that alarm is given
    as well: that is what a coverage speaks of.
    """
    calibration = uncertainty.calibration
    assert calibration is not None
    stops = {t: [run.stopped_by(rule, uncertainty, stride) for run in runs[t]] for t in (COLD, HOT)}
    scores = [
        rule.score(Reading.of(frame, frame.info["ntk_variance"]), calibration)
        for run in runs[COLD]
        for frame in run.frames
    ]
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
