"""The table and the figure of ``python -m benchmarks training``, from what it left on disk."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from adaptntk.report.figures import save_figure
from adaptntk.report.tables import aligned
from benchmarks.names import COLOURS, title
from benchmarks.training.curve import at, moments
from benchmarks.training.plan import OURS, THEIRS
from benchmarks.training.verdict import Runs, budget, columns, compare, goals, listed_errors

METRICS = {"force_rmse": "force RMSE (meV/Å)", "energy_mae_per_atom": "energy MAE (meV/atom)"}


def training_table(results: dict[str, Any]) -> str:
    """Markdown: of each data set, errors at fixed times; the race; what must be reached, and whether it is."""
    lines = [f"# Test error against time of training: {results['study']}, preset {results['preset']}"]
    for name, content in results["data"].items():
        sizes, runs = content["structures"], content["runs"]
        counts = f"{sizes['train']} labels, {sizes['valid']} for validation, {sizes['test']} to test"
        lines += ["", f"## {name}: {counts}; {budget(runs):g} s"]
        for metric, unit in METRICS.items():
            lines += ["", f"Test {unit}, median over seeds", "", *aligned(_rows(runs, metric))]
        if results["study"] == "race":
            lines += ["", *(_race(runs, metric) for metric in METRICS)]
    lines += [
        "",
        "Seconds of one processor, validation included. Errors are those of the network that would be handed over at "
        "that moment: the best so far by the program's own validation. End: the network that was handed over.",
    ]
    if results["study"] == "race" and results["preset"] != "smoke":
        lines += ["", "## Must reach", "", *(f"* {goal.line()}" for goal in goals(results["data"]))]
    return "\n".join([*lines, ""])


def _rows(runs: Runs, metric: str) -> list[list[str]]:
    times = columns(budget(runs))
    rows = [["entrant", *(f"{time:g} s" for time in times), "end", "at", "train, end", "steps", "parameters", "seeds"]]
    for who, several in runs.items():
        ended = np.median([run["points"][-1]["seconds"] for run in several])
        rows.append(
            [
                title(who),
                *(_digits(value) for value in listed_errors(several, times, metric)),
                f"{ended:.0f} s",
                _digits(float(np.median([run["train"][metric] for run in several]))),
                f"{np.median([run['steps'] for run in several]):,.0f}",
                f"{several[0]['parameters']:,}",
                str(len(several)),
            ]
        )
    return rows


def _digits(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _race(runs: Runs, metric: str) -> str:
    """Ours over theirs, rounded up."""
    found = compare(runs, metric)
    if found is None:
        return f"{METRICS[metric]}: {OURS} and {THEIRS} have no seed in common."
    end = f"{_up(found.end)} at the end"
    if found.worst is None or found.worst_at is None:
        return f"{METRICS[metric]}, {OURS} / {THEIRS}: {end}."
    return (
        f"{METRICS[metric]}, {OURS} / {THEIRS}: largest ratio after the first minute {_up(found.worst)} "
        f"(at {found.worst_at:.0f} s), {end}."
    )


def _up(ratio: float) -> str:
    return f"{math.ceil(1000 * ratio) / 1000:.3f}"


def draw_training(folder: Path, name: str) -> Path:
    """A column per data set, forces above energies, on log axes: medians, and the range over seeds."""
    results = json.loads((folder / f"{name}.json").read_text())["data"]
    figure = Figure(figsize=(max(6.0, 4.2 * len(results)), 8.6), layout="constrained")
    grid = figure.subplots(len(METRICS), len(results), squeeze=False)
    for column, (data, content) in zip(grid.T, results.items(), strict=True):
        for axes, (metric, label) in zip(column, METRICS.items(), strict=True):
            _curves(axes, content["runs"], metric)
            axes.set_ylabel(label)
        column[0].set_title(f"{data}, {content['structures']['train']} labels", fontsize=10)
        column[-1].set_xlabel("seconds of one processor")
    handles = {
        label: handle for axes in grid.flat for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(),
        handles,
        loc="outside upper left",
        ncols=min(len(handles), 2 * len(results)),
        fontsize=9,
        frameon=False,
    )
    return save_figure(figure, folder / f"{name}.png")


def _curves(axes: Axes, runs: Runs, metric: str) -> None:
    for number, (who, several) in enumerate(runs.items()):
        ends = [run["points"][-1]["seconds"] for run in several]
        begin = max(run["points"][0]["seconds"] for run in several)
        times = moments(max(ends))
        times = np.concatenate([[begin], times[times > begin]])
        values = np.array([at(times, run["points"], metric) for run in several])
        colour = COLOURS.get(who, f"C{number % 10}")
        style = "-" if number < 10 else "--"
        axes.plot(times, np.median(values, axis=0), style, color=colour, label=title(who))
        axes.plot(times[-1], np.median(values[:, -1]), "o", markersize=4, color=colour)
        axes.fill_between(times, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.12, linewidth=0)
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(alpha=0.2)
