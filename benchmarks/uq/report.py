"""The table and the figures of ``python -m benchmarks uq``, from what it left on disk."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from adaptntk.core import metrics
from adaptntk.report.axes import NEUTRAL, plain_log_ticks
from adaptntk.report.figures import read_columns, save_figure
from adaptntk.report.tables import aligned
from benchmarks.names import COLOURS, title

Array = NDArray[np.float64]

PANELS = ("ntk", "ensemble", "dropout", "evidential", "swag")
CAPTIONS = {
    "own": "error of the method's own model, as in the paper",
    "common": "error of one and the same single model",
}


def uq_table(results: dict[str, Any], timings: dict[str, Any]) -> str:
    """Markdown, columns aligned so that it reads well in a terminal too."""
    lines = [
        f"# Uncertainty methods on {results['data']}, preset {results['preset']}",
        "",
        "Each seed has a split of its own. Means over seeds; in brackets the 95 % interval from resampling structures.",
    ]
    for molecule, result in results["molecules"].items():
        lines += ["", f"## {molecule}", "", _about(results["sizes"][molecule], result)]
        for which, caption in CAPTIONS.items():
            lines += ["", f"### {molecule}: {caption}", "", *aligned(_rows(result, timings[molecule], which))]
        if (of_atoms := _atom_rows(result)) is not None:
            lines += ["", f"### {molecule}: force errors of atoms, rank correlation", "", *aligned(of_atoms)]
    scored = {entry["structures_scored"] for methods in timings.values() for entry in methods.values()}
    lines += [
        "",
        "ENCE, cross-fitted: of a sigma that was fitted within the evaluation structures, as in the paper; its floor "
        "is what a perfect sigma would show. "
        "Coverage: share of evaluation structures below the 90 % bound that the calibration structures gave. "
        "Cost: training of all networks of the method, and fit and scoring of "
        f"{' or '.join(f'{count:,}' for count in sorted(scored))} structures, in units of one training.",
        "",
    ]
    return "\n".join(lines)


def _about(sizes: dict[str, int], result: dict[str, Any]) -> str:
    """How many structures, and how far the networks came: where both errors are equal, labels are not the limit."""
    parts = {"train": "training", "valid": "validation"} | {
        part: part for part in sizes if part not in ("train", "valid")
    }
    counts = ", ".join(f"{sizes[part]:,} {word}" for part, word in parts.items())
    seeds = len(result["force_rmse"]["by_seed"])
    text = f"{counts} structures; {seeds} seed{'s' * (seeds > 1)}."
    train, test = (result.get(key, {}).get("mean") for key in ("train_force_rmse", "force_rmse"))
    if train is None or test is None:
        return text
    errors = f"{1000 * train:.1f} meV/Å on its training set, {1000 * test:.1f} on new structures"
    return f"{text} Force RMSE of the network: {errors}."


def _atom_rows(result: dict[str, Any]) -> list[list[str]] | None:
    """Of methods that tell of atoms; None if there are none."""
    known = {name: entry["atoms"] for name, entry in result["methods"].items() if "atoms" in entry}
    if not known:
        return None
    rows = [["method", "within a structure", "over all atoms"]]
    for name, of_atoms in known.items():
        rows.append([title(name), *_atom_ranks(of_atoms["score"])])
        if "model" in of_atoms:
            rows.append([f"error model of {title(name)}", *_atom_ranks(of_atoms["model"])])
    return [*rows, ["size of the force", *_atom_ranks(next(iter(known.values()))["force_size"])]]


def _atom_ranks(found: dict[str, Any]) -> list[str]:
    return [f"{found[key]['mean']:.3f}" for key in ("within", "over_all")]


def _rows(result: dict[str, Any], timings: dict[str, Any], which: str) -> list[list[str]]:
    rows = [
        [
            "method",
            "Spearman",
            "Pearson",
            "AURC_n",
            "ENCE, cross-fitted",
            "floor",
            "coverage",
            "RMSE (meV/Å)",
            "cost: training",
            "rest",
        ]
    ]
    for name, entry in result["methods"].items():
        found, cost = entry[which], timings[name]
        rows.append(
            [
                title(name),
                *(_cell(found[key], 3) for key in ("spearman", "pearson", "aurc_n")),
                _cell(found["ence_cross_fitted"], 4),
                f"{found['ence_cross_fitted_floor']['mean']:.4f}",
                f"{100 * found['coverage_0.9']['mean']:.1f} %",
                f"{1000 * found['force_rmse']['mean']:.1f}",
                f"{cost['training']:.2f}",
                f"{cost['fit'] + cost['score']:.2f}",
            ]
        )
    ence = f"{result['constant_sigma']['ence_cross_fitted']['mean']:.4f}"
    return [*rows, ["constant sigma", "", "", "", ence, "", "", "", "", ""]]


def _cell(value: dict[str, Any], digits: int) -> str:
    if value["mean"] is None:
        return "none"
    text = f"{value['mean']:.{digits}f}"
    return text if value["low"] is None else f"{text} ({value['low']:.{digits}f} .. {value['high']:.{digits}f})"


def draw_uq(folder: Path) -> list[Path]:
    """Scatter, risk-coverage and reliability of each molecule, for the first seed."""
    results = json.loads((folder / "results.json").read_text())
    drawn = []
    for molecule, result in results["molecules"].items():
        columns = read_columns(folder / molecule / f"seed-{results['seeds'][0]}" / "evaluation.csv")
        methods = list(result["methods"])
        drawn += [
            save_figure(_scatter(columns, [m for m in PANELS if m in methods]), folder / f"scatter-{molecule}.png"),
            save_figure(_retention(columns, methods), folder / f"risk-coverage-{molecule}.png"),
            save_figure(_reliability(columns, methods), folder / f"reliability-{molecule}.png"),
        ]
    return drawn


def _scatter(columns: dict[str, Array], methods: Sequence[str]) -> Figure:
    """True error against cross-fitted sigma; all panels on the same axes."""
    figure = Figure(figsize=(3.1 * len(methods), 3.4), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(methods), sharex=True, sharey=True))
    values = np.concatenate([columns[f"{m}_{what}"] for m in methods for what in ("sigma", "error")])
    limits = [0.9 * float(np.quantile(values, 0.001)), 1.1 * float(values.max())]
    for axes, method in zip(panels, methods, strict=True):
        sigma, error = columns[f"{method}_sigma"], columns[f"{method}_error"]
        axes.scatter(sigma, np.maximum(error, limits[0]), s=5, alpha=0.4, color=COLOURS[method], linewidths=0)
        axes.plot(limits, limits, "--", color=NEUTRAL, linewidth=1)
        axes.set(xscale="log", yscale="log", xlim=limits, ylim=limits, title=title(method))
        rank = metrics.spearman(columns[f"{method}_variance"], error)
        axes.text(0.05, 0.93, f"Spearman {rank:.2f}", transform=axes.transAxes, va="top")
        plain_log_ticks(axes.xaxis, axes.yaxis)
    panels[0].set_ylabel("true force RMSE (eV/Å)")
    figure.supxlabel("predicted uncertainty σ (eV/Å), recalibrated; dashed: y = x", fontsize=10)
    return figure


def _retention(columns: dict[str, Array], methods: Sequence[str]) -> Figure:
    """RMSE of what is kept when the most uncertain structures are removed first, relative to that of all."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    own, common = figure.subplots(1, 2, sharey=True)
    for axes, which in ((own, "own"), (common, "common")):
        for method in methods:
            error = columns[f"{method}_error"] if which == "own" else columns["common_error"]
            _risk_line(axes, columns[f"{method}_variance"], error, color=COLOURS.get(method), label=title(method))
        _risk_line(axes, columns["common_error"], columns["common_error"], color="black", ls=":", label="by true error")
        axes.set(xlim=(0, 1), xlabel="fraction of structures kept", title=CAPTIONS[which].capitalize())
    own.set_ylabel("RMSE of those kept, over that of all")
    own.set_ylim(0.45, 1.15)
    common.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=9, frameon=False)
    return figure


