"""Figures of an evaluation and of a selection, drawn from their files."""

import csv
import json
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adaptntk.core import metrics
from adaptntk.errors import InputError
from adaptntk.files import write_atomically
from adaptntk.report.axes import (
    ACCENT,
    NEUTRAL,
    POINTS,
    Array,
    error_limits,
    plain_log_ticks,
    round_ticks,
    scatter_errors,
    whole_ticks,
)

FORCE, ENERGY = "force RMSE", "energy error without the offset"


def read_columns(path: Path) -> dict[str, Array]:
    """Numeric columns of one of our CSV files."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise InputError(f"{path}: no rows")
    numeric = [name for name in rows[0] if name != "structure"]
    return {name: np.array([float(row[name] or "nan") for row in rows]) for name in numeric}


def draw_evaluation(folder: str | Path) -> Path:
    """Uncertainty against error and what follows, from ``evaluation.json`` and ``evaluation.csv``.

    A row of panels for the forces and one for the energies, where they were labelled and calibrated.
    """
    folder = Path(folder)
    columns = read_columns(folder / "evaluation.csv")
    summary = json.loads((folder / "evaluation.json").read_text())
    energy = summary.get("energy") or {}
    drawn = [part for part, told in (("forces", summary), ("energy", energy)) if "ence" in told]
    figure = Figure(figsize=(13, 4.2 * max(1, len(drawn))), layout="constrained")
    for row, part in zip(figure.subplots(len(drawn) or 1, 3, squeeze=False), drawn, strict=False):
        if part == "forces":
            known = np.isfinite(columns["force_error"])
            sigma, error = columns["forces_uncertainty"][known], columns["force_error"][known]
            scatter_panel(row[0], sigma, error, summary["spearman"])
            reliability_panel(row[1], sigma, error, summary)
            retention_panel(row[2], columns["force_score"][known], error, summary["aurc_n"])
        else:
            sigma, error, remaining = energy_columns(columns, energy["power"])
            unit = "meV/atom" if energy["power"] == 1 else "meV"
            scatter_panel(row[0], sigma, np.abs(remaining), energy["spearman"], ENERGY, unit)
            reliability_panel(row[1], sigma, np.abs(remaining), energy, ENERGY, unit)
            offset_panel(row[2], error, float((error - remaining).mean()), unit)
    return save_figure(figure, folder / "evaluation.png")


def energy_columns(columns: dict[str, Array], power: float) -> tuple[Array, Array, Array]:
    """Uncertainty, error and error without the offset, in meV over the number of atoms to the power calibrated."""
    known = np.isfinite(columns["energy_error"])
    scale = 1000 / columns["atoms"][known] ** power
    sigma, error, remaining = (
        columns[name][known] * scale for name in ("energy_uncertainty", "energy_error", "energy_error_without_offset")
    )
    return sigma, error, remaining


def draw_selection(table: str | Path) -> Path:
    """What was picked, from the table that `adaptntk select` wrote: a map of the pool and the scores of the picks."""
    table = Path(table)
    columns = read_columns(table)
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    map_panel(figure, left, columns)
    picks_panel(right, columns)
    return save_figure(figure, table.with_suffix(".png"))


def scatter_panel(
    axes: Axes, sigma: Array, error: Array, spearman: float | None, what: str = FORCE, unit: str = "eV/Å"
) -> None:
    """True error against predicted sigma on log axes, with the diagonal."""
    limits = error_limits([sigma], [error])
    # Where sigma hardly differs, its axis still shows a factor of three.
    middle, half = np.sqrt(sigma.min() * sigma.max()), max(1.15 * np.sqrt(sigma.max() / sigma.min()), np.sqrt(3))
    below = scatter_errors(axes, sigma, error, limits, 9)
    axes.plot(limits, limits, "--", color=NEUTRAL, linewidth=1, label="y = x")
    title = f"Uncertainty of {'forces' if what == FORCE else 'energies'} against error"
    axes.set(xscale="log", yscale="log", xlim=(middle / half, middle * half), ylim=limits, title=title)
    axes.set(xlabel=f"predicted uncertainty σ ({unit})", ylabel=f"true {what} ({unit})")
    text = "Spearman undefined" if spearman is None else f"Spearman {spearman:.2f}"
    if below:
        axes.plot([], [], "v", color=POINTS, markersize=4, label=f"{below} below the axis")
    legend(axes, text, "upper left")
    plain_log_ticks(axes.xaxis, axes.yaxis)


def reliability_panel(
    axes: Axes, sigma: Array, error: Array, summary: dict[str, float], what: str = FORCE, unit: str = "eV/Å"
) -> None:
    """RMSE of equal-count bins against their root mean predicted variance."""
    bins = int(np.clip(len(sigma) // 10, 3, 10))
    rmv, rmse = metrics.calibration_bins(sigma, error, bins)
    low, high = min(rmv.min(), rmse.min()), max(rmv.max(), rmse.max())
    limits = [max(0.0, low - 0.1 * (high - low)), high + 0.1 * (high - low)]
    axes.plot(limits, limits, "--", color=NEUTRAL, linewidth=1, label="perfect")
    axes.plot(rmv, rmse, "o-", color=POINTS, markersize=5, label=f"{bins} bins")
    axes.set(xlim=limits, ylim=limits, title=f"Reliability of {'forces' if what == FORCE else 'energies'}")
    axes.set(xlabel=f"root mean predicted variance ({unit})", ylabel=f"RMSE of the bin ({unit})")
    legend(axes, f"ENCE {summary['ence']:.3f} (floor {summary['ence_floor']:.3f})")
    round_ticks(axes.xaxis, axes.yaxis)


def retention_panel(axes: Axes, variance: Array, error: Array, aurc_n: float | None) -> None:
    """RMSE of what is kept when the most uncertain structures are removed first."""
    kept, risk = metrics.risk_coverage(variance, error)
    _, oracle = metrics.risk_coverage(error, error)
    axes.plot(kept, risk, color=POINTS, label="by uncertainty")
    axes.plot(kept, oracle, color=NEUTRAL, linestyle=":", label="by true error")
    axes.axhline(risk[-1], color=NEUTRAL, linestyle="--", linewidth=1, label="at random")
    axes.set(xlim=(0, 1), ylim=(0.5 * oracle[len(oracle) // 20], None), title="Risk and coverage")
    axes.set(xlabel="fraction of structures kept", ylabel="RMSE of those kept (eV/Å)")
    text = "AURC$_n$ undefined" if aurc_n is None else f"AURC$_n$ {aurc_n:.2f}"
    legend(axes, text)


def offset_panel(axes: Axes, error: Array, offset: float, unit: str) -> None:
    """Energy errors with their sign, and the offset that the uncertainty leaves out."""
    axes.hist(error, bins="auto", color=POINTS, alpha=0.6)
    axes.axvline(0, color=NEUTRAL, linewidth=1)
    axes.axvline(error.mean(), color=POINTS, label=f"mean here {error.mean():+.3g}")
    axes.axvline(offset, color=ACCENT, linestyle="--", label=f"offset of the calibration {offset:+.3g}")
    axes.set(xlabel=f"predicted minus true energy ({unit})", ylabel="structures", title="Energy errors")
    round_ticks(axes.xaxis, axes.yaxis)
    axes.set_ylim(0, 1.3 * axes.get_ylim()[1])  # room for the legend
    legend(axes, None, "upper right")


def map_panel(figure: Figure, axes: Axes, columns: dict[str, Array]) -> None:
    """The pool in the two directions of largest remaining uncertainty, picks circled."""
    picked = columns["pick"] > 0
    dots = axes.scatter(columns["map_x"], columns["map_y"], c=columns["forces_uncertainty"], s=9, cmap="viridis")
    axes.scatter(columns["map_x"][picked], columns["map_y"][picked], s=42, facecolors="none", edgecolors=ACCENT)
    figure.colorbar(dots, ax=axes, label="σ (eV/Å)")
    axes.set(xlabel="first principal direction of the uncertainty", ylabel="second")
    round_ticks(axes.xaxis, axes.yaxis)
    axes.ticklabel_format(style="sci", scilimits=(-2, 3), useMathText=True)
    axes.margins(0.08)  # circles around the outermost points
    axes.set_title(f"{int(picked.sum())} of {len(picked):,} picked (circles)")


def picks_panel(axes: Axes, columns: dict[str, Array]) -> None:
    """Score of each pick before the batch and at its turn."""
    order = np.argsort(columns["pick"])[np.sort(columns["pick"]) > 0]
    turn = np.arange(1, len(order) + 1)
    axes.plot(turn, columns["variance"][order], ".", color=NEUTRAL, label="U before the batch")
    axes.plot(turn, columns["pick_score"][order], ".-", color=POINTS, label="U at its turn")
    axes.set(xlabel="pick", ylabel="score U", title="What each pick still adds", xlim=(0.5, len(order) + 0.5))
    axes.set_ylim(0, 1.08 * max(axes.get_ylim()[1], 1e-300))
    whole_ticks(axes.xaxis)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4), useMathText=True)
    axes.legend(frameon=False)


def legend(axes: Axes, title: str | None, place: str = "best") -> None:
    """Aligned to the left, and readable where it lies over points."""
    axes.legend(title=title, loc=place, frameon=True, framealpha=0.8, edgecolor="none", alignment="left")


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a PNG, atomically."""
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=130, format="png"))
    return path
