"""Tables of a campaign as text with units: the same in the terminal and in the report."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from adaptntk.campaign.layout import ROLES, RoundSnapshot, RunSnapshot, all_tested, steps_of
from adaptntk.campaign.records import ErrorRecord, RoundSummary
from adaptntk.core.metrics import calibration_bins
from adaptntk.progress import duration
from adaptntk.training.limits import Learnt

NOTHING = "–"
MAX_TRAJECTORIES = 12
Row = tuple[str, ...]


class Table(NamedTuple):
    """A heading and rows of the same length."""

    heading: Row
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Share:
    """One bar: a number of labels and its part of all, in per cent."""

    name: str
    count: int
    percent: float


# What is told of a finished round.
COLUMNS: dict[str, Callable[[RoundSummary], str]] = {
    "labels spent": lambda done: f"{done.labels_spent:,}",
    "training / validation / hold-out": lambda done: " / ".join(f"{getattr(done.labels, role):,}" for role in ROLES),
    "failed": lambda done: f"{done.labels.quarantined:,}",
    "force RMSE (meV/Å)": lambda done: force_error(done.errors),
    "99th percentile (meV/Å)": lambda done: milli(done.errors.force_rmse_p99),
    "energy MAE (meV/atom)": lambda done: milli(done.errors.energy_mae_per_atom),
    "Spearman": lambda done: number(done.spearman, "{:.2f}"),
    "information per label": lambda done: number(done.information_per_label, "{:.2f}"),
}


def rounds_table(run: RunSnapshot) -> Table:
    """One line per round: labels, errors, ranking, information, time."""
    return Table(("round", *COLUMNS, "time"), tuple(round_row(entry, COLUMNS) for entry in run.rounds))


def round_row(entry: RoundSnapshot, columns: Iterable[str]) -> Row:
    """The number of a round, some of the columns, and the time."""
    cells = (NOTHING if entry.summary is None else COLUMNS[name](entry.summary) for name in columns)
    return (str(entry.number), *cells, time_cell(sum(entry.seconds.values()) if entry.seconds else None))


def force_error(errors: ErrorRecord) -> str:
    """Force RMSE in meV/Å with its interval in brackets."""
    return f"{milli(errors.force_rmse)} ({milli(errors.force_rmse_low)} .. {milli(errors.force_rmse_high)})"


def limit_table(run: RunSnapshot) -> Table:
    """What the model of each round had learnt, and what kept its error from falling."""
    heading = (
        "round", "training (meV/Å)", "validation (meV/Å)", "hold-out (meV/Å)", "twice the steps would take off",
        "limited by",
    )  # fmt: skip
    return Table(heading, tuple(_limit_row(done, done.learnt) for done in run.summaries if done.learnt is not None))


def _limit_row(done: RoundSummary, learnt: Learnt) -> Row:
    errors = learnt.train, learnt.valid, done.errors.force_rmse
    gain = number(learnt.gain, "{:.0%}").replace("%", " %")
    return (str(done.round), *map(milli, errors), gain, NOTHING if done.limit is None else done.limit.by)


def uncertainty_table(rounds: Iterable[RoundSnapshot]) -> Table:
    """How well the uncertainty of each round's model describes its errors on the hold-out structures."""
    heading = (
        "round", "hold-out structures", "Spearman", "predicted RMSE (meV/Å)", "observed RMSE (meV/Å)",
        "observed / predicted", "errors below their bound",
    )  # fmt: skip
    return Table(heading, tuple(_uncertainty_row(entry) for entry in rounds if entry.compared is not None))


def _uncertainty_row(entry: RoundSnapshot) -> Row:
    holdout = entry.compared
    assert holdout is not None
    known = np.isfinite(holdout.forces_uncertainty)
    error, bound = holdout.force_error[known], holdout.forces_error_bound[known]
    (predicted,), (observed,) = calibration_bins(holdout.forces_uncertainty[known], error, 1)
    ranking = number(entry.summary.spearman if entry.summary else None, "{:.2f}")
    ratio = f"{observed / predicted:.2f}" if predicted > 0 else NOTHING
    bounds = np.isfinite(bound).sum()
    below = int((error <= bound)[np.isfinite(bound)].sum())
    kept = f"{below} of {bounds} ({100 * below / bounds:.0f} %)" if bounds else NOTHING
    return (str(entry.number), f"{known.sum():,}", ranking, milli(predicted), milli(observed), ratio, kept)


def time_table(run: RunSnapshot) -> Table:
    """Time of each step of each round, and their sums."""
    timed = {str(entry.number): entry.seconds for entry in run.rounds if entry.seconds}
    steps = steps_of(run.rounds)
    rows = [(name, *map(time_cell, map(of.get, steps)), duration(sum(of.values()))) for name, of in timed.items()]
    sums = (sum(seconds.get(step, 0.0) for seconds in timed.values()) for step in steps)
    rows.append(("all", *map(duration, sums), duration(total_seconds(run))))
    return Table(("round", *steps, "sum"), tuple(rows))


