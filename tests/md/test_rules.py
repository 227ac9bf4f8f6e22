"""Every rule where it fires and where it does not; patience and hysteresis."""

from dataclasses import replace

import ase.build
import numpy as np
import pytest
from hypothesis import given, strategies as st

from adaptntk.core.calibration import Calibration, VarianceCalibration
from adaptntk.errors import InputError
from adaptntk.md.dynamics import Monitor, StopReason
from adaptntk.md.physical_rules import PHYSICAL_RULES, FlyingAtoms, FusedAtoms, LoneAtoms, NotFinite, TemperatureLimit
from adaptntk.md.rules import AtomErrorLevel, ConformalThreshold, ErrorLevel, Observation, RelativeThreshold

# 99 scores 0.01 .. 0.99, sigma^2 = u + 0.01, errors between 0.5 and 1.5 sigma.
CALIBRATION = Calibration(
    VarianceCalibration(1.0, 0.1),
    VarianceCalibration(1.0, 0.1),
    np.linspace(0.5, 1.5, 99),
    np.arange(1, 100) / 100,
)
ETHANOL = ase.build.molecule("CH3CH2OH")


def observed(variance=None, atoms=ETHANOL, calibration=CALIBRATION, **others):
    values = {"step": 7, "time": 3.5, "start": ETHANOL, "temperature": 300.0, "target": 300.0} | others
    sigma = None if variance is None else float(calibration.force_sigma(np.array([variance]))[0])
    return Observation(atoms=atoms, variance=variance, sigma=sigma, **values)


@pytest.mark.parametrize(
    ("rule", "threshold"),
    [
        # The 90th smallest of 99 scores.
        (ConformalThreshold(0.9), 0.90),
        # sigma x the 90th smallest ratio reaches 0.5 at this U.
        (ErrorLevel(0.5, 0.9), (0.5 / np.linspace(0.5, 1.5, 99)[89]) ** 2 - 0.01),
        # Twice the sigma of the median score.
        (RelativeThreshold(2.0), 4 * 0.51 - 0.01),
    ],
)
def test_uncertainty_rules_fire_above_their_threshold_only(rule, threshold):
    assert rule.check(observed(threshold * 0.9999), CALIBRATION) is None
    reason = rule.check(observed(threshold * 1.0001), CALIBRATION)
    assert "passed" in reason
    assert "\n" not in reason
    assert rule.check(observed(np.nan), CALIBRATION) is not None
    assert rule.check(observed(None), CALIBRATION) is None


def test_uncertainty_rules_on_real_structures(fitted, parts):
    """Like the calibration set: silent for most. Compressed to two thirds: all fire."""
    median = float(np.median(fitted.calibration.forces.sigma(fitted.calibration.variances)))
    rules = ConformalThreshold(0.95), ErrorLevel(4 * median, 0.9), RelativeThreshold(3.0)
    squeezed = parts["test"][0].copy()
    squeezed.positions *= 0.67
    known = fitted.score(parts["test"]).variance
    strange = float(fitted.score([squeezed]).variance[0])
    for rule in rules:
        known_ones = [observed(float(u), calibration=fitted.calibration) for u in known]
        alarms = [rule.check(each, fitted.calibration) is not None for each in known_ones]
        assert np.mean(alarms) <= 0.15, rule.name
        strange_one = observed(strange, calibration=fitted.calibration)
        assert rule.check(strange_one, fitted.calibration) is not None, rule.name


# Errors of atoms between 0.5 and 1.5 sigma_i, sigma_i^2 = v_i + 0.01; of the worst of each structure up to 2.
OF_ATOMS = replace(
    CALIBRATION,
    atoms=VarianceCalibration(1.0, 0.1),
    atom_ratios=np.linspace(0.5, 1.5, 990),
    worst_ratios=np.linspace(1.0, 2.0, 99),
)


def test_the_worst_atom_alarms_however_sure_the_structure_is():
    rule = AtomErrorLevel(0.5, 0.9)
    threshold = 0.5 / OF_ATOMS.worst_ratios[89]
    assert rule.check(observed(0.01, worst_atom=0.999 * threshold), OF_ATOMS) is None
    reason = rule.check(observed(0.01, worst_atom=1.001 * threshold), OF_ATOMS)
    assert "of all atoms, 0.5005 eV/Å for the worst, passed 0.5 eV/Å" in reason
    assert rule.check(observed(0.01, worst_atom=None), OF_ATOMS) is None
    with pytest.raises(InputError, match="needs an uncertainty of atoms: fit with --committee"):
        rule.check_calibration(CALIBRATION)
    with pytest.raises(InputError, match=r"can never be kept: the bound at 0\.9 is 0\.19"):
        AtomErrorLevel(0.15, 0.9).check_calibration(OF_ATOMS)


