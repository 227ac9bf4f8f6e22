"""``adaptntk benchmark campaign`` and ``adaptntk demo``: whole campaigns beside one another, labels and all."""

import dataclasses
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from ase import Atoms

from adaptntk.campaign.config import Overrides
from adaptntk.campaign.layout import RunDirectory
from adaptntk.campaign.loop import run_campaign
from adaptntk.campaign.records import RoundSummary
from adaptntk.core.selection.registry import check_selector
from adaptntk.data.structures import write_structures
from adaptntk.data.xtb_md import build_molecule, sample_md
from adaptntk.errors import InputError
from adaptntk.files import locked, make_folder, write_atomically, write_json
from adaptntk.report.tables import aligned
from adaptntk.verbs.report import report as write_report
from benchmarks.al_report import show_ratio
from benchmarks.al_results import labels_needed, log_area, ratio_interval
from benchmarks.jobs import find_plan, run_all
from benchmarks.record import check_same_experiment, save_result

log = logging.getLogger(__name__)

# Far from the seeds of campaigns.
FIRST_TEST_SEED = 1_000_000


@dataclass(frozen=True)
class Plan:
    """The size of the campaigns; test structures come from several trajectories."""

    temperature: float
    trajectories: int
    frames: int
    config: dict[str, Any]


