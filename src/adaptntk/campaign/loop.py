"""The loop: explore, select, label, retrain, evaluate, until the verdict."""

import dataclasses
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adaptntk.campaign import rounds
from adaptntk.campaign.config import Campaign, read_config
from adaptntk.campaign.run_directory import Round, RunDirectory, open_run
from adaptntk.campaign.verdict import Verdict, judge
from adaptntk.execution import limited_threads, open_executor
from adaptntk.files import write_json
from adaptntk.labelers.process import check_labeler
from adaptntk.progress import Progress, silent

log = logging.getLogger(__name__)


def run_campaign(
    config_file: str | Path,
    resume: bool = False,
    executor: str | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    device: str | None = None,
    output: str | Path | None = None,
    progress: Progress = silent,
    on_round: Callable[[dict[str, Any]], None] = lambda summary: None,
) -> tuple[Path, Verdict]:
    """``adaptntk run``: run a campaign to its verdict; the run directory and the verdict are returned.

    Interrupted at any moment and called again with ``resume``, it goes on where it was: no label is lost, none is paid
    for twice, and the picks and the final model are those of a run that was never interrupted.

    Args:
        config_file: the campaign as YAML, see `adaptntk.campaign.config.Campaign`.
        resume: go on in a run directory that exists.
        executor, workers, scheduler, device, output: override what the file says.
        on_round: called with the summary of each round that is complete.
    """
    config = read_config(config_file)
    given = {"executor": executor, "workers": workers, "scheduler": scheduler, "device": device}
    config = config.model_copy(
        update={
            "execution": config.execution.model_copy(update={k: v for k, v in given.items() if v is not None}),
            "output": config.output if output is None else Path(output).absolute(),
        }
    )
    check_labeler(config.label.spec)
    with open_run(config, Path(config_file).read_text(), resume) as run, limited_threads(config.threads):
        where = config.execution
        with open_executor(where.executor, where.workers, where.scheduler, config.threads) as pool:
            verdict = _loop(run, config, rounds.Worker(run, pool, progress), on_round)
        return run.path, verdict


def _loop(
    run: RunDirectory, config: Campaign, worker: rounds.Worker, on_round: Callable[[dict[str, Any]], None]
) -> Verdict:
    # A verdict of an earlier call may no longer hold: the budget can be raised.
    (run.path / "verdict.json").unlink(missing_ok=True)
    history: list[dict[str, Any]] = []
    verdict = None
    while verdict is None:
        here = run.round(len(history))
        if here.summary is None:
            _run_round(run, here, worker)
        else:
            run.check_complete(here.number)
        summary = here.summary
        assert summary is not None
        history.append(summary)
        on_round(summary)
        verdict = judge(config, history)
    write_json(run.path / "verdict.json", {"stop": True, **dataclasses.asdict(verdict)})
    shutil.rmtree(run.path / "labels" / ".locks", ignore_errors=True)
    return verdict


def _run_round(run: RunDirectory, here: Round, worker: rounds.Worker) -> None:
    number = here.number
    name = f"{run.config.name}, round {number}"
    if number == 0:
        log.info("%s: labels to begin with", name)
        with here.timed("label"):
            rounds.begin(run, worker)
    else:
        log.info("%s: explore", name)
        with here.timed("explore"):
            rounds.explore(run, number, worker)
        log.info("%s: select and label", name)
        rounds.pick_and_label(run, number, worker)
    log.info("%s: train", name)
    with here.timed("train"):
        rounds.learn(run, number, worker)
        rounds.fit(run, number, worker)
    run.write_ledger()
    with here.timed("evaluate"):
        rounds.evaluate(run, number)
