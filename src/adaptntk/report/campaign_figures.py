"""Figures of a campaign's report, as SVG that stands in the page."""

import io
from collections.abc import Sequence

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adaptntk.campaign.layout import STEPS, RoundSnapshot, RunSnapshot, all_tested, steps_of
from adaptntk.campaign.records import ErrorRecord
from adaptntk.core.metrics import calibration_bins
from adaptntk.report.axes import (
    ACCENT,
    NEUTRAL,
    POINTS,
    Array,
    error_limits,
    plain_log_ticks,
    scatter_errors,
    whole_ticks,
)
from adaptntk.report.viewer import evenly

RUN_COLOURS = (POINTS, "#AA3377", "#228833", "#CCBB44", "#EE6677", "#66CCEE")
STEP_COLOURS = dict(zip(STEPS, ("#4477AA", "#66CCEE", "#CCBB44", "#AA3377", "#999999"), strict=True))
MAX_PANELS = 4
STYLE = {
    "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10.5, "axes.grid": True,
    "grid.alpha": 0.25, "grid.linewidth": 0.6, "legend.frameon": False, "svg.fonttype": "path",
    "svg.hashsalt": "adaptntk",  # the same figure gives the same text
}  # fmt: skip


def learning_curves(runs: Sequence[RunSnapshot], names: Sequence[str]) -> Markup | None:
    """Force RMSE with its interval against labels spent; the first run is the one of the report."""
    tested = all_tested(runs)
    curves = [_points(run, tested) for run in runs]
    if not any(curves):
        return None
    target = (runs[0].about.config.get("stop") or {}).get("force_rmse")
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.5, 4.4), layout="constrained")
        axes = figure.subplots()
        for number, (points, name) in enumerate(zip(curves, names, strict=True)):
            if points:
                _learning_curve(axes, points, name, number)
        if target:
            axes.axhline(1000 * target, linestyle="--", linewidth=1, color=NEUTRAL, label="target", zorder=1)
        where = "test structures" if tested else "hold-out structures"
        axes.set(xlabel="labels spent (training, validation and hold-out)", ylabel=f"force RMSE on {where} (meV/Å)")
        if len(runs) > 1 or target:
            axes.legend()
        points = [point for curve in curves for point in curve]
        levels = [1000 * level for _, errors in points for level in (errors.force_rmse_low, errors.force_rmse_high)]
        _sensible_scale(axes, "x", [spent for spent, _ in points])
        _sensible_scale(axes, "y", [*levels, *([1000 * target] if target else [])])
        return to_svg(figure)


def _learning_curve(axes: Axes, points: list[tuple[int, ErrorRecord]], name: str, number: int) -> None:
    labels = [spent for spent, _ in points]
    low, middle, high = 1000 * np.array([(e.force_rmse_low, e.force_rmse, e.force_rmse_high) for _, e in points]).T
    whiskers = np.maximum(0, [middle - low, high - middle])
    axes.errorbar(
        labels, middle, whiskers, fmt="o-", markersize=5, capsize=3, color=RUN_COLOURS[number % len(RUN_COLOURS)],
        linewidth=2 if number == 0 else 1.3, label=name, zorder=3 if number == 0 else 2,
    )  # fmt: skip


def _points(run: RunSnapshot, tested: bool) -> list[tuple[int, ErrorRecord]]:
    """Labels spent and errors of each finished round."""
    found = [(summary.labels_spent, summary.test if tested else summary.errors) for summary in run.summaries]
    return [(spent, errors) for spent, errors in found if errors is not None]


def _sensible_scale(axes: Axes, which: str, values: Sequence[float]) -> None:
    """Logarithmic where values span more than a factor of two, and from zero where they do not."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = min(values), max(values)
    if low <= 0 or high < 2 * low:
        if which == "y":
            axes.set_ylim(0, 1.1 * high)
        else:
            whole_ticks(axis)  # labels are counted
        return
    axes.set(**{f"{which}scale": "log", f"{which}lim": (low / 1.15, high * 1.15)})
    plain_log_ticks(axis)


def limit_panel(run: RunSnapshot) -> Markup | None:
    """Force RMSE of each round's model on what it learnt from, on the validation set and on the hold-out structures."""
    known = [(done.round, done.learnt, done.errors) for done in run.summaries if done.learnt is not None]
    if not known:
        return None
    rounds = [number for number, _, _ in known]
    curves = {
        "hold-out": ([errors.force_rmse for *_, errors in known], ACCENT),
        "validation": ([learnt.valid for _, learnt, _ in known], POINTS),
        "training": ([learnt.train for _, learnt, _ in known], NEUTRAL),
    }
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.5, 3.4), layout="constrained")
        axes = figure.subplots()
        for name, (errors, colour) in curves.items():
            axes.plot(rounds, 1000 * np.array(errors), "o-", color=colour, markersize=5, label=name)
        axes.set(xlabel="round", ylabel="force RMSE (meV/Å)", xlim=(min(rounds) - 0.6, max(rounds) + 0.6))
        axes.legend()
        whole_ticks(axes.xaxis)
        _sensible_scale(axes, "y", [1000 * error for errors, _ in curves.values() for error in errors])
        return to_svg(figure)


def rounds_to_draw(rounds: Sequence[RoundSnapshot]) -> list[RoundSnapshot]:
    """At most four rounds whose uncertainties can be compared with errors: the first, the last, and some between."""
    return evenly([entry for entry in rounds if entry.compared is not None], MAX_PANELS)


