"""``python -m benchmarks timing``: one round of active learning with each method, and where its time goes."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from adaptntk.errors import InputError
from adaptntk.files import make_folder, write_json
from adaptntk.report.tables import aligned
from adaptntk.uncertainty.folder_workbench import FolderWorkbench
from benchmarks.al.choice import Chooser, check_method
from benchmarks.al.plan import PLANS
from benchmarks.data.oracle import Oracle
from benchmarks.data.tasks import find_tasks
from benchmarks.harness.experiment import check_same_experiment, experiment, find_plan, log
from benchmarks.harness.record import save_record, save_table
from benchmarks.names import title
from benchmarks.settings import RoundTiming, listed

# Labels that the networks are trained on.
LABELS = {"cpu": 200, "paper": 1000, "smoke": 20}
SEED = 0


def run(settings: RoundTiming) -> str:
    """Train what each method needs, score the pool, choose a batch; writes ``timing.json`` and ``table.md``.

    Methods take turns, nothing runs beside them. A network that several methods need is trained once, and its time
    counted for each of them. Networks are found again after an interruption.
    """
    plan = find_plan(PLANS, settings.preset)
    methods, tasks = listed(settings.methods), find_tasks(settings)
    for method in methods:
        check_method(method)
    if "adaptntk" not in methods:
        raise InputError("the method adaptntk must be among those compared: the others are measured by it")
    if len(tasks) > 1:
        raise InputError("times are taken with one molecule: name only one")
    task = tasks[0]
    sizes = dataclasses.replace(plan.sizes_of(task), initial=LABELS[settings.preset], checkpoints=1)
    with experiment(settings.output, {"preset": settings.preset, "plan": dataclasses.asdict(plan)}) as folder:
        task.prepare(sizes, settings.preset == "smoke", 1)
        check_same_experiment(make_folder(folder / "data"), {"task": task.name, "data": task.identity})
        data = task.load(sizes, SEED)
        oracle = Oracle(data.pool)
        labelled, seconds = oracle.buy(data.initial), {}
        for method in methods:
            bench = FolderWorkbench(
                labelled,
                data.valid,
                SEED,
                folder=folder / "networks",
                recipe=plan.recipe_of(task),
                device=settings.device,
            )
            bench.member(0)
            seconds[method] = _time(Chooser(method, sizes.batch, SEED, plan.options), bench, oracle, folder)
        result = {"preset": settings.preset, "task": task.name, "labels": len(labelled), "candidates": len(data.pool),
                  "picks": sizes.batch, "seconds": seconds, "ratios": ratios(seconds)}  # fmt: skip
        save_record(folder, "timing", result)
        save_table(folder, timing_table(result))
    return f"{timing_table(result)}\nwrote timing.json and table.md to {folder}"


def _time(chooser: Chooser, bench: FolderWorkbench, oracle: Oracle, folder: Path) -> dict[str, float]:
    """Seconds of one round; those of a round that was timed before are read."""
    path = folder / f"{chooser.method}.json"
    if not path.exists():
        choice, spent = chooser.choose(bench, oracle), bench.training_seconds()
        found = {"training": sum(spent[name] for name in choice.networks), **choice.seconds}
        write_json(path, found)
        log.info("%s: %s", chooser.method, ", ".join(f"{what} {value:.1f} s" for what, value in found.items()))
    return dict(json.loads(path.read_text()))


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
