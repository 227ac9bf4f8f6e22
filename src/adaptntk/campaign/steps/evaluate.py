"""What a round achieved."""

from collections.abc import Sequence

import numpy as np
from ase import Atoms

from adaptntk.campaign.layout import ROLES, RoundDirectory
from adaptntk.campaign.records import ErrorRecord, Holdout, LabelCounts, Picks, RoundSummary
from adaptntk.campaign.steps.driver import Driver
from adaptntk.campaign.steps.learn import load_ntk
from adaptntk.core import metrics
from adaptntk.data.structures import structure_hash, structure_sizes
from adaptntk.evaluation import energy_errors, force_errors, force_rmse_interval, summarise_errors
from adaptntk.labelers.record import GIVEN
from adaptntk.models.protocol import Predictions

# Of the bound on the error of a hold-out structure.
BOUND_COVERAGE = 0.9


def evaluate(driver: Driver, here: RoundDirectory) -> RoundSummary:
    """Errors on all hold-out structures so far, and the summary that completes the round."""
    run, config = driver.run, driver.config
    frames = run.labelled("holdout")
    uncertainty = load_ntk(here.ntk, config.execution.device)
    found = uncertainty.assess(frames)
    sigma = uncertainty.scores_of_variance(found.variance, frames).sigma
    assert sigma is not None
    assert uncertainty.calibration is not None
    errors, energies = force_errors(found.forces, frames), np.abs(energy_errors(found.energies, frames))
    bounds = uncertainty.calibration.error_bound(found.variance, BOUND_COVERAGE)
    Holdout([structure_hash(atoms) for atoms in frames], errors, sigma, bounds, energies).write(here.holdout)
    test = driver.test_structures()
    spearman = metrics.spearman(found.variance, errors)
    information = [pick.information for pick in (here.picks.read() or Picks()).all]
    counts = {role: len(run.labelled(role)) for role in ROLES}
    summary = RoundSummary(
        round=here.number,
        labels=LabelCounts(**counts, quarantined=len(run.files.all_failures())),
        labels_spent=sum(record.chosen_by != GIVEN for record in run.label_records()),
        confidence=config.stop.confidence,
        coverage=BOUND_COVERAGE,
        errors=_summary(Predictions(found.energies, found.forces), frames, driver),
        test=_summary(uncertainty.potential.predict(test), test, driver) if test else None,
        spearman=float(spearman) if np.isfinite(spearman) else None,
        information_per_label=float(np.mean(information)) if information else None,
    )
    here.summary.write(summary)
    return summary


def _summary(predicted: Predictions, frames: Sequence[Atoms], driver: Driver) -> ErrorRecord:
    """What is said of the errors on a set of structures."""
    sizes, errors = structure_sizes(frames).astype(float), force_errors(predicted.forces, frames)
    low, high = force_rmse_interval(errors, sizes, driver.config.stop.confidence, driver.config.seed)
    found = summarise_errors(predicted, frames)
    return ErrorRecord(found.force_rmse, low, high, found.force_rmse_p99, found.energy_mae_per_atom)