PLANS = {
    "cpu": Plan(
        temperature=800.0,
        trajectories=10,
        frames=30,
        config={
            "start": {"sampling": "normal_modes", "temperature": 800.0},
            "first": {"train": 20, "valid": 20, "holdout": 10},
            "round": {"train": 15, "valid": 2, "holdout": 3},
            "explore": {"temperatures": [800.0], "trajectories": 6, "steps": 500, "interval": 10, "patience": 10},
            "train": {"preset": "small", "epochs": 60, "batch_size": 5},
            "stop": {"rounds": 4},
        },
    ),
    "smoke": Plan(
        temperature=400.0,
        trajectories=2,
        frames=10,
        config={
            "start": {},
            "first": {"train": 8, "valid": 10, "holdout": 4},
            "round": {"train": 3, "valid": 1, "holdout": 2},
            "explore": {
                "temperatures": [400.0], "trajectories": 2, "steps": 60, "interval": 3, "coverage": 0.9,
                "patience": 12, "lost": 100.0, "min_distance": 0.01,
            },
            "train": {"preset": "tiny", "epochs": 3},
            "uncertainty": {"sketch_dim": 64},
            "stop": {"rounds": 2},
        },
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One campaign."""

    config: Path
    method: str
    seed: int
    device: str


def benchmark_campaign(
    output: str | Path,
    molecule: str = "ethanol",
    preset: str = "cpu",
    seeds: int = 3,
    methods: Sequence[str] = ("adaptntk", "random"),
    jobs: int | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """Campaigns that differ in how they select, with the same budget; how many labels each needs for the same error.

    All models are tested on the same frames of GFN2-xTB dynamics, which no campaign sees. The last error of ``random``
    is what the others have to reach. Interrupted and called again, it goes on where it was.
    """
    plan = find_plan(PLANS, preset, seeds)
    for method in methods:
        check_selector(method)
    if "random" not in methods:
        raise InputError("the method random must be among those compared: the others are measured by it")
    folder = make_folder(output)
    with locked(folder):
        check_same_experiment(folder, {"molecule": molecule, "preset": preset, "plan": dataclasses.asdict(plan)})
        test = folder / "test.xyz"
        if not test.exists():
            write_structures(test, _test_structures(plan, molecule))
        work = [Job(_write(folder, plan, molecule, m, seed), m, seed, device) for seed in range(seeds) for m in methods]
        run_all(_run, work, jobs, device, lambda job: f"seed {job.seed}, {job.method}")
        return _results(folder, preset, methods, range(seeds))


def _test_structures(plan: Plan, molecule: str) -> list[Atoms]:
    count = plan.trajectories * plan.frames
    log.info("%d test structures: GFN2-xTB dynamics at %.0f K", count, plan.temperature)
    start = build_molecule(molecule)
    seeds = range(FIRST_TEST_SEED, FIRST_TEST_SEED + plan.trajectories)
    runs = [sample_md(start, plan.frames, plan.temperature, interval=20, seed=seed) for seed in seeds]
    return [frame for run in runs for frame in run]


def _write(folder: Path, plan: Plan, molecule: str, method: str, seed: int) -> Path:
    name = run_folder(folder, method, seed).name
    config = {"name": name, "seed": seed, "test": "test.xyz"} | plan.config
    config["start"] = {"molecule": molecule, **plan.config["start"]}
    path = folder / f"{name}.yaml"
    text = yaml.safe_dump(config | {"select": {"method": method}}, sort_keys=False)
    write_atomically(path, lambda temporary: temporary.write_text(text))
    return path


def run_folder(folder: Path, method: str, seed: int) -> Path:
    """The run directory of a campaign."""
    return folder / "runs" / f"{method}-{seed}"


def _run(job: Job) -> None:
    def report(summary: RoundSummary) -> None:
        assert summary.test is not None
        done = f"{job.config.stem}, round {summary.round}"
        error = 1000 * summary.test.force_rmse
        log.info("%s: %d labels, force RMSE on the test structures %.0f meV/Å", done, summary.labels_spent, error)

    run_campaign(job.config, resume=True, overrides=Overrides("serial", device=job.device), on_round=report)


def _results(folder: Path, preset: str, methods: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
    curves = {m: [_curve(run_folder(folder, m, seed)) for seed in seeds] for m in methods}
    last = np.array([curve["force_rmse"][-1] for curve in curves["random"]])
    summary = {}
    for method, found in curves.items():
        needed = [
            labels_needed(np.array(curve["labels"], dtype=float), np.array(curve["force_rmse"]), target)
            for curve, target in zip(found, last, strict=True)
        ]
        final = [curve["force_rmse"][-1] for curve in found]
        summary[method] = {
            "labels_to_random": needed,
            "final_over_random": ratio_interval(final, last),
            "area_over_random": ratio_interval(_areas(found, "force_rmse"), _areas(curves["random"], "force_rmse")),
            "p99_area_over_random": ratio_interval(
                _areas(found, "force_rmse_p99"), _areas(curves["random"], "force_rmse_p99")
            ),
        }
    results = {"preset": preset, "seeds": list(seeds), "curves": curves, "summary": summary}
    write_json(folder / "results.json", results)
    save_result(folder, "campaign", {"summary": summary})
    write_atomically(folder / "table.md", lambda temporary: temporary.write_text(campaign_table(results)))
    reported = [run_folder(folder, method, seeds[0]) for method in methods]
    write_report(run=reported[0], output=folder / "report.html", beside=reported[1:])
    return results


def _areas(curves: Sequence[dict[str, list[float]]], name: str) -> list[float]:
    """Geometric means of the error over the whole curve."""
    return [math.exp(log_area(np.array(curve["labels"], dtype=float), np.array(curve[name]))) for curve in curves]


def _curve(run: Path) -> dict[str, list[float]]:
    """Labels and errors on the test structures after each round; the tail as well."""
    summaries = [summary for entry in RunDirectory(run).rounds() if (summary := entry.summary()) is not None]
    tested = [summary.test for summary in summaries if summary.test is not None]
    return {
        "labels": [summary.labels_spent for summary in summaries],
        "force_rmse": [errors.force_rmse for errors in tested],
        "force_rmse_p99": [errors.force_rmse_p99 for errors in tested],
    }


def campaign_table(results: dict[str, Any]) -> str:
    """Markdown: errors after each round, means over seeds, and the labels for random's last error."""
    curves = results["curves"]
    labels = next(iter(curves.values()))[0]["labels"]
    ratios = {"area, over random": "area_over_random", "area of the 99th percentile": "p99_area_over_random"}
    rows = [["selection", *(f"{n} labels" for n in labels), *ratios, "labels to random's last"]]
    for method, found in curves.items():
        errors = 1000 * np.mean([curve["force_rmse"] for curve in found], axis=0)
        summary = results["summary"][method]
        shown = ["1" if method == "random" else show_ratio(summary[name]) for name in ratios.values()]
        needed = ", ".join("never" if n is None else f"{n:.0f}" for n in summary["labels_to_random"])
        rows.append([method, *(f"{e:.1f}" for e in errors), *shown, needed])
    count = len(results["seeds"])
    head = f"Force RMSE (meV/Å) on common test structures, mean of {count} seed{'s' if count > 1 else ''}:"
    return "\n".join([head, "", *aligned(rows), ""])
