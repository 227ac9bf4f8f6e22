"""The report of a campaign: one HTML page that needs no model and no network, from what the run left on disk."""

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from adaptntk.campaign.layout import ROLES, RunSnapshot, all_tested
from adaptntk.campaign.verdict import headline as verdict_headline
from adaptntk.labelers.record import labels_bought
from adaptntk.progress import duration
from adaptntk.report import campaign_figures as figures, campaign_tables as tables
from adaptntk.report.run_progress import progress_of
from adaptntk.report.viewer import MAX_STRUCTURES, build_viewer
from adaptntk.version import __version__


class Fact(NamedTuple):
    """One number of the headline: what it is, its value with unit, and a remark."""

    name: str
    value: str
    remark: str


def campaign_page(run: RunSnapshot, beside: Sequence[RunSnapshot] = (), max_structures: int = MAX_STRUCTURES) -> str:
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
        tested=all_tested(runs),
        learning_curve=figures.learning_curves(runs, names),
        runs=tables.runs_table(runs, names) if beside else None,
        limits=tables.limit_table(run),
        limit_figure=figures.limit_panel(run),
        limit=next((done.limit for done in run.summaries[::-1] if done.limit is not None), None),
        uncertainty=figures.uncertainty_panels(drawn),
        uncertainty_rounds=drawn,
        uncertainty_table=tables.uncertainty_table(run.rounds),
        shares=tables.label_shares(run),
        explorations=tables.exploration_table(run),
        frames=tables.frames_table(run),
        remarks=tables.remarks_table(run),
        information=figures.information_panel(run.rounds),
        times=figures.time_panel(run.rounds),
        time_table=tables.time_table(run),
        label_cost=label_cost(run),
        rounds=tables.rounds_table(run),
        quarantine=[(entry, duration(entry.seconds)) for entry in run.quarantine],
        viewer=build_viewer(run, max_structures),
        coverage=next((summary.coverage for summary in run.summaries), None),
    )


def run_names(runs: Sequence[RunSnapshot]) -> list[str]:
    """Names for a legend: those of the runs, with the folder where two runs have the same."""
    names = [run.name for run in runs]
    return [run.name if names.count(run.name) == 1 else f"{run.name} ({run.folder.resolve().name})" for run in runs]


def headline(run: RunSnapshot) -> dict[str, Any]:
    """The verdict, or what is going on and since when nothing was written."""
    if run.verdict is not None:
        return {"stopped": True, "short": verdict_headline(run.verdict), "text": run.verdict.text}
    text = progress_of(run).text
    written = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(run.changed))
    text = f"{text[0].upper()}{text[1:]}. The newest file was written on {written}."
    return {"stopped": False, "short": "Not finished", "text": text}


def begun(run: RunSnapshot) -> str:
    """When the campaign began, to the minute."""
    try:
        moment = datetime.fromisoformat(run.about.created)
    except ValueError:
        return run.about.created or "at an unknown time"
    return moment.strftime("%Y-%m-%d %H:%M %Z").strip()


def facts(run: RunSnapshot) -> list[Fact]:
    """What one wants to know first."""
    force, energy, remark = tables.NOTHING, tables.NOTHING, "no round is finished yet"
    if run.summaries:
        last = run.summaries[-1]
        force = tables.milli(last.errors.force_rmse)
        energy = tables.milli(last.errors.energy_mae_per_atom)
        low, high = tables.milli(last.errors.force_rmse_low), tables.milli(last.errors.force_rmse_high)
        remark = f"hold-out; {low} .. {high} meV/Å (each bound with {last.confidence:.0%} confidence)"
    if len(run.summaries) > 1:
        remark += f"; {tables.milli(run.summaries[0].errors.force_rmse)} meV/Å at first"
    roles = ", ".join(f"{sum(x.role == role for x in run.labels):,} {name}" for role, name in ROLES.items())
    bought, failed = labels_bought(run.labels), len(run.quarantine)
    given = f"; {len(run.labels) - bought:,} of these were given" if bought < len(run.labels) else ""
    return [
        Fact("Force RMSE", f"{force} meV/Å", remark),
        Fact("Energy MAE", f"{energy} meV/atom", "hold-out"),
        Fact("Labels", f"{bought:,}", f"{roles}{given}; {failed:,} failed"),
        Fact("Rounds", f"{len(run.summaries)}", "finished, the first one is number 0"),
        Fact("Time", duration(tables.total_seconds(run)), "sum over all steps"),
    ]


def label_cost(run: RunSnapshot) -> str | None:
    """One sentence on the price of a label."""
    seconds = [label.label_seconds for label in run.labels if label.label_seconds is not None]
    if not seconds:
        return None
    lost = sum(entry.seconds for entry in run.quarantine)
    total, mean, longest = (duration(x) for x in (sum(seconds), sum(seconds) / len(seconds), max(seconds)))
    text = f"{len(seconds):,} labels took {total} of computing, {mean} each on average and {longest} at most"
    return f"{text}; failed attempts took {duration(lost)}." if run.quarantine else f"{text}."
