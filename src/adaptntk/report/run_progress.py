"""Where a campaign stands and what it is doing now, told from the files that it has written so far."""

import time
from typing import NamedTuple

from adaptntk.campaign.layout import RoundSnapshot, RunSnapshot
from adaptntk.files import is_locked
from adaptntk.labelers.record import labels_bought
from adaptntk.progress import duration
from adaptntk.report.campaign_tables import Table, round_row, total_seconds

DOING = {
    "explore": "exploring by molecular dynamics",
    "select": "selecting candidates",
    "label": "labelling",
    "train": "training the model",
    "evaluate": "evaluating on the hold-out structures",
}
ALIVE = {
    True: "a process is working on it",
    False: "start it again with --resume: no process is working on it",
    None: "whether a process is working on it cannot be seen from here",
}
# Columns of the report in fewer words, for the terminal.
BRIEF = {"labels": "labels spent", "force RMSE (meV/Å)": "force RMSE (meV/Å)", "information": "information per label"}


class Progress(NamedTuple):
    """The unfinished step of the unfinished round; both None when nothing is left to do."""

    round: int | None
    step: str | None
    text: str


class Status(NamedTuple):
    """A campaign in a few lines for the terminal."""

    title: str
    table: Table
    lines: tuple[str, ...]
    progress: Progress


def status_of(run: RunSnapshot, now: float | None = None) -> Status:
    """The rounds as a table, labels and failures so far, and what is going on; ``now`` is the time of asking."""
    progress = progress_of(run)
    states = [unfinished_step(run, entry) if entry.summary is None else "finished" for entry in run.rounds]
    rows = [(*round_row(entry, BRIEF.values()), state) for entry, state in zip(run.rounds, states, strict=True)]
    lines = [f"{labels_line(run)}; {duration(total_seconds(run))} in all", progress.text]
    if run.summaries and (limit := run.summaries[-1].limit) is not None:
        lines.append(f"the model of round {run.summaries[-1].round} is {limit.verdict}: {limit.evidence}")
        lines += [limit.advice] * (limit.advice not in progress.text)  # where the verdict does not say it already
    if progress.round is not None:
        since = duration(max(0.0, (time.time() if now is None else now) - run.changed))
        lines.append(f"the newest file was written {since} ago; {ALIVE[is_locked(run.folder)]}")
    table = Table(("round", *BRIEF, "time", "state"), tuple(rows))
    return Status(f"campaign {run.name}", table, tuple(lines), progress)


def labels_line(run: RunSnapshot) -> str:
    """How many labels were paid for, as everywhere; besides how many were given, and how many failed."""
    bought = labels_bought(run.labels)
    given = f", {len(run.labels) - bought:,} given" if bought < len(run.labels) else ""
    return f"{bought:,} labels{given}" + (f", {len(run.quarantine):,} failed" if run.quarantine else "")


def progress_of(run: RunSnapshot) -> Progress:
    """Which step of which round is unfinished, or why the campaign stopped."""
    if run.verdict is not None:
        return Progress(None, None, f"stopped: {run.verdict.text}")
    paused = "" if run.pause is None else f"; {run.pause.reason}"
    entry = next((entry for entry in run.rounds if entry.summary is None), None)
    if entry is None:
        following = len(run.summaries)
        done = f"round {following - 1} is finished, " if following else ""
        return Progress(following, "explore" if following else None, f"{done}round {following} has not begun")
    step, count = unfinished_step(run, entry), ""
    if step == "label" and entry.picks:
        count = f", {_picks_settled(run, entry)} of {len(entry.picks)} picks"
    elif step == "label":
        count = f", {sum(label.round == entry.number for label in run.labels)} labels so far"
    return Progress(entry.number, step, f"round {entry.number}: {DOING[step]}{count}{paused}")


def unfinished_step(run: RunSnapshot, entry: RoundSnapshot) -> str:
    """The step after the last one that left its result.

    Results are files; labels are settled when each pick is either labelled or in quarantine. The first round may have
    neither a pool nor picks, only labels. The model is written before model.ntk, which still belongs to the training.
    """
    settled = bool(entry.picks) and _picks_settled(run, entry) == len({pick.hash for pick in entry.picks})
    found = {
        "evaluate": entry.files.ntk.exists() or "train" in entry.seconds,
        "train": "label" in entry.seconds or settled or entry.files.model.exists(),
        "label": bool(entry.picks) or "select" in entry.seconds,
        "select": entry.files.pool.exists() or "explore" in entry.seconds,
    }
    bought = any(label.round == entry.number for label in run.labels)
    # The first round has no model to explore with.
    return next((step for step, begun in found.items() if begun), "label" if bought or not entry.number else "explore")


def _picks_settled(run: RunSnapshot, entry: RoundSnapshot) -> int:
    settled = {label.hash for label in run.labels} | {failure.hash for failure in run.quarantine}
    return len({pick.hash for pick in entry.picks} & settled)