def _risk_line(axes: Axes, ranking: Array, error: Array, **style: Any) -> None:
    kept, risk = metrics.risk_coverage(ranking, error)
    first = len(kept) // 50  # the RMSE of a handful of structures is noise
    axes.plot(kept[first:], risk[first:] / risk[-1], linewidth=1.5, **style)


def _reliability(columns: dict[str, Array], methods: Sequence[str]) -> Figure:
    """RMSE of ten equal-count bins against their predicted one: the longer the line, the more sigma says."""
    width = min(5 if len(methods) <= 10 else 6, len(methods))
    rows = -(-len(methods) // width)
    figure = Figure(figsize=(2.6 * width, 2.7 * rows + 0.3), layout="constrained")
    panels = figure.subplots(rows, width, sharex=True, sharey=True, squeeze=False).ravel()
    bins = [metrics.calibration_bins(columns[f"{m}_sigma"], columns[f"{m}_error"]) for m in methods]
    seen = np.concatenate([np.concatenate(pair) for pair in bins])
    limits = [0.95 * float(seen.min()), 1.05 * float(seen.max())]
    for axes, method, (rmv, rmse) in zip(panels, methods, bins, strict=False):
        axes.plot(limits, limits, "--", color=NEUTRAL, linewidth=1)
        axes.plot(rmv, rmse, "o-", markersize=4, linewidth=1, color=COLOURS.get(method))
        axes.set(xlim=limits, ylim=limits)
        axes.set_title(title(method), fontsize=10)
    for axes in panels[len(methods) :]:
        axes.set_visible(False)
    figure.supxlabel("root mean predicted variance of the bin (eV/Å)", fontsize=10)
    figure.supylabel("RMSE of the bin (eV/Å)", fontsize=10)
    return figure
