"""Where a campaign stands and what it is doing now, told from the files that it has written so far."""

import time
from dataclasses import dataclass

from adaptntk.campaign.snapshot import RoundSnapshot, RunSnapshot
from adaptntk.files import is_locked
from adaptntk.report.campaign_tables import Table, duration, status_row, total_seconds

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
    None: "whether a process is working on it cannot be told from here",
}


ALIVE = {
    True: "a process is working on it",
    False: "start it again with --resume: no process is working on it",
    None: "whether a process is working on it cannot be seen from here",
}


@dataclass(frozen=True)
class Progress:
    """The unfinished step of the unfinished round; both None when nothing is left to do."""

    round: int | None
    step: str | None
    text: str


@dataclass(frozen=True)
class Status:
    """A campaign in a few lines for the terminal."""

    title: str
    table: Table
    lines: tuple[str, ...]
    progress: Progress


def status_of(run: RunSnapshot, now: float | None = None) -> Status:
    """The rounds as a table, labels and failures so far, and what is going on; ``now`` is the time of asking."""
    progress = progress_of(run)
    heading = ("round", "labels", "force RMSE (meV/Å)", "information", "time", "state")
    rows = tuple(
        status_row(entry, unfinished_step(run, entry) if entry.summary is None else "finished") for entry in run.rounds
    )
    failed = f", {len(run.quarantine):,} failed" if run.quarantine else ""
    lines = [f"{len(run.labels):,} labels{failed}; {duration(total_seconds(run))} in all", progress.text]
    if progress.round is not None:
        since = duration(max(0.0, (time.time() if now is None else now) - run.changed))
        lines.append(f"the newest file was written {since} ago; {ALIVE[is_locked(run.folder)]}")
    return Status(f"campaign {run.name}", Table(heading, rows), tuple(lines), progress)


def progress_of(run: RunSnapshot) -> Progress:
    """Which step of which round is unfinished, or why the campaign stopped."""
    if run.verdict is not None:
        return Progress(None, None, f"stopped: {run.verdict.text}")
    unfinished = [entry for entry in run.rounds if entry.summary is None]
    if not unfinished:
        following = len(run.summaries)
        done = f"round {following - 1} is finished, " if following else ""
        return Progress(following, "explore" if following else None, f"{done}round {following} has not begun")
    entry = unfinished[0]
    step = unfinished_step(run, entry)
    count = _picks_settled(run, entry) if step == "label" else ""
    return Progress(entry.number, step, f"round {entry.number}: {DOING[step]}{count}")


def unfinished_step(run: RunSnapshot, entry: RoundSnapshot) -> str:
    """The step after the last one that left its result.

    Results are files; labels are settled when each pick is either labelled or in quarantine. The first round may have
    neither a pool nor picks, only labels.
    """
    done = {
        "explore": entry.files.pool.exists() or "explore" in entry.seconds,
        "select": bool(entry.picks) or "select" in entry.seconds,
        "label": "label" in entry.seconds or _all_settled(run, entry),
        "train": entry.files.ntk.exists() or "train" in entry.seconds,
    }
    if entry.files.model.exists():  # written before model.ntk, which still belongs to the training
        done["label"] = True
    for step, following in (("train", "evaluate"), ("label", "train"), ("select", "label"), ("explore", "select")):
        if done[step]:
            return following
    bought = any(label.round == entry.number for label in run.labels)
    return "label" if bought else "explore"


def _settled(run: RunSnapshot) -> set[str]:
    return {label.hash for label in run.labels} | {entry.hash for entry in run.quarantine}


def _all_settled(run: RunSnapshot, entry: RoundSnapshot) -> bool:
    return bool(entry.picks) and {pick.hash for pick in entry.picks} <= _settled(run)


def _picks_settled(run: RunSnapshot, entry: RoundSnapshot) -> str:
    if not entry.picks:
        return f", {sum(label.round == entry.number for label in run.labels)} labels so far"
    settled = len({pick.hash for pick in entry.picks} & _settled(run))
    return f", {settled} of {len(entry.picks)} picks"
