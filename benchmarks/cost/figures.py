"""Figures of the cost benchmarks, from the JSON files that they write."""

import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, NullFormatter

from adaptntk.report.axes import ACCENT, NEUTRAL, POINTS
from adaptntk.report.figures import save_figure

COLOURS = {
    "gradients": POINTS,
    "adaptntk": POINTS,
    "gaussian": ACCENT,
    "srht": POINTS,
    "sparse": NEUTRAL,
    "stock batched backward": NEUTRAL,
    "passes over the pool": NEUTRAL,
    "loop": ACCENT,
}
NAMES = {
    "gradients": "exact gradient of each structure, batched",
    "stock batched backward": "stock MACE, one summed backward",
    "loop": "stock MACE, one backward per structure",
    "adaptntk": "50 picks, scores included",
    "passes over the pool": "50 products with a vector",
}


def draw_features(folder: Path) -> Path:
    """Cost of gradients against parameters and atoms, of sketches against p."""
    data = json.loads((folder / "features.json").read_text())
    figure = Figure(figsize=(13, 4), layout="constrained")
    axes = figure.subplots(1, 3)
    _lines(axes[0], data["by_parameters"], "parameters", "milliseconds", "number of parameters")
    _lines(axes[1], data["by_atoms"], "atoms", "milliseconds", "number of atoms")
    _lines(axes[2], data["by_dim"], "dim", "milliseconds", "dimension p of the sketch")
    axes[0].set_ylabel("ms per structure")
    axes[2].set_title("projection of gradients, S kept", fontsize=10)
    axes[0].set_title(f"batches of {data['batch']} {data['structures'].split()[-1]}", fontsize=10)
    axes[1].set_title("clusters of that molecule, batches of 4", fontsize=10)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=3, fontsize=9, frameon=False)
    axes[2].legend(fontsize=9, frameon=False)
    return save_figure(figure, folder / "features.png")


def draw_selection_cost(folder: Path) -> Path:
    """Cost of a batch against the size of the pool and p."""
    data = json.loads((folder / "selection.json").read_text())
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    _lines(axes[0], data["by_pool"], "candidates", "seconds", f"candidates (p = {data['dim']})")
    _lines(axes[1], data["by_dim"], "dim", "seconds", f"dimension p ({data['by_pool'][1]['candidates']:,} candidates)")
    axes[0].set_ylabel(f"seconds for {data['picks']} picks")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=2, fontsize=9, frameon=False)
    return save_figure(figure, folder / "selection.png")


def _lines(axis: Axes, points: list[dict[str, Any]], x: str, y: str, label: str) -> None:
    for name in points[0][y]:
        values = [point[y][name] for point in points]
        axis.plot(
            [point[x] for point in points],
            [value["median"] for value in values],
            "o-",
            color=COLOURS[name],
            label=NAMES.get(name, name),
            markersize=4,
        )
        axis.fill_between(
            [point[x] for point in points],
            [value["low"] for value in values],
            [value["high"] for value in values],
            color=COLOURS[name],
            alpha=0.2,
            linewidth=0,
        )
    axis.set(xscale="log", yscale="log", xlabel=label)
    axis.set_xticks([point[x] for point in points], [f"{point[x]:,}" for point in points], fontsize=8)
    axis.xaxis.set_minor_formatter(NullFormatter())
    for which in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
        which(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.5)))
    axis.grid(which="both", alpha=0.2)