def total_seconds(run: RunSnapshot) -> float:
    """All steps of all rounds."""
    return sum(sum(entry.seconds.values()) for entry in run.rounds)


def runs_table(runs: Sequence[RunSnapshot], names: Sequence[str]) -> Table:
    """Where each run stands after its last finished round."""
    rows = []
    tested = all_tested(runs)
    for run, name in zip(runs, names, strict=True):
        reached = (NOTHING, NOTHING, NOTHING)
        if run.summaries:
            last = run.summaries[-1]
            errors = last.test if tested and last.test is not None else last.errors
            reached = (f"{last.labels_spent:,}", force_error(errors), milli(errors.energy_mae_per_atom))
        verdict = "not stopped yet" if run.verdict is None else run.verdict.text
        rows.append((name, str(len(run.summaries)), *reached, duration(total_seconds(run)), verdict))
    where = "test" if tested else "hold-out"
    kinds = (f"{where} force RMSE (meV/Å)", f"{where} energy MAE (meV/atom)")
    return Table(("run", "rounds", "labels spent", *kinds, "time", "verdict"), tuple(rows))


def label_shares(run: RunSnapshot) -> dict[str, list[Share]]:
    """Where the labels went: by role, by who chose them, by temperature, by trajectory and by what ended it."""
    ends = {(entry.number, t.name): t.stopped_by for entry in run.rounds for t in entry.explored.trajectories}

    def end(label_round: int, trajectory: str | None) -> str:
        if trajectory is None or label_round == 0:  # the first ones are displaced starts
            return "not from an exploration"
        return ends.get((label_round, trajectory), "exploration not recorded") or "ran to its planned end"

    temperatures = [label.temperature for label in run.labels]
    names = {
        "By role": (ROLES[label.role] for label in run.labels),
        "By who chose it": (label.chosen_by for label in run.labels),
        "By temperature of the dynamics": ("not from dynamics" if t is None else f"{t:g} K" for t in temperatures),
        "By what ended its trajectory": (end(label.round, label.trajectory) for label in run.labels),
        "By trajectory": (label.trajectory or "not from an exploration" for label in run.labels),
    }
    return {title: _shares(Counter(found).most_common(), len(run.labels)) for title, found in names.items()}


def _shares(counts: list[tuple[str, int]], total: int) -> list[Share]:
    if len(counts) > MAX_TRAJECTORIES:
        rest = counts[MAX_TRAJECTORIES - 1 :]
        counts = [*counts[: MAX_TRAJECTORIES - 1], (f"{len(rest)} others", sum(count for _, count in rest))]
    return [Share(name, count, 100 * count / total) for name, count in counts]


def exploration_table(run: RunSnapshot) -> Table:
    """Each trajectory of each round, with what ended it."""
    heading = ("round", "trajectory", "temperature (K)", "MD steps", "frames kept", "ended by", "because")
    rows = tuple(
        (str(entry.number), t.name, f"{t.temperature:g}", f"{t.steps:,}", f"{t.frames:,}",
         t.stopped_by or "planned end", t.reason or NOTHING)
        for entry in run.rounds for t in entry.explored.trajectories
    )  # fmt: skip
    return Table(heading, rows)


def frames_table(run: RunSnapshot) -> Table:
    """What became of the frames that were met, in each round."""
    counts = [(entry.number, entry.explored.frames) for entry in run.rounds]
    rows = tuple(
        (str(round), f"{found.taken + sum(found.dropped.values()):,}", f"{found.taken:,}",
         ", ".join(f"{count:,} {reason}" for reason, count in found.dropped.items()) or NOTHING)
        for round, found in counts if found is not None
    )  # fmt: skip
    return Table(("round", "frames met", "taken", "left out"), rows)


def remarks_table(run: RunSnapshot) -> Table:
    """Where the uncertainty was an extrapolation, or said nothing."""
    told = [(entry.number, (*entry.explored.remarks, *(entry.summary.remarks if entry.summary else ())))
            for entry in run.rounds]  # fmt: skip
    # The model that explored and the one that was trained then often say the same.
    return Table(
        ("round", "remark"), tuple((str(number), text) for number, texts in told for text in dict.fromkeys(texts))
    )


def number(value: float | None, form: str) -> str:
    """A number, or a dash where there is none."""
    return NOTHING if value is None else form.format(value)


def milli(value: float) -> str:
    """From eV to meV, with three digits."""
    value = 1000 * value
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def time_cell(seconds: float | None) -> str:
    """A duration, or a dash where nothing was timed."""
    return NOTHING if seconds is None else duration(seconds)
