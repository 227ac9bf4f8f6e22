"""The table and the figures of ``python -m benchmarks al``, from what it left on disk."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from adaptntk.report.comparison import show_ratio
from adaptntk.report.figures import save_figure
from adaptntk.report.tables import aligned
from benchmarks.names import COLOURS, title

# Test sets of single frames, one of each reaction.
TOPS = "transition states"
NAMES = {
    "force_rmse": "force RMSE (meV/Å)",
    "force_rmse_p99": "force RMSE, 99th percentile (meV/Å)",
    "hot_force_rmse": "force RMSE of the hottest tenth (meV/Å)",
    "energy_mae_per_atom": "energy MAE (meV/atom)",
}


def al_table(results: dict[str, Any]) -> str:
    """Markdown: of each task and test set, errors at the end, labels needed and the ratio to random."""
    lines = [f"# Active learning, preset {results['preset']}, {len(results['seeds'])} seeds"]
    for task, content in results["tasks"].items():
        summary, sizes = content["summary"], content["sizes"]
        level = f" with labels of {content['level_of_theory']}" if content.get("level_of_theory") else ""
        lines += [
            "",
            f"Pool of {sizes['pool']:,} structures{level}; {sizes['initial']} labels to train on at the start, "
            f"{sizes['batch']} more at each checkpoint, and {sizes['valid']} for validation, which are counted.",
        ]
        for test in (name for name in summary if name != "labels"):
            lines += ["", f"## {task}, {test}", "", *aligned(_rows(summary[test], summary["labels"], TOPS not in test))]
    lines += [
        "",
        "Labels to random's last: where the curve comes down to what random reaches with all its labels (mean over "
        "seeds; 'never' if not all seeds do). Over random, over AdaptNTK: geometric mean of the paired ratios, 95 % "
        "t-interval over seeds; area: mean of the logarithm over the whole curve. Errors in meV/Å and meV per atom.",
        "",
    ]
    return "\n".join(lines)


def _rows(summary: dict[str, Any], labels: list[int], tails: bool) -> list[list[str]]:
    """``tails``: are there enough frames for a tail?"""
    rows = []
    for method, found in summary["force_rmse"].items():
        needed = found["labels_to_random"]["mean"]
        row = {"method": title(method)}
        row |= {f"RMSE at {n}": f"{1000 * value:.1f}" for n, value in zip(labels, found["mean"], strict=True)}
        for name, key, reference in (
            ("last, over random", "final_over_random", "random"),
            ("area, over random", "area_over_random", "random"),
            ("area, over AdaptNTK", "area_over_adaptntk", "adaptntk"),
        ):
            if found[key] is not None:
                row[name] = "1" if method == reference else show_ratio(found[key])
        row["labels to random's last"] = "never" if needed is None else f"{needed:.0f}"
        if tails:
            row["p99"] = f"{1000 * summary['force_rmse_p99'][method]['mean'][-1]:.0f}"
            row["hottest tenth"] = f"{1000 * summary['hot_force_rmse'][method]['mean'][-1]:.1f}"
        row["energy MAE"] = f"{1000 * summary['energy_mae_per_atom'][method]['mean'][-1]:.2f}"
        rows.append(row)
    return [list(rows[0]), *(list(row.values()) for row in rows)]


def draw_al(folder: Path) -> list[Path]:
    """Learning curves of each task with a band of one standard deviation, on log axes."""
    results = json.loads((folder / "results.json").read_text())
    drawn = []
    for task, content in results["tasks"].items():
        summary = content["summary"]
        tests = [name for name in summary if name != "labels"]
        rows = [_panels(test, tests) for test in tests if TOPS not in test]
        figure = Figure(figsize=(4.2 * len(rows[0]), 4.0 * len(rows) + 0.2), layout="constrained")
        grid = figure.subplots(len(rows), len(rows[0]), squeeze=False)
        for axes, (test, metric) in zip(grid.flat, itertools.chain(*rows), strict=True):
            _curves(axes, summary["labels"], summary[test][metric])
            axes.set_title(f"{task}, {test}" if len(tests) == 1 else test, fontsize=10)
            axes.set_ylabel(NAMES[metric])
        handles, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=9, frameon=False)
        drawn.append(save_figure(figure, folder / f"curves-{task}.png"))
    return drawn


def _panels(test: str, tests: list[str]) -> list[tuple[str, str]]:
    """A row of the figure: a test set with its tail, and its transition states if it has some."""
    tops = test.replace("reactions", TOPS)
    last = (tops, "force_rmse") if tops != test and tops in tests else (test, "energy_mae_per_atom")
    return [(test, "force_rmse"), (test, "hot_force_rmse"), (test, "force_rmse_p99"), last]


def _curves(axes: Axes, labels: list[int], by_method: dict[str, Any]) -> None:
    for number, (method, found) in enumerate(by_method.items()):
        mean, std = 1000 * np.array(found["mean"]), 1000 * np.array(found["std"])
        colour = COLOURS.get(method, f"C{number}")
        axes.plot(labels, mean, "o-", markersize=4, color=colour, label=title(method))
        axes.fill_between(labels, np.maximum(mean - std, 1e-3), mean + std, color=colour, alpha=0.12, linewidth=0)
    axes.set(xscale="log", yscale="log", xlabel="labels, validation included")
    axes.set_xticks(labels, [str(n) for n in labels])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(alpha=0.2)
