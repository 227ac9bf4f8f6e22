"""The model of a round, its uncertainty, and what they achieved."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from ase import Atoms

from adaptntk.campaign.config import Campaign
from adaptntk.campaign.layout import ROLES, RoundDirectory, read_own
from adaptntk.campaign.records import ErrorRecord, Holdout, LabelCounts, Picks, RoundSummary
from adaptntk.campaign.steps.driver import Driver
from adaptntk.core import metrics
from adaptntk.data.structures import structure_hash, structure_sizes
from adaptntk.evaluation import energy_errors, force_errors, force_rmse_interval, summarise_errors
from adaptntk.files import write_atomically
from adaptntk.labelers.record import labels_bought
from adaptntk.models.protocol import Predictions
from adaptntk.models.registry import load_potential
from adaptntk.training.checkpoint import checkpoint_file
from adaptntk.training.limits import Limit
from adaptntk.training.loop import TrainingOptions, train
from adaptntk.uncertainty.file import load_fitted, save_fitted
from adaptntk.uncertainty.fit import fit as fit_method
from adaptntk.uncertainty.fitted import Fitted
from adaptntk.uncertainty.workbench import GivenModel

# Of the bound on the error of a hold-out structure.
BOUND_COVERAGE = 0.9


def learn(driver: Driver, here: RoundDirectory) -> None:
    """Train the network on all labels so far."""
    # The checkpoint is removed last, after the model and the record of its training are there.
    if here.model.exists() and not checkpoint_file(here.model).exists():
        return
    config = driver.config
    given = config.start.model
    if here.number == 0 and given is not None:
        write_atomically(here.model, lambda temporary: shutil.copyfile(given, temporary))
        return
    continued = config.train.mode == "fine-tune" and here.number > 0
    start = driver.run.round(here.number - 1).model if continued else None
    training, valid = read_own(driver.run.isolated) + driver.run.labelled("train"), driver.run.labelled("valid")
    driver.do(train_model, here.model, training, valid, start, config, driver.seed(here.number, 0))


def fit(driver: Driver, here: RoundDirectory) -> None:
    """Fit the uncertainty of the round's model."""
    if not here.ntk.exists():
        training, valid = driver.run.labelled("train"), driver.run.labelled("valid")
        head = driver.config.head(here.number)
        driver.do(fit_ntk, here.model, here.ntk, training, valid, head, driver.config)


def train_model(
    output: Path, training: Sequence[Atoms], valid: Sequence[Atoms], start: Path | None, config: Campaign, seed: int
) -> None:
    """Train the network of a round; goes on where it was interrupted."""
    device, dtype = config.execution.device, config.train.dtype
    potential = None if start is None else load_potential(start, device, dtype, config.start.head)
    options = TrainingOptions(dtype, checkpoint_file(output).exists(), start=potential)
    recipe = config.train.recipe if start is None else config.train.later_recipe
    train(training, valid, output, recipe, seed, device, options=options)


def fit_ntk(
    model: Path, output: Path, training: Sequence[Atoms], valid: Sequence[Atoms], head: str | None, config: Campaign
) -> None:
    """Fit and calibrate the uncertainty of a round."""
    potential = load_potential(model, config.execution.device, head=head)
    bench = GivenModel(training, valid, config.seed, potential=potential)
    save_fitted(fit_method(bench, "ntk", asdict(config.uncertainty.options)), output)


def load_ntk(path: Path, device: str) -> Fitted:
    """The uncertainty of a round; a worker that has it in memory does not read it again."""
    return _load(path, path.stat().st_mtime_ns, device)


@lru_cache(maxsize=1)
def _load(path: Path, changed: int, device: str) -> Fitted:
    return load_fitted(path, device=device)


def evaluate(driver: Driver, here: RoundDirectory) -> RoundSummary:
    """Errors on all hold-out structures so far, and the summary that completes the round."""
    run, config = driver.run, driver.config
    frames = run.labelled("holdout")
    uncertainty = load_ntk(here.ntk, config.execution.device)
    found = uncertainty.assess(frames)
    scores = uncertainty.scores_of_variance(found.variance, frames)
    assert scores.sigma is not None
    assert scores.energy_sigma is not None
    assert uncertainty.calibration is not None
    errors, energies = force_errors(found.forces, frames), energy_errors(found.energies, frames)
    bounds = uncertainty.calibration.bound(scores.sigma, BOUND_COVERAGE)
    hashes = [structure_hash(atoms) for atoms in frames]
    Holdout(hashes, errors, scores.sigma, bounds, energies, scores.energy_sigma).write(here.holdout)
    test = driver.test_structures()
    spearman = metrics.spearman(found.variance, errors)
    information = [pick.information for pick in (here.picks.read() or Picks()).all]
    counts = {role: len(run.labelled(role)) for role in ROLES}
    on_holdout = _summary(Predictions(found.energies, found.forces), frames, driver)
    # A model that was given has not learnt from the labels of the campaign.
    learnt = None if here.number == 0 and config.start.model is not None else uncertainty.learnt
    summary = RoundSummary(
        round=here.number,
        labels=LabelCounts(**counts, quarantined=len(run.files.all_failures())),
        labels_spent=labels_bought(run.label_records()),
        confidence=config.stop.confidence,
        coverage=BOUND_COVERAGE,
        errors=on_holdout,
        test=_summary(uncertainty.potential.predict(test), test, driver) if test else None,
        spearman=float(spearman) if np.isfinite(spearman) else None,
        information_per_label=float(np.mean(information)) if information else None,
        remarks=tuple(uncertainty.remarks(scores.beyond, scores.lone, "hold-out structures")),
        learnt=learnt,
        limit=None if learnt is None else _in_campaign(learnt.limit(on_holdout.force_rmse, len(frames))),
    )
    here.summary.write(summary)
    return summary


def _in_campaign(limit: Limit) -> Limit:
    """With fields of a campaign in place of options of ``adaptntk train``."""
    advice = re.sub("--([a-z-]+)", lambda found: f"train.{found[1].replace('-', '_')}", limit.advice)
    return replace(limit, advice=advice)


def _summary(predicted: Predictions, frames: Sequence[Atoms], driver: Driver) -> ErrorRecord:
    """What is said of the errors on a set of structures."""
    sizes, errors = structure_sizes(frames).astype(float), force_errors(predicted.forces, frames)
    low, high = force_rmse_interval(errors, sizes, driver.config.stop.confidence, driver.config.seed)
    found = summarise_errors(predicted, frames)
    return ErrorRecord(found.force_rmse, low, high, found.force_rmse_p99, found.energy_mae_per_atom)
