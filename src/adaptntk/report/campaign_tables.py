"""Tables of a campaign as text with units: the same in the terminal and in the report."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from adaptntk.campaign.layout import ROLES
from adaptntk.campaign.records import ErrorRecord
from adaptntk.campaign.snapshot import RoundSnapshot, RunSnapshot, all_tested, steps_of
from adaptntk.core.metrics import calibration_bins

NOTHING = "–"
MAX_TRAJECTORIES = 12


@dataclass(frozen=True)
class Table:
    """A heading and rows of the same length."""

    heading: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Share:
    """One bar: a number of labels and its part of all, in per cent."""

    name: str
    count: int
    percent: float


def rounds_table(run: RunSnapshot) -> Table:
    """One line per round: labels, errors, ranking, information, time."""
    heading = (
        "round", "labels spent", "training / validation / hold-out", "failed", "force RMSE (meV/Å)",
        "99th percentile (meV/Å)", "energy MAE (meV/atom)", "Spearman", "information per label", "time",
    )  # fmt: skip
    return Table(heading, tuple(_round_row(entry) for entry in run.rounds))


def _round_row(entry: RoundSnapshot) -> tuple[str, ...]:
    summary, spent = entry.summary, _total(entry)
    if summary is None:
        return (str(entry.number), *[NOTHING] * 8, spent)
    labels, errors = summary.labels, summary.errors
    return (
        str(entry.number),
        f"{summary.labels_spent:,}",
        f"{labels.train:,} / {labels.valid:,} / {labels.holdout:,}",
        f"{labels.quarantined:,}",
        force_error(errors),
        milli(errors.force_rmse_p99),
        milli(errors.energy_mae_per_atom, "{:.2f}"),
        number(summary.spearman, "{:.2f}"),
        number(summary.information_per_label, "{:.2f}"),
        spent,
    )


def status_row(entry: RoundSnapshot, state: str) -> tuple[str, ...]:
    """The same in fewer words, for the terminal."""
    summary, spent = entry.summary, _total(entry)
    if summary is None:
        return (str(entry.number), *[NOTHING] * 3, spent, state)
    told = number(summary.information_per_label, "{:.2f}")
    return (str(entry.number), f"{summary.labels_spent:,}", force_error(summary.errors), told, spent, state)


def _total(entry: RoundSnapshot) -> str:
    return duration(sum(entry.seconds.values())) if entry.seconds else NOTHING


def force_error(errors: ErrorRecord) -> str:
    """Force RMSE in meV/Å with its interval in brackets."""
    return f"{milli(errors.force_rmse)} ({milli(errors.force_rmse_low)} .. {milli(errors.force_rmse_high)})"


def uncertainty_table(rounds: Iterable[RoundSnapshot]) -> Table:
    """How well the uncertainty of each round's model describes its errors on the hold-out structures."""
    heading = (
        "round", "hold-out structures", "Spearman", "predicted RMSE (meV/Å)", "observed RMSE (meV/Å)",
        "observed / predicted", "errors below their bound",
    )  # fmt: skip
    rows = []
    for entry in rounds:
        holdout = entry.compared
        if holdout is None:
            continue
        known = np.isfinite(holdout.forces_uncertainty)
        error = holdout.force_error[known]
        (predicted,), (observed,) = calibration_bins(holdout.forces_uncertainty[known], error, 1)
        rows.append(
            (
                str(entry.number),
                f"{known.sum():,}",
                number(entry.summary.spearman if entry.summary else None, "{:.2f}"),
                milli(predicted),
                milli(observed),
                f"{observed / predicted:.2f}" if predicted > 0 else NOTHING,
                _below_bound(error, holdout.forces_error_bound[known]),
            )
        )
    return Table(heading, tuple(rows))


def _below_bound(error: np.ndarray, bound: np.ndarray) -> str:
    known = np.isfinite(bound)
    if not known.any():
        return NOTHING
    below = int((error[known] <= bound[known]).sum())
    return f"{below} of {known.sum()} ({100 * below / known.sum():.0f} %)"


