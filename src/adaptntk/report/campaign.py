"""The report of a campaign: one HTML page that needs no model and no network, from what the run left on disk."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from adaptntk.report import campaign_figures as figures
from adaptntk.report import campaign_tables as tables
from adaptntk.report.candidates import MAX_STRUCTURES
from adaptntk.report.run_directory import ROLE_NAMES, Run, errors_to_compare
from adaptntk.report.run_progress import progress_of
from adaptntk.report.viewer import build_viewer
from adaptntk.version import __version__

VERDICTS = {
    "target": "Target reached",
    "information": "Little left to learn",
    "candidates": "Nothing new found",
    "budget": "Label budget spent",
    "rounds": "Planned rounds done",
}


@dataclass(frozen=True)
class Fact:
    """One number of the headline: what it is, its value with unit, and a remark."""

    name: str
    value: str
    remark: str


def campaign_page(run: Run, beside: Sequence[Run] = (), max_structures: int = MAX_STRUCTURES) -> str:
    """The page; other runs are drawn into the learning curve, and the viewer holds no more structures than this."""
    runs = [run, *beside]
    names = run_names(runs)
    drawn = figures.rounds_to_draw(run.rounds)
    environment = Environment(
        loader=PackageLoader("adaptntk.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("campaign.html.jinja").render(
        run=run,
        version=__version__,
        begun=begun(run),
        headline=headline(run),
        facts=facts(run),
        tested=errors_to_compare(runs) == "test",
        learning_curve=_safe(figures.learning_curves(runs, names)),
        runs=tables.runs_table(runs, names) if beside else None,
        uncertainty=_safe(figures.uncertainty_panels(drawn)),
        uncertainty_rounds=drawn,
        uncertainty_table=tables.uncertainty_table(run.rounds),
        shares=tables.label_shares(run),
        explorations=tables.exploration_table(run),
        information=_safe(figures.information_panel(run.rounds)),
        times=_safe(figures.time_panel(run.rounds)),
        time_table=tables.time_table(run),
        label_cost=label_cost(run),
        rounds=tables.rounds_table(run),
        quarantine=[(entry, tables.duration(entry.seconds)) for entry in run.quarantine],
        viewer=build_viewer(run, max_structures),
        coverage=next((e.summary["coverage"] for e in run.finished if e.summary and "coverage" in e.summary), None),
    )


def run_names(runs: Sequence[Run]) -> list[str]:
    """Names for a legend: those of the runs, with the folder where two runs have the same."""
    names = [run.name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name} ({run.folder.resolve().name})"
        for run, name in zip(runs, names, strict=True)
    ]


def headline(run: Run) -> dict[str, Any]:
    """The verdict, or what is going on and since when nothing was written."""
    if run.verdict and run.verdict.get("stop"):
        reason = str(run.verdict.get("reason"))
        return {"stopped": True, "short": VERDICTS.get(reason, reason), "text": str(run.verdict.get("text", ""))}
    text = progress_of(run).text
    written = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(run.changed))
    return {
        "stopped": False,
        "short": "Not finished",
        "text": f"{text[0].upper()}{text[1:]}. The newest file was written on {written}.",
    }


def begun(run: Run) -> str:
    """When the campaign began, to the minute."""
    try:
        moment = datetime.fromisoformat(run.created)
    except ValueError:
        return run.created or "at an unknown time"
    return moment.strftime("%Y-%m-%d %H:%M %Z").strip()


def facts(run: Run) -> list[Fact]:
    """What one wants to know first."""
    errors = run.finished[-1].errors if run.finished else {}
    remark = "no round is finished yet"
    if errors:
        low, high = (tables.milli(errors.get(key)) for key in ("force_rmse_low", "force_rmse_high"))
        remark = f"hold-out; {low} .. {high} meV/Å{_confidence(run)}"
    if len(run.finished) > 1:
        remark += f"; {tables.milli(run.finished[0].errors.get('force_rmse'))} meV/Å at first"
    roles = ", ".join(f"{sum(x.role == role for x in run.labels):,} {name}" for role, name in ROLE_NAMES.items())
    failed = len(run.quarantine)
    return [
        Fact("Force RMSE", f"{tables.milli(errors.get('force_rmse'))} meV/Å", remark),
        Fact("Energy MAE", f"{tables.milli(errors.get('energy_mae_per_atom'), '{:.2f}')} meV/atom", "hold-out"),
        Fact("Labels", f"{len(run.labels):,}", f"{roles}; {failed:,} failed"),
        Fact("Rounds", f"{len(run.finished)}", "finished, the first one is number 0"),
        Fact("Time", tables.duration(tables.total_seconds(run)), "sum over all steps"),
    ]


def _confidence(run: Run) -> str:
    """How sure the bounds of the error are, where the run says it."""
    confidence = (run.finished[-1].summary or {}).get("confidence")
    return "" if confidence is None else f" (each bound with {confidence:.0%} confidence)"


def label_cost(run: Run) -> str | None:
    """One sentence on the price of a label."""
    seconds = [label.seconds for label in run.labels if label.seconds is not None]
    if not seconds:
        return None
    lost = sum(entry.seconds for entry in run.quarantine)
    total, mean, longest = (tables.duration(x) for x in (sum(seconds), sum(seconds) / len(seconds), max(seconds)))
    text = f"{len(seconds):,} labels took {total} of computing, {mean} each on average and {longest} at most"
    return f"{text}; failed attempts took {tables.duration(lost)}." if run.quarantine else f"{text}."


def _safe(svg: str | None) -> Markup | None:
    return None if svg is None else Markup(svg)
