"""The loop: explore, select, label, retrain, evaluate, until the verdict."""

import hashlib
import itertools
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from adaptntk.campaign.config import CHANGEABLE, Campaign, Overrides
from adaptntk.campaign.config_file import check_content, read_config
from adaptntk.campaign.layout import RoundDirectory, RunDirectory
from adaptntk.campaign.precheck import check_campaign, check_place
from adaptntk.campaign.records import FORMAT, Pause, RoundSummary, RunRecord, Verdict
from adaptntk.campaign.steps.begin import begin
from adaptntk.campaign.steps.driver import Driver, timed
from adaptntk.campaign.steps.explore import explore
from adaptntk.campaign.steps.label import LabelerError, label_round
from adaptntk.campaign.steps.learn import evaluate, fit, learn
from adaptntk.campaign.verdict import judge
from adaptntk.errors import require
from adaptntk.execution import limited_threads, open_executor
from adaptntk.files import make_folder
from adaptntk.labelers.process import check_spec
from adaptntk.progress import Progress, counted, silent
from adaptntk.uncertainty.file import check_networks
from adaptntk.version import __version__

log = logging.getLogger(__name__)

OnRound = Callable[[RoundSummary], None]
NO_OVERRIDES = Overrides()


def run_campaign(
    config_file: str | Path,
    resume: bool = False,
    overrides: Overrides = NO_OVERRIDES,
    progress: Progress = silent,
    on_round: OnRound = lambda summary: None,
    retry_failed: bool = False,
) -> tuple[Path, Verdict]:
    """``adaptntk run``: run a campaign to its verdict; the run directory and the verdict are returned.

    Interrupted at any moment and called again with ``resume``, it goes on where it was: no label is lost, none is paid
    for twice, and the picks and the final model are those of a run that was never interrupted.

    Args:
        config_file: the campaign as YAML, see `adaptntk.campaign.config.Campaign`.
        resume: go on in a run directory that exists.
        overrides: where it runs and where it writes, instead of what the file says.
        on_round: called with the summary of each round that is complete.
        retry_failed: empty the quarantine first: structures that could not be labelled may be tried again.
    """
    require(resume or not retry_failed, "--retry-failed belongs to --resume: it tries what failed before")
    config = overrides.applied_to(read_config(config_file))
    assert config.output is not None
    if RunDirectory(config.output).about.path.exists():
        check_place(config)
        check_spec(config.label.spec)
    else:
        check_campaign(config)
    with _open_run(config, Path(config_file).read_text(), resume) as run, limited_threads(config.threads):
        if retry_failed:
            failed = len(run.files.all_failures())
            log.info("%s out of quarantine; rounds that are finished stay as they are", counted(failed, "structure"))
            run.files.empty_quarantine()
        where = config.execution
        with open_executor(where.executor, where.workers, where.scheduler, config.threads) as pool:
            try:
                verdict = _loop(Driver(run, config, pool, progress), on_round)
            except LabelerError as error:
                run.pause.write(Pause(str(error)))
                raise
        return run.path, verdict


@contextmanager
def _open_run(config: Campaign, text: str, resume: bool) -> Iterator[RunDirectory]:
    """Make the run directory, or go on in it; nobody else works there meanwhile. The text is kept for the record."""
    assert config.output is not None
    run = RunDirectory(config.output)
    _check_place(run, text, resume)
    inputs = {field: hashlib.sha256(file.read_bytes()).hexdigest() for field, file in config.input_files().items()}
    created, content = datetime.now(UTC).isoformat(timespec="seconds"), config.model_dump(mode="json")
    about = RunRecord(FORMAT, __version__, config.name, created, content, inputs)
    with run.alone():
        run.check_files()
        run.sweep()
        if _check_place(run, text, resume):  # somebody may have been faster
            _check_same(run, config, inputs)
            run.check_labels()
        run.begin(about, text)
        yield run


def _check_place(run: RunDirectory, text: str, resume: bool) -> bool:
    """Refuse a folder that is somebody else's; whether a campaign was begun there."""
    begun, found = run.about.path.exists(), run.foreign(text)
    message = f"{run.path}: a campaign was begun there; go on with --resume, or choose another output"
    require(resume or not begun, message)
    lost = run.files.labels.name in found or "rounds" in found
    cure = "its run.json was lost: put it back from a copy, or" if lost else "it is not empty and no run directory:"
    require(begun or not found, f"{run.path}: {cure} choose another output")
    return begun


def _check_same(run: RunDirectory, config: Campaign, inputs: dict[str, str]) -> None:
    about = run.record()
    # A run that does not say which features it has was begun when there were those of energies only.
    begun = about.config | {"uncertainty": {"features": "energy"} | about.config.get("uncertainty", {})}
    before, now = check_content(begun, run.about.path).identity(), config.identity()
    changed = sorted(_differences(before, now))
    require(
        not changed,
        f"{run.path}: the configuration was changed since the run began ({', '.join(changed)}); only "
        f"{', '.join(CHANGEABLE)} may change: undo it, or choose another output",
    )
    for field, file in config.input_files().items():
        same = inputs[field] == about.inputs.get(field)
        require(same, f"{file} ({field}) was changed since the run began; put the old file back")


def _differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key in before.keys() | now.keys():
        a, b = before.get(key), now.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from _differences(a, b, f"{prefix}{key}.")
        elif a != b:
            yield f"{prefix}{key}: {a} -> {b}"


def _loop(driver: Driver, on_round: OnRound) -> Verdict:
    run = driver.run
    run.pause.path.unlink(missing_ok=True)
    verdict, numbers = None, itertools.count()
    while verdict is None:
        here = run.round(next(numbers))
        summary = here.summary.read()
        if summary is None:
            summary = _run_round(driver, here)
        else:
            run.check_complete(here, summary)
            check_networks(here.ntk)  # before another round is begun with them
        on_round(summary)
        verdict = judge(driver.config, summary)
    run.verdict.write(verdict)
    shutil.rmtree(run.files.locks, ignore_errors=True)
    return verdict


def _run_round(driver: Driver, here: RoundDirectory) -> RoundSummary:
    make_folder(here.folder)
    # The verdict of an earlier call holds no longer: the budget was raised.
    driver.run.verdict.path.unlink(missing_ok=True)
    features = None
    name = f"{driver.config.name}, round {here.number}"
    if here.number == 0:
        log.info("%s: labels to begin with", name)
        with timed(here) as step, step("label"):
            begin(driver, here)
    else:
        log.info("%s: explore", name)
        with timed(here) as step, step("explore"):
            features = explore(driver, here)
        log.info("%s: select and label", name)
        label_round(driver, here, features)
    log.info("%s: train", name)
    with timed(here) as step, step("train"):
        learn(driver, here)
        fit(driver, here)
    driver.run.write_ledger()
    with timed(here) as step, step("evaluate"):
        return evaluate(driver, here)