def uncertainty_panels(rounds: Sequence[RoundSnapshot]) -> Markup | None:
    """Error against uncertainty of each hold-out structure, and observed against predicted in bins, for each round."""
    if not rounds:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(2.7 * len(rounds), 5.4), 5.6), layout="constrained")
        panels = figure.subplots(2, len(rounds), squeeze=False)
        pairs = [_known(entry) for entry in rounds]
        limits = error_limits(*zip(*pairs, strict=True))
        for column, (entry, (sigma, error)) in enumerate(zip(rounds, pairs, strict=True)):
            upper, lower = panels[:, column]
            below = scatter_errors(upper, sigma, error, limits, 14)
            less = f", {below} below" if below else ""
            _diagonal(upper, limits, f"round {entry.number}: {len(sigma)} structures{less}")
            _reliability(lower, sigma, error, limits)
            upper.set_xlabel("uncertainty (meV/Å)")
            lower.set_xlabel("predicted for the bin (meV/Å)")
        panels[0, 0].set_ylabel("true force error (meV/Å)")
        panels[1, 0].set_ylabel("observed RMSE of the bin (meV/Å)")
        return to_svg(figure)


def _known(entry: RoundSnapshot) -> tuple[Array, Array]:
    """Uncertainty and error in meV/Å of the hold-out structures that have both."""
    assert entry.holdout is not None
    sigma, error = entry.holdout.forces_uncertainty, entry.holdout.force_error
    known = np.isfinite(sigma) & np.isfinite(error)
    return 1000 * sigma[known], 1000 * error[known]


def _reliability(axes: Axes, sigma: Array, error: Array, limits: tuple[float, float]) -> None:
    count = int(np.clip(len(sigma) // 8, 1, 10))
    predicted, observed = calibration_bins(sigma, error, count)
    # From d rmse = d mse / (2 rmse), with the standard error of the mean of squares in each bin.
    bins = np.array_split(error[np.argsort(sigma, kind="stable")], len(observed))
    spread = np.array([np.std(part**2) / np.sqrt(len(part)) for part in bins]) / (2 * np.maximum(observed, 1e-12))
    below = observed < limits[0]
    bars = np.minimum(spread, 0.95 * observed)[~below]
    axes.errorbar(predicted[~below], observed[~below], bars, fmt="o", color=ACCENT, markersize=5)
    axes.plot(predicted[below], np.full(below.sum(), 1.1 * limits[0]), "v", color=ACCENT, markersize=5)
    _diagonal(axes, limits, "1 bin" if count == 1 else f"{count} bins of about {len(sigma) // count}")


def _diagonal(axes: Axes, limits: tuple[float, float], title: str) -> None:
    axes.plot(limits, limits, "--", color=NEUTRAL, linewidth=1, zorder=1)
    axes.set(xscale="log", yscale="log", xlim=limits, ylim=limits, title=title, aspect="equal")
    plain_log_ticks(axes.xaxis, axes.yaxis)


def information_panel(rounds: Sequence[RoundSnapshot]) -> Markup | None:
    """What each pick was expected to add when it was chosen, and the mean over the labels of a round."""
    picked = [entry for entry in rounds if entry.picks]
    told = {entry.number: entry.summary.information_per_label for entry in rounds if entry.summary is not None}
    means = {number: mean for number, mean in told.items() if mean is not None}
    if not picked and not means:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.5, 3.2), layout="constrained")
        axes = figure.subplots()
        for entry in picked:
            values = [pick.information for pick in entry.picks]
            spread = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else [0.0]
            axes.plot(entry.number + np.array(spread), values, ".", color=POINTS, alpha=0.6)
        axes.plot([], [], ".", color=POINTS, label="one pick, in order of picking")
        left, right = ([number + shift for number in means] for shift in (-0.25, 0.25))
        axes.hlines(list(means.values()), left, right, color=ACCENT, linewidth=2, label="mean per label")
        axes.legend()
        numbers = {entry.number for entry in picked} | means.keys()
        axes.set(xlabel="round", ylabel="log(1 + U/λ), no unit", xlim=(min(numbers) - 0.6, max(numbers) + 0.6))
        whole_ticks(axes.xaxis)
        axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
        return to_svg(figure)


def time_panel(rounds: Sequence[RoundSnapshot]) -> Markup | None:
    """Time of each step of each round, as stacked bars."""
    timed = [entry for entry in rounds if entry.seconds]
    if not timed:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.5, 1.5 + 0.32 * len(timed)), layout="constrained")
        axes = figure.subplots()
        longest = max(sum(entry.seconds.values()) for entry in timed)
        unit, divisor = ("s", 1) if longest < 120 else ("min", 60) if longest < 7200 else ("h", 3600)
        start, names = np.zeros(len(timed)), [str(entry.number) for entry in timed]
        steps = steps_of(timed)
        for step in steps:
            values = np.array([entry.seconds.get(step, 0.0) for entry in timed]) / divisor
            if values.any():
                colour = STEP_COLOURS.get(step, "#DDDDDD")
                axes.barh(names, values, left=start, color=colour, label=step, height=0.62)
                start += values
        axes.invert_yaxis()
        axes.grid(False, axis="y")
        axes.set(xlabel=f"time ({unit})", ylabel="round")
        figure.legend(loc="outside upper center", ncols=len(steps))
        return to_svg(figure)


def to_svg(figure: Figure) -> Markup:
    """The element alone: without the XML heading and metadata, and as wide as the page allows."""
    buffer = io.StringIO()
    nothing = {"Creator": None, "Date": None, "Format": None, "Type": None}
    figure.savefig(buffer, format="svg", metadata=nothing, transparent=True)
    text = buffer.getvalue()
    return Markup(text[text.index("<svg") :])
