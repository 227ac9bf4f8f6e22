import dataclasses
import json

import numpy as np
import pytest
from ase import Atoms

from adaptntk.core import metrics
from adaptntk.data.labels import STRESS
from adaptntk.data.structures import ENERGY, FORCES
from adaptntk.errors import InputError
from adaptntk.evaluation import energy_errors, force_errors
from adaptntk.files import write_json
from adaptntk.md.watch import Watch
from adaptntk.training.limits import Learnt
from adaptntk.uncertainty.evaluate import Evaluation, evaluate
from adaptntk.uncertainty.file import load_fitted, save_fitted
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.workbench import GivenModel
from adaptntk.verbs.evaluate import EvaluateReport
from tests.conftest import tiny_network
from tests.crystals import strained_metals


def test_numbers_are_those_of_the_metrics(fitted, parts):
    result = evaluate(fitted, parts["test"])
    u = fitted.score(parts["test"]).of_forces
    e = force_errors(fitted.potential.predict(parts["test"]).forces, parts["test"])
    assert result.metrics["spearman"] == pytest.approx(metrics.spearman(u, e), abs=1e-6)
    assert result.metrics["pearson_of_variance"] == pytest.approx(metrics.pearson(u, e), rel=1e-4)
    assert result.metrics["force_rmse"] == pytest.approx(np.sqrt(np.mean(e**2)), rel=1e-4)
    assert result.metrics["ence"] == pytest.approx(metrics.ence(fitted.score(parts["test"]).sigma, e), rel=1e-3)
    low, high = result.metrics["spearman_interval"]
    assert low < result.metrics["spearman"] < high
    observed = np.mean(e <= fitted.calibration.error_bound(u, 0.9))
    assert result.metrics["conformal"]["0.9"]["observed"] == pytest.approx(observed)
    assert len(result.columns["ntk_variance"]) == len(parts["test"])
    assert result.columns["force_error"] == pytest.approx(e.tolist(), rel=1e-4)
    json.dumps(result.metrics, allow_nan=False)
    assert result.metrics["correlation_with_size"] is None


def test_errors_are_those_of_what_the_method_predicts(fit_by_name, parts):
    """Of a committee: of its mean, not of its first member."""
    fitted = fit_by_name("ensemble")
    result = evaluate(fitted, parts["test"])
    mean = force_errors(fitted.assess(parts["test"]).forces, parts["test"])
    assert result.metrics["method"] == "ensemble"
    assert result.columns["force_error"] == pytest.approx(mean.tolist(), rel=1e-4)
    assert "ensemble_variance" in result.columns


def test_coverage_out_of_reach_is_said_not_faked(trained, parts):
    small = fit(GivenModel(parts["train"], parts["valid"][:12], potential=trained), "last_layer")
    coverage = evaluate(small, parts["test"]).metrics["conformal"]["0.95"]
    assert coverage["observed"] is None


# About that of the model of `fitted` on its test set, eV/Å.
RMSE = 0.3


def without(frames, label):
    """Copies that lack a label."""
    frames = [atoms.copy() for atoms in frames]
    for atoms in frames:
        del (atoms.arrays if label == FORCES else atoms.info)[label]
    return frames


@pytest.fixture
def with_slope(fitted):
    """With a sigma of energies that differs: the little network gives the same to all."""
    calibration = fitted.calibration
    slope = 10 * calibration.energy.b**2 / np.mean(calibration.variances)
    energy = dataclasses.replace(calibration.energy, a=float(slope))
    return dataclasses.replace(fitted, calibration=dataclasses.replace(calibration, energy=energy))


