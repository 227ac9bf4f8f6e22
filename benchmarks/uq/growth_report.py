"""The table and the figure of ``python -m benchmarks growth``."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from adaptntk.report.figures import save_figure
from adaptntk.report.tables import aligned
from benchmarks.names import title

Curve = dict[str, float]
# What is varied, what is drawn of it, and where in the records that is.
PANELS: dict[str, tuple[str, Callable[[Sequence[Any]], Curve]]] = {
    "force rows of a label": ("U", lambda records: over_seeds([record["rows"] for record in records])),
    "dimensions of the sketch": ("U", lambda records: over_seeds([record["dimensions"] for record in records])),
    "ridge alpha": (
        "U",
        lambda records: over_seeds(
            [dict(zip(map(str, r["ridge"]["alphas"]), r["ridge"]["ranks"], strict=True)) for r in records]
        ),
    ),
    "members": ("sqrt(U V)", lambda records: _of_members(records, "both")),
    "members, atoms": ("v, within a structure", lambda records: _of_members(records, "atoms")),
}


def over_seeds(tables: Sequence[Curve]) -> Curve:
    """The mean over seeds, of what all seeds have."""
    common = [entry for entry in tables[0] if all(entry in table for table in tables)]
    return {entry: float(np.mean([table[entry] for table in tables])) for entry in common}


def _of_members(records: Sequence[Any], what: str) -> Curve:
    return over_seeds([{count: ranks[what] for count, ranks in record["members"].items()} for record in records])


def growth_table(results: dict[str, Any]) -> str:
    """Markdown: a table for each thing that is varied."""
    lines = ["# How the quality of a score grows", "", "Rank correlation with the true force error; means over seeds."]
    scans = results["scans"]
    for what, (score, curve) in PANELS.items():
        curves = {name: curve(records) for name, records in scans.items()}
        columns = list(dict.fromkeys(entry for found in curves.values() for entry in found))
        columns.sort(key=float)
        rows = [["data", "labels", *columns, "seeds"]]
        for name, found in curves.items():
            numbers = [f"{found[entry]:.3f}" if entry in found else "" for entry in columns]
            rows.append([name, str(scans[name][0]["labels"]), *numbers, str(len(scans[name]))])
        lines += ["", f"## {what} ({score})", "", *aligned(rows)]
    lines += ["", "## What the validation set would choose as ridge", "", *aligned(_ridge_rows(scans))]
    lines += ["", "## An atom 0.3 Å out of place has the largest score", "", *aligned(_displaced_rows(scans))]
    for name, records in results["sizes"].items():
        lines += ["", f"## {name}: labels and width", "", *aligned(_size_rows(records))]
    return "\n".join([*lines, ""])


def _ridge_rows(scans: dict[str, Any]) -> list[list[str]]:
    rows = [["data", "alpha, by seed", "gain over 1e-8 on new structures, by seed"]]
    for name, records in scans.items():
        chosen = ", ".join(f"{record['ridge']['chosen']:.0e}" for record in records)
        rows.append([name, chosen, ", ".join(f"{record['ridge']['gain']:+.3f}" for record in records)])
    return rows


def _displaced_rows(scans: dict[str, Any]) -> list[list[str]]:
    counts = list(next(iter(scans.values()))[0]["displaced"])
    rows = [["data", "which atom is first", *(f"{count} members" for count in counts)]]
    for name, records in scans.items():
        for what in records[0]["displaced"][counts[0]]:
            shares = over_seeds([{count: record["displaced"][count][what] for count in counts} for record in records])
            rows.append([name, what, *(f"{100 * shares[count]:.0f} %" for count in counts)])
    return rows


def _size_rows(records: Sequence[Any]) -> list[list[str]]:
    methods = [key for key in records[0] if key.startswith("ntk") or key in ("energy", "force_size")]
    rows = [["labels", "channels", "parameters", "RMSE on labels", "on new ones", *map(title, methods), "seeds"]]
    for (labels, channels), several in _by_size(records).items():
        errors = [1000 * np.mean([record[key] for record in several]) for key in ("train_force_rmse", "force_rmse")]
        ranks = [np.mean([record[method] for record in several]) for method in methods]
        rows.append(
            [
                str(labels),
                str(channels),
                f"{several[0]['parameters']:,}",
                *(f"{error:.1f} meV/Å" for error in errors),
                *(f"{rank:.3f}" for rank in ranks),
                str(len(several)),
            ]
        )
    return rows


def _by_size(records: Sequence[Any]) -> dict[tuple[int, int], list[Any]]:
    found: dict[tuple[int, int], list[Any]] = {}
    for record in sorted(records, key=lambda record: (record["channels"], record["labels"])):
        found.setdefault((record["labels"], record["channels"]), []).append(record)
    return found


def draw_growth(results: dict[str, Any], path: Path) -> Path:
    """A panel for each thing that is varied, a line for each data set; labels and width of one data set."""
    figure = Figure(figsize=(14.0, 7.0), layout="constrained")
    panels = figure.subplots(2, 4).flatten()
    for axes, (what, (score, curve)) in zip(panels, PANELS.items(), strict=False):
        for number, (name, records) in enumerate(results["scans"].items()):
            found = curve(records)
            _line(axes, [float(entry) for entry in found], list(found.values()), f"C{number}", name)
        axes.set(title=what, ylabel=f"rank correlation of {score}")
    *sizes, beside = panels[len(PANELS) :]
    for axes, what in zip(sizes, ("labels", "channels"), strict=True):
        for name, records in results["sizes"].items():
            _sizes(axes, records, what)
            axes.set(title=f"{what}, {name}", ylabel="rank correlation")
    beside.axis("off")
    for axes, place in ((panels[0], "upper left"), (sizes[0], "lower left")):
        beside.add_artist(beside.legend(*axes.get_legend_handles_labels(), loc=place, fontsize=8, frameon=False))
    return save_figure(figure, path)


def _sizes(axes: Axes, records: Sequence[Any], what: str) -> None:
    other = "channels" if what == "labels" else "labels"
    values = [record[other] for record in records]
    usual = max(set(values), key=values.count)
    chosen = _by_size([record for record in records if record[other] == usual])
    methods = [key for key in records[0] if key.startswith("ntk") or key in ("energy", "force_size")]
    for number, method in enumerate(methods):
        means = [float(np.mean([record[method] for record in several])) for several in chosen.values()]
        _line(axes, [several[0][what] for several in chosen.values()], means, f"C{number}", title(method))


def _line(axes: Axes, x: Sequence[float], y: Sequence[float], colour: str, label: str) -> None:
    """On a logarithmic axis, on which nothing stands at half of the smallest number."""
    smallest = min((value for value in x if value > 0), default=1.0)
    places = [value or smallest / 2 for value in x]
    axes.plot(places, y, "o-", markersize=3, color=colour, label=label)
    axes.set_xscale("log")
    if max(places) < 1:
        return
    axes.set_xticks(places, [f"{value:g}" for value in x])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
