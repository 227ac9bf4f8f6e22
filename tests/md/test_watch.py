"""One set of settings for the verb and for campaigns: rules, thresholds and candidates follow from it."""

from dataclasses import replace

import numpy as np
import pytest
from ase import Atoms

from adaptntk.campaign.config import Explore
from adaptntk.core.calibration import Calibration, VarianceCalibration
from adaptntk.errors import InputError
from adaptntk.md.dynamics import Monitor
from adaptntk.md.physical_rules import PHYSICAL_RULES
from adaptntk.md.rules import AtomErrorLevel, ConformalThreshold, ErrorLevel
from adaptntk.md.watch import Watch
from tests.md.test_rules import CALIBRATION, OF_ATOMS, observed


def alarms(watch, calibration=CALIBRATION):
    rules = watch.rules(calibration)
    assert tuple(rules[: len(PHYSICAL_RULES)]) == PHYSICAL_RULES
    return rules[len(PHYSICAL_RULES) :]


def framed(scores):
    sigmas = CALIBRATION.force_sigma(np.array(scores, dtype=float))
    told = zip(scores, sigmas, strict=True)
    return [Atoms("H", info={"ntk_variance": score, "forces_uncertainty": sigma}) for score, sigma in told]


def test_atoms_are_watched_besides():
    atoms = AtomErrorLevel(0.7, 0.8, patience=3, lost=4.0)
    assert alarms(Watch(0.8, None, 3, 4.0, max_atom_error=0.7), OF_ATOMS) == [
        ConformalThreshold(0.8, patience=3, lost=4.0),
        atoms,
    ]
    assert alarms(Watch(0.8, 0.5, 3, 4.0, max_atom_error=0.7), OF_ATOMS) == [
        ErrorLevel(0.5, 0.8, patience=3, lost=4.0),
        atoms,
    ]
    frames = framed([0.1, 0.1])
    for frame, sigma in zip(frames, (0.1, 2.0), strict=True):
        frame.arrays["forces_uncertainty_per_atom"] = np.array([sigma])
    assert Watch(0.8, max_atom_error=0.7).not_lost(frames, OF_ATOMS) == frames[:1]


def test_rules():
    score = ConformalThreshold(0.8, patience=3, lost=4.0)
    level = ErrorLevel(0.5, 0.8, patience=3, lost=4.0)
    watch = Watch(0.8, None, 3, 4.0)
    assert alarms(watch) == [score]
    assert alarms(replace(watch, max_error=0.5)) == [level]
    assert alarms(replace(watch, max_error=0.5, early=True)) == [score, level]
    assert alarms(replace(watch, max_error=0.5, keep_going=True)) == []
    assert alarms(replace(watch, keep_going=True), None) == []


def test_the_level_of_a_campaign_heeds_coverage_and_lost():
    """The bound at the stated coverage alarms, and beyond ``lost`` times the level the run ends at once."""
    explore = Explore(max_error=0.8, coverage=0.6, lost=1.2, patience=50)
    (_, level) = alarms(explore.watch)
    assert level == ErrorLevel(0.8, 0.6, patience=50, lost=1.2)
    # sigma = sqrt(U + 0.01), and the bound is that times the conformal quantile of the ratios at 0.6.
    quantile = np.linspace(0.5, 1.5, 99)[59]
    beyond = (1.21 * 0.8 / quantile) ** 2 - 0.01
    assert "more than 1.2 times" in Monitor([level], CALIBRATION).observe(observed(beyond)).text
    patient = Monitor([level], CALIBRATION)
    assert patient.observe(observed((1.19 * 0.8 / quantile) ** 2 - 0.01)) is None
    # A level that knew only of patience would go on.
    assert Monitor([ErrorLevel(0.8, patience=50)], CALIBRATION).observe(observed(beyond)) is None


def test_what_is_lost_by_the_level_is_no_candidate():
    watch = Watch(0.9, 0.6, lost=1.5, early=True)
    quantile = np.linspace(0.5, 1.5, 99)[89]
    limit = (1.5 * 0.6 / quantile) ** 2 - 0.01
    assert limit < 1.5 * 0.9, "the level is the stricter one here"
    frames = framed([0.1, 0.999 * limit, 1.001 * limit, 1.5 * 0.9, 1.36])
    assert watch.not_lost(frames, CALIBRATION) == frames[:2]
    assert replace(watch, max_error=None).not_lost(frames, CALIBRATION) == frames[:4]
    assert replace(watch, max_error=0.6, keep_going=True).not_lost(frames, CALIBRATION) == frames[:4]
    assert watch.not_lost(frames, None) == frames


def test_a_level_that_cannot_be_kept(caplog):
    """A user who asks for it is told; an early model of a campaign is watched by its score meanwhile."""
    with pytest.raises(InputError, match="can never be kept"):
        Watch(0.9, 0.1).rules(CALIBRATION)
    early = Watch(0.9, 0.1, early=True)
    assert alarms(early) == [ConformalThreshold(0.9)]
    assert "can never be kept" in caplog.text
    assert early.not_lost(framed([0.1, 5.0]), CALIBRATION)[0].info["ntk_variance"] == 0.1


def test_thresholds_of_candidates():
    assert Watch(0.9).threshold(CALIBRATION) == pytest.approx(0.9)
    assert Watch(0.9, above=0.5).threshold(CALIBRATION) == pytest.approx(0.5)
    assert Watch(0.9, above=0).threshold(CALIBRATION) is None
    assert Watch(0.9).threshold(None) is None
    few = Calibration(
        VarianceCalibration(1.0, 0.1), VarianceCalibration(1.0, 0.1), np.linspace(0.5, 1.5, 10), np.arange(1, 11) / 10
    )
    with pytest.raises(InputError, match="calibrate on at least 99"):
        Watch(0.99).threshold(few)
    with pytest.raises(InputError, match="between 0 and 1"):
        Watch(1.2)
