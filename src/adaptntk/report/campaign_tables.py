"""Tables of a campaign as text with units: the same in the terminal and in the report."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adaptntk.report.run_directory import ROLE_NAMES, Round, Run, errors_to_compare, steps_of

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


def rounds_table(run: Run) -> Table:
    """One line per round: labels, errors, ranking, information, time."""
    heading = (
        "round", "labels spent", "training / validation / hold-out", "failed", "force RMSE (meV/Å)",
        "99th percentile (meV/Å)", "energy MAE (meV/atom)", "Spearman", "information per label", "time",
    )  # fmt: skip
    return Table(heading, tuple(_round_row(entry) for entry in run.rounds))


def _round_row(entry: Round) -> tuple[str, ...]:
    summary = entry.summary or {}
    labels, errors = summary.get("labels", {}), entry.errors
    return (
        str(entry.number),
        number(summary.get("labels_spent"), "{:,}"),
        " / ".join(number(labels.get(role), "{:,}") for role in ROLE_NAMES) if labels else NOTHING,
        number(labels.get("quarantined"), "{:,}"),
        force_error(errors),
        milli(errors.get("force_rmse_p99")),
        milli(errors.get("energy_mae_per_atom"), "{:.2f}"),
        number(summary.get("spearman"), "{:.2f}"),
        number(summary.get("information_per_label"), "{:.2f}"),
        duration(sum(entry.seconds.values())) if entry.seconds else NOTHING,
    )


def force_error(errors: dict[str, Any]) -> str:
    """Force RMSE in meV/Å with its interval in brackets."""
    text = milli(errors.get("force_rmse"))
    low, high = errors.get("force_rmse_low"), errors.get("force_rmse_high")
    return text if low is None or high is None else f"{text} ({milli(low)} .. {milli(high)})"


def uncertainty_table(rounds: Iterable[Round]) -> Table:
    """How well the uncertainty of each round's model describes its errors on the hold-out structures."""
    heading = (
        "round", "hold-out structures", "Spearman", "predicted RMSE (meV/Å)", "observed RMSE (meV/Å)",
        "observed / predicted", "errors below their bound",
    )  # fmt: skip
    rows = []
    for entry in rounds:
        if entry.holdout is None or not np.isfinite(entry.holdout.uncertainty).any():
            continue
        known = np.isfinite(entry.holdout.uncertainty)
        error = entry.holdout.force_error[known]
        predicted = float(np.sqrt(np.mean(entry.holdout.uncertainty[known] ** 2)))
        observed = float(np.sqrt(np.mean(error**2)))
        rows.append(
            (
                str(entry.number),
                f"{known.sum():,}",
                number((entry.summary or {}).get("spearman"), "{:.2f}"),
                milli(predicted),
                milli(observed),
                f"{observed / predicted:.2f}" if predicted > 0 else NOTHING,
                _below_bound(error, entry.holdout.bound[known]),
            )
        )
    return Table(heading, tuple(rows))


def _below_bound(error: np.ndarray, bound: np.ndarray) -> str:
    known = np.isfinite(bound)
    if not known.any():
        return NOTHING
    below = int((error[known] <= bound[known]).sum())
    return f"{below} of {known.sum()} ({100 * below / known.sum():.0f} %)"


def time_table(run: Run) -> Table:
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


def total_seconds(run: Run) -> float:
    """All steps of all rounds."""
    return sum(sum(entry.seconds.values()) for entry in run.rounds)


def runs_table(runs: Sequence[Run], names: Sequence[str]) -> Table:
    """Where each run stands after its last finished round."""
    rows = []
    kind = errors_to_compare(runs)
    for run, name in zip(runs, names, strict=True):
        last = run.finished[-1].summary or {} if run.finished else {}
        errors = last.get(kind, {})
        stop = run.verdict and run.verdict.get("stop")
        rows.append(
            (
                name,
                str(len(run.finished)),
                number(last.get("labels_spent"), "{:,}"),
                force_error(errors),
                milli(errors.get("energy_mae_per_atom"), "{:.2f}"),
                duration(total_seconds(run)),
                str((run.verdict or {}).get("text", "stopped")) if stop else "not stopped yet",
            )
        )
    where = "test" if kind == "test" else "hold-out"
    errors = (f"{where} force RMSE (meV/Å)", f"{where} energy MAE (meV/atom)")
    return Table(("run", "rounds", "labels spent", *errors, "time", "verdict"), tuple(rows))


def label_shares(run: Run) -> dict[str, list[Share]]:
    """Where the labels went: by role, by who chose them, by temperature, by trajectory and by what ended it."""
    ends = {(entry.number, t.name): t.stopped_by for entry in run.rounds for t in entry.trajectories}

    def end(label_round: int, trajectory: str | None) -> str:
        if trajectory is None or label_round == 0:  # the first ones are displaced starts
            return "not from an exploration"
        if (label_round, trajectory) not in ends:
            return "exploration not recorded"
        return ends[label_round, trajectory] or "ran to its planned end"

    counts = {
        "By role": Counter(ROLE_NAMES.get(label.role, label.role) for label in run.labels),
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


def exploration_table(run: Run) -> Table:
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