def test_false_alarms_of_the_conformal_rule_are_as_rare_as_stated():
    """Over many draws of a calibration set and a new score: an exact statement, up to sampling noise."""
    rng = np.random.default_rng(0)
    rule, alarms = ConformalThreshold(0.9), 0
    for _ in range(2000):
        scores = rng.exponential(size=30)
        calibration = replace(CALIBRATION, variances=np.sort(scores[:29]))
        alarms += rule.check(observed(float(scores[29])), calibration) is not None
    assert abs(alarms / 2000 - 0.1) < 0.02


def test_temperature():
    for rule, limit in (
        (TemperatureLimit(5.0), 1500),
        (TemperatureLimit(None, 900), 900),
        (TemperatureLimit(2, 900), 600),
    ):
        assert rule.check(observed(temperature=limit - 1)) is None
        assert "K" in rule.check(observed(temperature=limit + 1))
    assert TemperatureLimit(5.0).check(observed(temperature=1e9, target=None)) is None


def test_fused_atoms(parts, silicon):
    for atoms in [*parts["test"], silicon]:
        assert FusedAtoms().check(observed(atoms=atoms)) is None
    near = ETHANOL.copy()
    near.set_distance(0, 1, 0.74, fix=0)
    assert FusedAtoms().check(observed(atoms=near)).startswith("C0 and C1 are 0.74 Å apart")
    assert FusedAtoms(0.45).check(observed(atoms=near)) is None
    # Across the border of a cell.
    silicon.positions[1] = silicon.positions[0] + silicon.cell[0] - [0.5, 0, 0]
    assert "Å apart" in FusedAtoms().check(observed(atoms=silicon))


def test_flying_atoms(parts, silicon):
    for atoms in parts["test"]:
        assert FlyingAtoms().check(observed(atoms=atoms)) is None
    gone = ETHANOL.copy()
    gone.positions[-1] += [6.0, 0, 0]
    reason = FlyingAtoms(4.0).check(observed(atoms=gone))
    assert reason.startswith("H is more than 4 Å")
    assert FlyingAtoms(8.0).check(observed(atoms=gone)) is None
    # Two molecules apart from the beginning are no surprise; an atom that leaves one of them is.
    pair = ETHANOL.copy()
    far = ETHANOL.copy()
    far.positions += 30.0
    pair += far
    assert FlyingAtoms().check(observed(atoms=pair, start=pair)) is None
    lost = pair.copy()
    lost.positions[0] -= 20.0
    assert FlyingAtoms().check(observed(atoms=lost, start=pair)) is not None
    # In a crystal every atom has neighbours across the border.
    assert FlyingAtoms(2.6).check(observed(atoms=silicon, start=silicon)) is None


def test_atoms_that_the_model_sees_alone_end_a_run_and_are_not_certain():
    rule = LoneAtoms()
    assert rule.check(observed(0.0)) is None
    assert rule.check(observed(0.0, lone=True)).startswith("no atom has a neighbour")
    assert rule in PHYSICAL_RULES
    # The small score neither alarms nor makes good what was before.
    monitor = Monitor([ConformalThreshold(0.9, patience=2)], CALIBRATION)
    assert monitor.observe(observed(0.95)) is None
    assert monitor.observe(observed(0.0, lone=True)) is None
    assert monitor.observe(observed(0.95)) is not None


def test_not_finite():
    rule = NotFinite()
    assert rule.check(observed(1.0, energy=-3.0, forces=np.zeros((9, 3)))) is None
    broken = ETHANOL.copy()
    broken.positions[3, 1] = np.nan
    assert rule.check(observed(atoms=broken)) == "positions: NaN or infinite"
    assert rule.check(observed(energy=np.inf)) == "energy: NaN or infinite"
    assert rule.check(observed(forces=np.full((9, 3), np.nan))) == "forces: NaN or infinite"
    assert rule.check(observed(np.nan)) == "uncertainty: NaN or infinite"
    for other in PHYSICAL_RULES[1:]:  # must live with it, whatever the order
        other.check(observed(atoms=broken))