def test_energies(with_slope, parts):
    """Without the offset of the calibration, and with its sign."""
    fitted = with_slope
    result, frames = evaluate(fitted, parts["test"]), parts["test"]
    energy, scores = result.metrics["energy"], fitted.score(frames)
    errors = energy_errors(fitted.potential.predict(frames).energies, frames)
    offset = fitted.calibration.energy_offset * 9**fitted.calibration.energy_power
    remaining = np.abs(errors - offset)
    assert result.columns["energy_error"] == pytest.approx(errors.tolist(), rel=1e-3, abs=1e-5)
    assert result.columns["energy_error_without_offset"] == pytest.approx(
        (errors - offset).tolist(), rel=1e-3, abs=1e-5
    )
    assert energy["offset"] == pytest.approx(errors.mean(), rel=1e-3)
    assert energy["offset_removed"] == pytest.approx(offset)
    assert energy["mae_without_offset"] == pytest.approx(remaining.mean(), rel=1e-3)
    assert result.metrics["energy_mae"] == energy["mae"]
    assert energy["spearman"] == pytest.approx(metrics.spearman(scores.energy_sigma, remaining), abs=1e-3)
    assert energy["ence"] == pytest.approx(metrics.ence(scores.energy_sigma, remaining), rel=1e-2)
    assert energy["within_1_sigma"] == pytest.approx(np.mean(remaining <= scores.energy_sigma))
    bounds = np.array([fitted.entries(scores, i, 0.9)["energy_error_bound"] for i in range(len(frames))])
    assert energy["conformal"]["0.9"]["observed"] == pytest.approx(np.mean(remaining <= bounds))


def test_sigma_does_not_know_the_zero_of_energy(fitted, given, trained, parts):
    """Labels of another program, with other energies of free atoms: the same uncertainty, another offset."""
    shifted = [atoms.copy() for atoms in parts["valid"]]
    for atoms in shifted:
        atoms.info[ENERGY] += 123.0
    other, own = fit(GivenModel(parts["train"], shifted, potential=trained)), fit(given)
    ours, theirs = own.calibration, other.calibration
    assert theirs.energy_offset - ours.energy_offset == pytest.approx(-123.0 / 9**ours.energy_power, rel=1e-6)
    scores = own.score(parts["pool"])
    assert other.score(parts["pool"]).energy_sigma == pytest.approx(scores.energy_sigma, rel=1e-3)
    assert scores.energy_sigma.max() < 5


@pytest.mark.parametrize("label", [ENERGY, FORCES])
def test_one_kind_of_label_is_enough(fitted, parts, label):
    whole, part = evaluate(fitted, parts["test"]), evaluate(fitted, without(parts["test"], label))
    json.dumps(part.metrics, allow_nan=False)
    if label == ENERGY:
        assert part.metrics["energy"] is None
        assert part.columns["energy_error"] == [None] * len(parts["test"])
        for key in ("spearman", "ence", "force_rmse", "spearman_interval"):
            assert part.metrics[key] == pytest.approx(whole.metrics[key])
    else:
        assert part.metrics["force_rmse"] is None
        assert "spearman" not in part.metrics
        for key in ("mae", "offset", "spearman", "within_2_sigma"):
            assert part.metrics["energy"][key] == whole.metrics["energy"][key]


@pytest.mark.parametrize("label", [ENERGY, FORCES])
def test_one_kind_of_label_calibrates_what_it_can(trained, parts, label, tmp_path):
    small = fit(GivenModel(parts["train"], without(parts["valid"], label), potential=trained), "last_layer")
    save_fitted(small, tmp_path / "one.ntk")
    for fitted in (small, load_fitted(tmp_path / "one.ntk", potential=trained)):
        scores = fitted.score(parts["test"])
        kind = "forces" if label == ENERGY else "energy"
        keys = {"last_layer_variance", "beyond_calibration", f"{kind}_uncertainty", f"{kind}_error_bound"}
        assert fitted.entries(scores, 0, 0.9).keys() == keys
        found = evaluate(fitted, parts["test"]).metrics
        assert ("ence" in found, "ence" in found["energy"]) == (label == ENERGY, label == FORCES)
        assert found["energy"]["mae"] > 0
        assert found["force_rmse"] > 0
    if label == FORCES:
        with pytest.raises(InputError, match="force labels"):
            Watch(max_error=0.1).rules(small.calibration)


