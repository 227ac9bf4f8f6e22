"""``adaptntk benchmark timing``: one round of active learning with each method, and where its time goes."""

import dataclasses
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adaptntk.errors import InputError
from adaptntk.files import locked, make_folder, write_atomically, write_json
from adaptntk.report.tables import aligned
from adaptntk.uncertainty.workbench import FolderWorkbench
from benchmarks.al import PLANS, Job, check_method, choose_batch, sizes_of
from benchmarks.al_data import Task
from benchmarks.al_report import title
from benchmarks.jobs import find_plan
from benchmarks.oracle import Oracle
from benchmarks.record import check_same_experiment, save_result

log = logging.getLogger(__name__)

# Labels that the networks are trained on.
LABELS = {"cpu": 200, "paper": 1000, "smoke": 20}
DEFAULT_METHODS = ("adaptntk", "topb", "lcmd", "bait", "qbc", "mcd", "swag", "edl", "llpr", "random")


def benchmark_timing(
    output: str | Path,
    task: Task,
    preset: str = "cpu",
    methods: Sequence[str] = DEFAULT_METHODS,
    device: str = "auto",
    seed: int = 0,
) -> dict[str, Any]:
    """Train what each method needs, score the pool, choose a batch; writes ``timing.json`` and ``table.md``.

    Methods take turns, nothing runs beside them. A network that several methods need is trained once, and its time
    counted for each of them. Networks are found again after an interruption.
    """
    plan = find_plan(PLANS, preset)
    for method in methods:
        check_method(method)
    if "adaptntk" not in methods:
        raise InputError("the method adaptntk must be among those compared: the others are measured by it")
    folder = make_folder(output)
    sizes = dataclasses.replace(sizes_of(plan, task), initial=LABELS[preset], checkpoints=1)
    with locked(folder):
        task.prepare(sizes, preset == "smoke", 1)
        identity = {"preset": preset, "plan": dataclasses.asdict(plan), "task": task.name, "data": task.identity}
        check_same_experiment(folder, identity)
        data = task.load(sizes, seed)
        oracle = Oracle(data.pool)
        labelled = oracle.buy(data.initial)
        recipe = Job(task, seed, "start", plan, folder, device).recipe
        bench = FolderWorkbench(labelled, data.valid, folder / "networks", recipe, seed, device)
        bench.member(0)
        seconds: dict[str, dict[str, float]] = {}
        for method in methods:
            path = folder / f"{method}.json"
            if not path.exists():
                bench.used.clear()
                job = Job(task, seed, method, plan, folder, device)
                choice = choose_batch(job, bench, oracle)
                if not bench.used:  # random: nothing is asked, but a network is wanted
                    bench.member(0)
                spent = bench.training_seconds()
                found = {"training": sum(spent[name] for name in bench.used), **choice.seconds}
                write_json(path, found)
                log.info("%s: %s", method, ", ".join(f"{what} {value:.1f} s" for what, value in found.items()))
            seconds[method] = json.loads(path.read_text())
    result = {"preset": preset, "task": task.name, "labels": len(labelled), "candidates": len(data.pool),
              "picks": sizes.batch, "seconds": seconds, "ratios": ratios(seconds)}  # fmt: skip
    save_result(folder, "timing", result)
    write_atomically(folder / "table.md", lambda temporary: temporary.write_text(timing_table(result)))
    return result


def ratios(seconds: dict[str, dict[str, float]]) -> dict[str, float]:
    """Total time of each method over that of AdaptNTK."""
    totals = {method: sum(parts.values()) for method, parts in seconds.items()}
    return {method: total / totals["adaptntk"] for method, total in totals.items()}


def timing_table(result: dict[str, Any]) -> str:
    """Markdown: training and uncertainty, selection, total, as in the paper's table, and the ratio."""
    rows = [["method", "training (s)", "uncertainty (s)", "selection (s)", "total (s)", "over AdaptNTK"]]
    for method, parts in result["seconds"].items():
        values = [parts["training"], parts["uncertainty"], parts["selection"], sum(parts.values())]
        rows.append([title(method), *(f"{value:.1f}" for value in values), f"{result['ratios'][method]:.2f}"])
    heading = (
        f"# One round of active learning on {result['task']}, preset {result['preset']}: {result['labels']} labels, "
        f"{result['picks']} picks of {result['candidates']:,} candidates"
    )
    return "\n".join([heading, "", *aligned(rows), ""])
