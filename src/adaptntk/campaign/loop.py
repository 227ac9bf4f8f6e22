"""The loop: explore, select, label, retrain, evaluate, until the verdict."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from adaptntk.campaign.config import Overrides, read_config
from adaptntk.campaign.layout import RoundDirectory
from adaptntk.campaign.opening import open_run
from adaptntk.campaign.records import RoundSummary, Verdict
from adaptntk.campaign.steps.begin import begin
from adaptntk.campaign.steps.driver import Driver, timed
from adaptntk.campaign.steps.evaluate import evaluate
from adaptntk.campaign.steps.explore import explore
from adaptntk.campaign.steps.label import label_round
from adaptntk.campaign.steps.learn import fit, learn
from adaptntk.campaign.verdict import judge
from adaptntk.execution import limited_threads, open_executor
from adaptntk.files import make_folder
from adaptntk.labelers.process import check_spec
from adaptntk.progress import Progress, silent

log = logging.getLogger(__name__)

OnRound = Callable[[RoundSummary], None]
NO_OVERRIDES = Overrides()


def run_campaign(
    config_file: str | Path,
    resume: bool = False,
    overrides: Overrides = NO_OVERRIDES,
    progress: Progress = silent,
    on_round: OnRound = lambda summary: None,
) -> tuple[Path, Verdict]:
    """``adaptntk run``: run a campaign to its verdict; the run directory and the verdict are returned.

    Interrupted at any moment and called again with ``resume``, it goes on where it was: no label is lost, none is paid
    for twice, and the picks and the final model are those of a run that was never interrupted.

    Args:
        config_file: the campaign as YAML, see `adaptntk.campaign.config.Campaign`.
        resume: go on in a run directory that exists.
        overrides: where it runs and where it writes, instead of what the file says.
        on_round: called with the summary of each round that is complete.
    """
    config = overrides.applied_to(read_config(config_file))
    check_spec(config.label.spec)
    with open_run(config, Path(config_file).read_text(), resume) as run, limited_threads(config.threads):
        where = config.execution
        with open_executor(where.executor, where.workers, where.scheduler, config.threads) as pool:
            verdict = _loop(Driver(run, config, pool, progress), on_round)
        return run.path, verdict


def _loop(driver: Driver, on_round: OnRound) -> Verdict:
    run = driver.run
    # A verdict of an earlier call may no longer hold: the budget can be raised.
    run.verdict.path.unlink(missing_ok=True)
    history: list[RoundSummary] = []
    verdict = None
    while verdict is None:
        here = run.round(len(history))
        if here.summary.read() is None:
            _run_round(driver, here)
        else:
            run.check_complete(here.number)
        summary = here.summary.read()
        assert summary is not None
        history.append(summary)
        on_round(summary)
        verdict = judge(driver.config, history)
    run.verdict.write(verdict)
    shutil.rmtree(run.files.locks, ignore_errors=True)
    return verdict


def _run_round(driver: Driver, here: RoundDirectory) -> None:
    make_folder(here.folder)
    name = f"{driver.config.name}, round {here.number}"
    if here.number == 0:
        log.info("%s: labels to begin with", name)
        with timed(here) as clock, clock.of("label"):
            begin(driver, here)
    else:
        log.info("%s: explore", name)
        with timed(here) as clock, clock.of("explore"):
            explore(driver, here)
        log.info("%s: select and label", name)
        label_round(driver, here)
    log.info("%s: train", name)
    with timed(here) as clock, clock.of("train"):
        learn(driver, here)
        fit(driver, here)
    driver.run.write_ledger()
    with timed(here) as clock, clock.of("evaluate"):
        evaluate(driver, here)