def test_all_structures_have_the_same_kinds_of_labels(fitted, trained, parts):
    """One that lacks a label is a mistake; nothing is left out without a word."""
    test, bare = parts["test"], without(parts["test"], FORCES)
    with pytest.raises(InputError, match="test set, frame 3: no label 'REF_forces', which frame 0 has"):
        evaluate(fitted, [*test[:3], bare[3], *test[4:]])
    with pytest.raises(InputError, match="test set, frame 0: no label 'REF_forces', which frame 1 has"):
        evaluate(fitted, [bare[0], *test[1:]])
    with pytest.raises(InputError, match="test set, frame 0: no REF_energy or REF_forces"):
        evaluate(fitted, without(bare, ENERGY))
    with pytest.raises(InputError, match="validation set, frame 5: no label 'REF_forces', which frame 0 has"):
        fit(GivenModel(parts["train"], [*parts["valid"][:5], *bare], potential=trained), "last_layer")


def test_files_of_before_have_the_offset_in_their_sigma(with_slope, parts, tmp_path):
    """And no bound of energies; what is said of them is said of the whole error."""
    before = dataclasses.replace(with_slope.calibration, energy_offset=0.0, energy_ratios=np.zeros(0))
    found = evaluate(dataclasses.replace(with_slope, calibration=before), parts["test"])
    energy = found.metrics["energy"]
    assert "conformal" not in energy
    assert energy["mae_without_offset"] == energy["mae"]
    assert found.columns["energy_error_without_offset"] == found.columns["energy_error"]
    lines = "\n".join(EvaluateReport(found, tmp_path).lines())
    assert "offset, calibrated" not in lines
    assert "cancels in differences" in lines


def test_isolated_atoms_are_left_out(fitted, parts):
    """They have no forces and no sigma."""
    atoms = []
    for symbol in "HCO":
        alone = Atoms(symbol)
        alone.info[ENERGY], alone.arrays[FORCES] = -10.0, np.zeros((1, 3))
        atoms.append(alone)
    found = evaluate(fitted, [atoms[0], *parts["test"], *atoms[1:]])
    assert found.metrics == evaluate(fitted, parts["test"]).metrics
    assert found.columns["frame"] == list(range(1, 1 + len(parts["test"])))


def test_isolated_atoms_need_no_forces(fitted, parts, trained):
    """Those that are marked as such; an uncertainty is fitted without them."""
    marked = [Atoms(symbol, info={ENERGY: -10.0, "config_type": "IsolatedAtom"}) for symbol in "HCO"]
    found = evaluate(fitted, [*marked, *parts["test"]])
    assert found.metrics == evaluate(fitted, parts["test"]).metrics
    mixed = fit(GivenModel([*marked, *parts["train"]], [*marked, *parts["valid"]], potential=trained), "last_layer")
    plain = fit(GivenModel(parts["train"], parts["valid"], potential=trained), "last_layer")
    assert mixed.train_hashes == plain.train_hashes
    assert mixed.calibration.forces == plain.calibration.forces