def time_table(run: RunSnapshot) -> Table:
    """Time of each step of each round, and their sums."""
    timed = [entry for entry in run.rounds if entry.seconds]
    steps = steps_of(timed)
    rows = [
        (
            str(entry.number),
            *(_seconds(entry.seconds.get(step)) for step in steps),
            duration(sum(entry.seconds.values())),
        )
        for entry in timed
    ]
    sums = [sum(entry.seconds.get(step, 0.0) for entry in timed) for step in steps]
    rows.append(("all", *(duration(value) for value in sums), duration(total_seconds(run))))
    return Table(("round", *steps, "sum"), tuple(rows))


def _seconds(value: float | None) -> str:
    return NOTHING if value is None else duration(value)


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
            reached = (f"{last.labels_spent:,}", force_error(errors), milli(errors.energy_mae_per_atom, "{:.2f}"))
        verdict = "not stopped yet" if run.verdict is None else run.verdict.text
        rows.append((name, str(len(run.summaries)), *reached, duration(total_seconds(run)), verdict))
    where = "test" if tested else "hold-out"
    kinds = (f"{where} force RMSE (meV/Å)", f"{where} energy MAE (meV/atom)")
    return Table(("run", "rounds", "labels spent", *kinds, "time", "verdict"), tuple(rows))


def label_shares(run: RunSnapshot) -> dict[str, list[Share]]:
    """Where the labels went: by role, by who chose them, by temperature, by trajectory and by what ended it."""
    ends = {(entry.number, t.name): t.stopped_by for entry in run.rounds for t in entry.trajectories}

    def end(label_round: int, trajectory: str | None) -> str:
        if trajectory is None or label_round == 0:  # the first ones are displaced starts
            return "not from an exploration"
        if (label_round, trajectory) not in ends:
            return "exploration not recorded"
        return ends[label_round, trajectory] or "ran to its planned end"

    counts = {
        "By role": Counter(ROLES[label.role] for label in run.labels),
        "By who chose it": Counter(label.chosen_by for label in run.labels),
        "By temperature of the dynamics": Counter(
            "not from dynamics" if label.temperature is None else f"{label.temperature:g} K" for label in run.labels
        ),
        "By what ended its trajectory": Counter(end(label.round, label.trajectory) for label in run.labels),
        "By trajectory": Counter(label.trajectory or "not from an exploration" for label in run.labels),
    }
    return {title: _shares(counter, MAX_TRAJECTORIES) for title, counter in counts.items()}


def _shares(counter: Counter[str], most: int) -> list[Share]:
    total = sum(counter.values())
    ordered = counter.most_common()
    if len(ordered) > most:
        rest = ordered[most - 1 :]
        ordered = [*ordered[: most - 1], (f"{len(rest)} others", sum(count for _, count in rest))]
    return [Share(name, count, 100 * count / total) for name, count in ordered]


def exploration_table(run: RunSnapshot) -> Table:
    """Each trajectory of each round, with what ended it."""
    heading = ("round", "trajectory", "temperature (K)", "MD steps", "frames kept", "ended by", "because")
    rows = tuple(
        (
            str(entry.number),
            t.name,
            number(t.temperature, "{:g}"),
            f"{t.steps:,}",
            f"{t.frames:,}",
            t.stopped_by or "planned end",
            t.reason or NOTHING,
        )
        for entry in run.rounds
        for t in entry.trajectories
    )
    return Table(heading, rows)


def number(value: float | None, form: str) -> str:
    """A number, or a dash where there is none."""
    return NOTHING if value is None else form.format(value)


def milli(value: float | None, form: str | None = None) -> str:
    """From eV to meV, with three digits."""
    if value is None:
        return NOTHING
    value = 1000 * value
    return (form or ("{:.0f}" if value >= 100 else "{:.1f}" if value >= 10 else "{:.2f}")).format(value)


def duration(seconds: float) -> str:
    """12 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"
