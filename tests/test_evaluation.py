"""Errors and metrics: one name, one quantity."""

import numpy as np
import pytest
from ase import Atoms

from adaptntk.core import metrics
from adaptntk.core.calibration import Calibration, cross_fitted_sigma
from adaptntk.data.structures import ENERGY, FORCES, reference_energies, reference_forces
from adaptntk.errors import InputError
from adaptntk.evaluation import (
    calibration_quality,
    check_label_units,
    check_predicted,
    energy_errors,
    energy_summary,
    force_errors,
    force_rmse,
    force_rmse_interval,
    observed_coverage,
    ranking,
    size_correlation,
    summarise_errors,
)
from adaptntk.models.protocol import Predictions


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.fixture
def mixed():
    """Chains of hydrogen of many sizes with random labels, and predictions of them."""
    structures, energies, forces = [], [], []
    for size in rng().integers(1, 12, 40):
        atoms = Atoms(f"H{size}", positions=rng(size).normal(size=(size, 3)))
        atoms.info[ENERGY] = float(-13.6 * size + rng(size + 7).normal())
        atoms.arrays[FORCES] = rng(size + 20).normal(size=(size, 3))
        structures.append(atoms)
        energies.append(atoms.info[ENERGY] + 0.1 * size)
        forces.append(atoms.arrays[FORCES] + rng(len(structures)).normal(size=(size, 3)) * 0.05 * size)
    return structures, Predictions(np.array(energies), forces)


def test_force_rmse_is_over_all_components_of_the_set(mixed):
    """So a large structure weighs more than a small one."""
    structures, predicted = mixed
    residual = np.concatenate(
        [(p - r).ravel() for p, r in zip(predicted.forces, reference_forces(structures), strict=True)]
    )
    expected = np.sqrt(np.mean(residual**2))
    errors, sizes = force_errors(predicted.forces, structures), np.array([float(len(a)) for a in structures])
    assert errors[3] == pytest.approx(np.sqrt(np.mean((predicted.forces[3] - structures[3].arrays[FORCES]) ** 2)))
    assert force_rmse(errors, sizes) == pytest.approx(expected)
    assert abs(np.sqrt(np.mean(errors**2)) - expected) > 0.02
    summary = summarise_errors(predicted, structures)
    assert summary.force_rmse == pytest.approx(expected)
    assert summary.force_rmse_p99 == pytest.approx(np.quantile(errors, 0.99))
    assert summary.energy_mae == pytest.approx(0.1 * sizes.mean())
    assert summary.energy_mae_per_atom == pytest.approx(0.1)


def test_the_hot_tenth_has_the_highest_energy_its_elements_do_not_account_for(mixed):
    structures, predicted = mixed
    sizes = np.array([float(len(atoms)) for atoms in structures])
    energies = reference_energies(structures)
    excess = energies / sizes - (energies @ sizes) / (sizes @ sizes)
    hot = excess >= np.quantile(excess, 0.9)
    assert 0 < hot.sum() < 20
    expected = force_rmse(force_errors(predicted.forces, structures)[hot], sizes[hot])
    assert summarise_errors(predicted, structures).hot_force_rmse == pytest.approx(expected)


def test_energy_errors_have_a_sign(mixed):
    structures, predicted = mixed
    assert energy_errors(predicted.energies, structures) == pytest.approx([0.1 * len(atoms) for atoms in structures])


def test_the_interval_of_the_force_rmse(mixed):
    structures, predicted = mixed
    errors, sizes = force_errors(predicted.forces, structures), np.array([float(len(a)) for a in structures])
    low, high = force_rmse_interval(errors, sizes, 0.95, seed=0)
    assert low < force_rmse(errors, sizes) < high
    wider = force_rmse_interval(errors, sizes, 0.99, seed=0)
    assert wider[0] < low < high < wider[1]
    assert force_rmse_interval(errors, sizes, 0.95, seed=0) == (low, high)
    assert force_rmse_interval(np.full(5, 0.3), np.arange(1.0, 6.0), 0.95, 0) == pytest.approx((0.3, 0.3))


def test_ranking_has_the_metrics_of_their_names():
    u = rng().gamma(2.0, 1.0, 80)
    e = np.sqrt(u) * rng(1).exponential(1.0, 80)
    found = ranking(u, e, rng())
    assert found["spearman"] == metrics.spearman(u, e)
    assert found["pearson"] == metrics.pearson(np.sqrt(u), e)
    assert found["pearson_of_variance"] == metrics.pearson(u, e)
    for name in ("spearman", "pearson", "aurc_n"):
        low, high = found[f"{name}_interval"]
        assert low < found[name] < high


def test_ence_is_of_the_given_sigma_and_the_cross_fitted_one_is_not():
    u = rng().gamma(2.0, 1.0, 200)
    e = np.abs(np.sqrt(u) * rng(1).standard_normal(200))
    found = calibration_quality(u, 10 * np.sqrt(u), e, rng(2))
    assert found["ence"] == metrics.ence(10 * np.sqrt(u), e)
    assert found["ence_cross_fitted"] == metrics.ence(cross_fitted_sigma(u, e, rng(2)), e)
    assert found["ence"] > 0.8 > found["ence_cross_fitted"]
    assert found["ence_constant_sigma"] > found["ence_cross_fitted"]