def test_errors_of_stress(tmp_path):
    """Of structures that have the label."""
    frames = strained_metals(60, sizes=(1, 2))
    potential = tiny_network(numbers=(29,))
    fitted = fit(GivenModel(frames[:20], frames[20:40], potential=potential), "last_layer")
    test = frames[40:]
    for atoms in test[:5]:
        del atoms.info[STRESS]
    found = evaluate(fitted, test)
    errors = [potential.single_point(atoms).stress - atoms.info[STRESS] for atoms in test[5:]]
    assert found.metrics["stress"]["structures"] == 15
    assert found.metrics["stress"]["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(errors))))
    (line,) = [line for line in EvaluateReport(found, tmp_path).lines() if line.startswith("stress")]
    assert f"MAE {1000 * np.abs(errors).mean():.2f} meV/Å^3" in line
    assert "of 15 structures" in line
    assert evaluate(fitted, [*test[:5], *without(test[5:], STRESS)]).metrics["stress"] is None


def test_a_sigma_that_ranks_nothing(fitted, parts, tmp_path):
    """Correlations with a constant are undefined, here and in the file; and are told as such."""
    calibration = fitted.calibration
    constant = dataclasses.replace(calibration, energy=dataclasses.replace(calibration.energy, a=0.0))
    found = evaluate(dataclasses.replace(fitted, calibration=constant), parts["test"])
    assert found.metrics["energy"]["spearman"] is None
    assert found.metrics["energy"]["spearman_interval"] == [None, None]
    write_json(tmp_path / "evaluation.json", found.metrics)
    lines = [*EvaluateReport(found, tmp_path).lines()]
    assert "note: sigma is the same for all energies: it ranks none of their errors" in lines
    flat_metrics = found.metrics | {"spearman": None, "spearman_interval": [None, None], "pearson": None}
    flat_metrics |= {"control_predicted_energy_spearman": None, "pearson_of_variance": None, "aurc_n": None}
    lines = [*EvaluateReport(Evaluation(flat_metrics, {}), tmp_path).lines()]
    assert sum("undefined" in line for line in lines) >= 4


def test_unfit_requests(fitted, trained, parts):
    with pytest.raises(InputError, match="not calibrated"):
        evaluate(fit(GivenModel(parts["train"], potential=trained), "last_layer"), parts["test"])
    with pytest.raises(InputError, match="too few"):
        evaluate(fitted, parts["test"][:5])
    strange = parts["test"][3].copy()
    strange.numbers[0] = 17
    with pytest.raises(InputError, match="frame 3: the model does not know the element Cl"):
        evaluate(fitted, [*parts["test"][:3], strange, *parts["test"][4:]])
    with pytest.raises(InputError, match="frame 3: the model does not know the element Cl"):
        fitted.assess([*parts["test"][:3], strange])
    with pytest.raises(InputError, match="no structures"):
        fitted.assess([])
    with pytest.raises(InputError, match="also in the training set"):
        evaluate(fitted, [*parts["test"], parts["train"][0]])
    with pytest.raises(InputError, match="used to calibrate"):
        evaluate(fitted, [*parts["test"], parts["valid"][0]])
    wrong = [atoms.copy() for atoms in parts["test"]]
    for atoms, forces in zip(wrong, trained.predict(parts["test"]).forces, strict=True):
        atoms.arrays[FORCES] = 23.06 * forces
    with pytest.raises(InputError, match="look like kcal/mol"):
        evaluate(fitted, wrong)


def test_what_limits_the_model_is_said_of_these_structures(fitted, parts, hot_frames, tmp_path):
    """Its errors on three sets side by side; on others than it learnt from labels may be what it lacks."""
    known = dataclasses.replace(fitted, learnt=Learnt(0.9 * RMSE, RMSE, 30, gain=0.01))
    result = evaluate(known, parts["test"])
    errors = f"{900 * RMSE:.1f} meV/Å on the training set, {1000 * RMSE:.1f} on the validation set, "
    test = f"{1000 * result.metrics['force_rmse']:.1f} on the test set; twice the steps would take off about 1 %"
    lines = [*EvaluateReport(result, tmp_path).lines()]
    (line,) = (line for line in lines if line.startswith("limited by"))
    assert line == f"limited by the network: force RMSE {errors}{test}"
    assert lines[lines.index(line) + 1].startswith("advice: more labels will help little: ")
    assert result.metrics["learnt"] == dataclasses.asdict(known.learnt)
    far = dataclasses.replace(fitted, learnt=Learnt(0.1 * RMSE, 0.1 * RMSE, 30, gain=0.01))
    assert evaluate(far, hot_frames).metrics["limit"]["by"] == "labels"


def test_where_it_is_not_known_how_far_the_model_came_nothing_is_said(fitted, parts, tmp_path):
    result = evaluate(dataclasses.replace(fitted, learnt=None), parts["test"])
    assert "limit" not in result.metrics
    assert not any("limited by" in line for line in EvaluateReport(result, tmp_path).lines())
    energies_only = evaluate(fitted, without(parts["test"], FORCES))
    assert "on the test set" not in energies_only.metrics["limit"]["evidence"]