def test_physical_rules_stop_at_once():
    gone = ETHANOL.copy()
    gone.positions[-1] += 20.0
    monitor = Monitor(PHYSICAL_RULES)
    assert monitor.observe(observed()) is None
    stopped = monitor.observe(observed(atoms=gone, step=8))
    assert stopped == StopReason("flying-atoms", "H is more than 4 Å from everything else", 8)


def steps_until_stop(rule, scores):
    monitor = Monitor([rule], CALIBRATION)
    for step, score in enumerate(scores):
        stopped = monitor.observe(observed(score, step=step))
        if stopped is not None:
            assert stopped.step == step
            return step
    return None


RULE = ConformalThreshold(0.9, patience=3, release=0.8, lost=np.inf)  # threshold 0.90, release below 0.72


def test_patience_and_hysteresis_by_hand():
    assert steps_until_stop(RULE, [0.95, 0.95, 0.95]) == 2
    assert steps_until_stop(RULE, [0.95, 0.1, 0.95, 0.1, 0.95, 0.1]) is None  # single noisy frames
    assert steps_until_stop(RULE, [0.95, 0.8, 0.95, 0.8, 0.95]) == 4  # dips that hide a trend
    assert steps_until_stop(RULE, [0.95, None, 0.95, None, 0.95]) == 4  # moments without uncertainty
    assert steps_until_stop(replace(RULE, patience=1), [0.1, 0.95]) == 1
    assert steps_until_stop(replace(RULE, lost=2.0), [0.1, 1.75, 0.1, 1.85]) == 3  # 2 x 0.90 needs no patience


def test_who_is_lost_is_told_so():
    reason = Monitor([replace(RULE, lost=2.0)], CALIBRATION).observe(observed(1.85))
    assert "passed 0.9, which 90 % of known structures stay below, more than 2 times" in reason.text


@given(st.lists(st.floats(0, 2), max_size=40), st.integers(1, 5))
def test_stops_at_the_last_alarm_of_patience_without_a_release(scores, patience):
    rule = replace(RULE, patience=patience)
    expected = None
    for step in range(len(scores)):
        # Said again in words: alarms since the last release.
        since = [index for index in range(step + 1) if scores[index] / 0.9 < 0.8]
        count = sum(scores[index] / 0.9 > 1 for index in range(since[-1] if since else 0, step + 1))
        if count >= patience:
            expected = step
            break
    assert steps_until_stop(rule, scores) == expected


@given(st.lists(st.floats(0, 2), max_size=40), st.integers(1, 4))
def test_more_patience_never_stops_earlier_and_calm_never_stops(scores, patience):
    found = [steps_until_stop(replace(RULE, patience=p), scores) for p in (patience, patience + 1)]
    assert (found[0] if found[0] is not None else 99) <= (found[1] if found[1] is not None else 99)
    assert steps_until_stop(replace(RULE, patience=patience), [min(score, 0.9) for score in scores]) is None


def test_rules_that_cannot_be_decided_are_refused_at_once():
    small = replace(CALIBRATION, variances=CALIBRATION.variances[:20], ratios=CALIBRATION.ratios[:20])
    with pytest.raises(InputError, match="at least 99"):
        Monitor([ConformalThreshold(0.99)], small)
    Monitor([ConformalThreshold(0.99)], CALIBRATION)
    with pytest.raises(InputError, match="calibrate on at least 19"):
        Monitor([ErrorLevel(0.5, 0.95)], replace(small, ratios=small.ratios[:18], variances=small.variances[:18]))
    with pytest.raises(InputError, match="can never be kept"):
        Monitor([ErrorLevel(0.1, 0.9)], CALIBRATION)
    with pytest.raises(InputError, match="needs a calibrated uncertainty"):
        Monitor([RelativeThreshold()], None)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ConformalThreshold(1.0),
        lambda: ConformalThreshold(0.9, patience=0),
        lambda: ConformalThreshold(0.9, lost=0.5),
        lambda: ErrorLevel(-1.0),
        lambda: ErrorLevel(1.0, release=0.0),
        lambda: RelativeThreshold(0.0),
        lambda: TemperatureLimit(None),
        lambda: TemperatureLimit(-1.0),
        lambda: FusedAtoms(1.5),
        lambda: FlyingAtoms(0.0),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(InputError):
        make()
