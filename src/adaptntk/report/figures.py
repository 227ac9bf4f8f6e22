"""Figures of an evaluation and of a selection, drawn from their files."""

import csv
import json
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, Locator, LogLocator, NullLocator
from numpy.typing import NDArray

from adaptntk.core import metrics
from adaptntk.errors import InputError
from adaptntk.files import write_atomically

Array = NDArray[np.float64]

POINTS = "#4477AA"
ACCENT = "#CC3311"
NEUTRAL = "#777777"


def read_columns(path: Path) -> dict[str, Array]:
    """Numeric columns of one of our CSV files."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise InputError(f"{path}: no rows")
    numeric = [name for name in rows[0] if name != "structure"]
    return {name: np.array([float(row[name] or "nan") for row in rows]) for name in numeric}


def draw_evaluation(folder: str | Path) -> Path:
    """Scatter, reliability and risk-coverage from ``evaluation.json`` and ``evaluation.csv``."""
    folder = Path(folder)
    columns = read_columns(folder / "evaluation.csv")
    summary = json.loads((folder / "evaluation.json").read_text())
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    sigma, error = columns["forces_uncertainty"], columns["force_error"]
    scatter_panel(left, sigma, error, summary["spearman"])
    reliability_panel(middle, sigma, error, summary)
    retention_panel(right, columns[f"{summary['method']}_variance"], error, summary["aurc_n"])
    return save_figure(figure, folder / "evaluation.png")


def draw_selection(table: str | Path) -> Path:
    """What was picked, from the table that `adaptntk select` wrote: a map of the pool and the scores of the picks."""
    table = Path(table)
    columns = read_columns(table)
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    map_panel(figure, left, columns)
    picks_panel(right, columns)
    return save_figure(figure, table.with_suffix(".png"))


def scatter_panel(axes: Axes, sigma: Array, error: Array, spearman: float) -> None:
    """True error against predicted sigma on log axes, with the diagonal."""
    # Perfect crystals have no forces and no error: they are drawn at the edge instead of stretching the axes.
    low = 0.9 * min(sigma.min(), max(np.quantile(error, 0.02), error.max() / 1000))
    limits = [low, 1.1 * max(sigma.max(), error.max())]
    axes.scatter(sigma, np.maximum(error, low), s=7, alpha=0.45, color=POINTS, linewidths=0)
    axes.plot(limits, limits, "--", color=NEUTRAL, linewidth=1, label="y = x")
    axes.set(xscale="log", yscale="log", xlim=limits, ylim=limits, title="Uncertainty against error")
    axes.set(xlabel="predicted uncertainty σ (eV/Å)", ylabel="true force RMSE (eV/Å)")
    axes.text(0.05, 0.93, f"Spearman {spearman:.2f}", transform=axes.transAxes, va="top")
    axes.legend(loc="lower right", frameon=False)
    plain_log_ticks(axes)


def reliability_panel(axes: Axes, sigma: Array, error: Array, summary: dict[str, float]) -> None:
    """RMSE of equal-count bins against their root mean predicted variance."""
    bins = int(np.clip(len(sigma) // 10, 3, 10))
    rmv, rmse = metrics.calibration_bins(sigma, error, bins)
    limits = [0.9 * min(rmv.min(), rmse.min()), 1.1 * max(rmv.max(), rmse.max())]
    axes.plot(limits, limits, "--", color=NEUTRAL, linewidth=1, label="perfect")
    axes.plot(rmv, rmse, "o-", color=POINTS, markersize=5, label=f"{bins} bins")
    axes.set(xlim=limits, ylim=limits, title="Reliability")
    axes.set(xlabel="root mean predicted variance (eV/Å)", ylabel="RMSE of the bin (eV/Å)")
    text = f"ENCE {summary['ence']:.3f} (floor {summary['ence_floor']:.3f})"
    axes.text(0.05, 0.93, text, transform=axes.transAxes, va="top")
    axes.legend(loc="lower right", frameon=False)


def retention_panel(axes: Axes, variance: Array, error: Array, aurc_n: float) -> None:
    """RMSE of what is kept when the most uncertain structures are removed first."""
    kept, risk = metrics.risk_coverage(variance, error)
    _, oracle = metrics.risk_coverage(error, error)
    axes.plot(kept, risk, color=POINTS, label="by uncertainty")
    axes.plot(kept, oracle, color=NEUTRAL, linestyle=":", label="by true error")
    axes.axhline(risk[-1], color=NEUTRAL, linestyle="--", linewidth=1, label="at random")
    axes.set(xlim=(0, 1), ylim=(0.5 * oracle[len(oracle) // 20], None), title="Risk and coverage")
    axes.set(xlabel="fraction of structures kept", ylabel="RMSE of those kept (eV/Å)")
    axes.text(0.05, 0.93, f"AURC$_n$ {aurc_n:.2f}", transform=axes.transAxes, va="top")
    axes.legend(loc="lower right", frameon=False)


def map_panel(figure: Figure, axes: Axes, columns: dict[str, Array]) -> None:
    """The pool in the two directions of largest remaining uncertainty, picks circled."""
    picked = columns["pick"] > 0
    dots = axes.scatter(columns["map_x"], columns["map_y"], c=columns["forces_uncertainty"], s=9, cmap="viridis")
    axes.scatter(columns["map_x"][picked], columns["map_y"][picked], s=42, facecolors="none", edgecolors=ACCENT)
    figure.colorbar(dots, ax=axes, label="σ (eV/Å)")
    axes.set(xlabel="first principal direction of the uncertainty", ylabel="second")
    axes.set_title(f"{int(picked.sum())} of {len(picked):,} picked (circles)")


def picks_panel(axes: Axes, columns: dict[str, Array]) -> None:
    """Score of each pick before the batch and at its turn."""
    order = np.argsort(columns["pick"])[np.sort(columns["pick"]) > 0]
    turn = np.arange(1, len(order) + 1)
    axes.plot(turn, columns["variance"][order], ".", color=NEUTRAL, label="U before the batch")
    axes.plot(turn, columns["pick_score"][order], "-", color=POINTS, label="U at its turn")
    axes.set(xlabel="pick", ylabel="score U", ylim=(0, None), title="What each pick still adds")
    axes.legend(frameon=False)


def plain_log_ticks(axes: Axes) -> None:
    """0.05 rather than 5 x 10^-2 on short logarithmic axes."""
    low, high = axes.get_xlim()
    steps = (1.0, 2.0, 5.0) if high / low < 50 else (1.0,)
    for axis in (axes.xaxis, axes.yaxis):
        plain_ticks(axis, LogLocator(subs=steps))


def plain_ticks(axis: Axis, locator: Locator) -> None:
    """Ticks there only, with numbers as people write them."""
    axis.set_major_locator(locator)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a PNG, atomically."""
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=130, format="png"))
    return path