def test_observed_coverage():
    u = rng().gamma(2.0, 1.0, 99)
    e = np.sqrt(u) * rng(1).exponential(1.0, 99)
    calibration = Calibration.fit(u, e, e, rng())
    found = observed_coverage(calibration.ratios, calibration.force_sigma(u), e, 0.9)
    assert found["observed"] == pytest.approx(0.9, abs=0.08)
    assert found["observed"] == np.mean(e <= calibration.error_bound(u, 0.9))
    small = Calibration.fit(u[:12], e[:12], e[:12], rng())
    assert observed_coverage(small.ratios, small.force_sigma(u), e, 0.95) == {
        "stated": 0.95,
        "observed": None,
        "error_over_sigma": None,
    }


@pytest.mark.parametrize(
    ("unit", "factor"), [("kcal/mol", 23.06), ("kJ/mol", 96.5), ("Hartree", 1 / 27.2), ("Hartree/Bohr", 1 / 51.4)]
)
def test_units_of_labels(mixed, unit, factor):
    structures, _ = mixed
    right, energies = reference_forces(structures), reference_energies(structures)

    def check(forces, frames=structures, scale=1.0):
        check_label_units(Predictions(energies / scale, list(forces)), frames, "set")

    check(right)
    check(1.3 * forces for forces in right)  # a bad model is no unit
    with pytest.raises(InputError, match=f"set: the labelled forces are .* so they look like {unit};"):
        check(forces / factor for forces in right)
    check(rng(i).normal(size=forces.shape) / factor for i, forces in enumerate(right))
    bare = [atoms.copy() for atoms in structures]
    for atoms in bare:
        del atoms.arrays[FORCES]
    check(right, bare)
    with pytest.raises(InputError, match=f"set: the labelled energies are .* so they look like {unit};"):
        check(right, bare, factor)


def test_size_correlation(mixed):
    structures, _ = mixed
    sizes = np.array([float(len(atoms)) for atoms in structures])
    assert size_correlation(sizes**2, structures) == pytest.approx(1)
    assert size_correlation(sizes[:3], [structures[0]] * 3) is None


def test_what_has_no_label_has_no_error(mixed):
    """Summaries are those of the structures that have the label."""
    structures, predicted = mixed
    partly = [atoms.copy() for atoms in structures]
    del partly[0].info[ENERGY], partly[1].arrays[FORCES]
    assert np.isnan(energy_errors(predicted.energies, partly)).tolist() == [i == 0 for i in range(len(partly))]
    assert np.isnan(force_errors(predicted.forces, partly)).tolist() == [i == 1 for i in range(len(partly))]
    found, whole = summarise_errors(predicted, partly), summarise_errors(predicted, structures)
    assert found.energy_mae_per_atom == pytest.approx(whole.energy_mae_per_atom)
    without = [i for i in range(len(structures)) if i != 1]
    rest = Predictions(predicted.energies[without], [predicted.forces[i] for i in without])
    assert found.force_rmse == summarise_errors(rest, [structures[i] for i in without]).force_rmse
    for atoms in partly:
        atoms.info.pop(ENERGY, None)
    assert np.isnan(summarise_errors(predicted, partly).energy_mae)
    assert np.isnan(summarise_errors(predicted, partly).hot_force_rmse)
    broken = np.where(np.arange(len(structures)) == 2, np.nan, predicted.energies)
    with pytest.raises(InputError, match="set, frame 2: the model predicts no finite"):
        check_predicted(Predictions(broken, predicted.forces), "set")


def test_energy_errors_with_and_without_their_offset():
    errors, sizes = np.array([0.3, 0.5, 0.1]), np.array([1.0, 2.0, 4.0])
    found = energy_summary(errors, sizes, np.full(3, 0.2))
    assert found["offset"] == pytest.approx(0.3)
    assert found["offset_per_atom"] == pytest.approx((0.3 + 0.25 + 0.025) / 3)
    assert found["mae"] == pytest.approx(0.3)
    assert found["rmse"] == pytest.approx(np.sqrt(0.35 / 3))
    assert found["mae_without_offset"] == pytest.approx(0.5 / 3)
    assert found["rmse_without_offset_per_atom"] == pytest.approx(np.sqrt((0.01 + 0.0225 + 0.000625) / 3))


def test_attainable_ranking():
    """A sigma that hardly differs cannot rank; one that differs by orders of magnitude can."""
    narrow, wide = rng().uniform(1.0, 1.01, 200), 10 ** rng().uniform(0, 8, 200)
    assert abs(metrics.attainable_spearman(narrow, rng())) < 0.1
    assert metrics.attainable_spearman(wide, rng()) > 0.9


def test_what_is_undefined_is_nan_without_a_warning():
    flat, e = np.ones(30), rng().gamma(2.0, 1.0, 30)
    found = ranking(flat, e, rng())
    assert np.isnan([found["spearman"], *found["spearman_interval"]]).all()
    found = ranking(e, flat, rng())
    assert np.isnan([found["spearman"], found["aurc_n"], *found["aurc_n_interval"]]).all()
    assert metrics.error_degrees_of_freedom(flat, flat) > 1e6
