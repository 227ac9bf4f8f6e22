import numpy as np
import pytest

from adaptntk.core.calibration import Calibration, conformal_quantile, cross_fitted_sigma, fit_variance
from adaptntk.errors import InputError


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("a", "b"), [(2.0, 0.3), (50.0, 0.0), (0.0, 0.7), (1e-6, 1e-4)])
@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e4])
def test_known_parameters_are_recovered(a, b, unit):
    """Whatever the units of score and error."""
    u = rng().gamma(2.0, 1.0, 40_000)
    errors = np.sqrt(a * u + b**2) * rng(1).standard_normal(len(u)) * unit
    found = fit_variance(u, np.abs(errors))
    typical = np.quantile(u, [0.1, 0.5, 0.9])
    assert np.allclose(found.sigma(typical), np.sqrt(a * typical + b**2) * unit, rtol=0.05)


def test_the_fit_is_the_minimum_of_the_likelihood():
    u = rng().gamma(2.0, 1.0, 200)
    e = np.abs(np.sqrt(0.5 * u + 0.2) * rng(1).standard_normal(200))
    found = fit_variance(u, e)

    def loss(a, b2):
        return np.sum(np.log(a * u + b2) + e**2 / (a * u + b2))

    best = loss(found.a, found.b**2)
    grid = [loss(a, b2) for a in np.linspace(0.01, 2, 60) for b2 in np.linspace(0.001, 1, 60)]
    assert best <= min(grid) + 1e-6


def test_cross_fit_never_uses_the_structure_itself():
    u, e = rng().gamma(2.0, 1.0, 60), np.abs(rng(1).standard_normal(60))
    sigma = cross_fitted_sigma(u, e, rng(2))
    for index in (0, 17, 59):
        changed = e.copy()
        changed[index] *= 100
        assert cross_fitted_sigma(u, changed, rng(2))[index] == pytest.approx(sigma[index])


def test_conformal_rank():
    scores = np.arange(1.0, 100.0)  # 99 scores: the 90th smallest for 90 %
    assert conformal_quantile(scores, 0.9) == 90.0
    assert conformal_quantile(scores[:9], 0.95) == np.inf
    with pytest.raises(InputError, match="between 0 and 1"):
        conformal_quantile(scores, 1.0)


def test_coverage_is_kept_on_average():
    """Over many calibration sets of 60, for errors that are not Gaussian and a sigma that is wrong."""
    covered = []
    for seed in range(200):
        generator = rng(seed)
        u = generator.gamma(2.0, 1.0, 160)
        e = u**0.8 * generator.exponential(1.0, 160)
        calibration = Calibration.fit(u[:60], e[:60], e[:60], generator)
        covered.append(np.mean(e[60:] <= calibration.error_bound(u[60:], 0.9)))
    assert 0.89 <= np.mean(covered) <= 0.93


def test_variance_threshold_is_a_quantile_of_the_scores():
    u = rng().gamma(2.0, 1.0, 99)
    calibration = Calibration.fit(u, np.sqrt(u), np.sqrt(u), rng())
    assert calibration.variance_threshold(0.9) == np.sort(u)[89]


def test_impossible_requests():
    with pytest.raises(InputError, match="at least two"):
        fit_variance(np.ones(1), np.ones(1))
    with pytest.raises(InputError, match="exactly"):
        fit_variance(np.ones(5), np.zeros(5))


def test_a_sigma_that_is_the_same_for_all_is_said():
    u = np.sort(rng().gamma(2.0, 1.0, 40))
    following = np.sqrt(u) * np.abs(rng(1).standard_normal(40))
    told = Calibration.fit(u, following[::-1] + 0.5, following, rng()).notes()
    assert told == [
        "the score says nothing about the force error on the calibration set: forces_uncertainty is the same for all"
    ]
    assert not Calibration.fit(u, following, following, rng()).notes()
    (energy,) = Calibration.fit(u, following, following[::-1] + 0.5, rng()).notes()
    assert energy.endswith("energy_uncertainty is the same per atom for all")


@pytest.mark.parametrize("offset", [0.0, 5.0, -300.0])
def test_the_offset_of_energies_is_not_part_of_their_sigma(offset):
    u = rng().gamma(2.0, 1.0, 400)
    errors = np.sqrt(0.5 * u + 0.04) * rng(1).standard_normal(400)
    found = Calibration.fit(u, np.abs(errors), errors + offset, rng())
    plain = Calibration.fit(u, np.abs(errors), errors, rng())
    assert found.energy_offset == pytest.approx(offset + errors.mean(), abs=1e-9)
    assert np.allclose(found.energy.sigma(u), np.sqrt(0.5 * u + 0.04), rtol=0.15)
    assert np.allclose(found.energy.sigma(u), plain.energy.sigma(u), rtol=1e-4)
    assert np.array_equal(found.ratios, plain.ratios)  # forces have nothing to do with it
    assert np.quantile(found.energy_ratios, [0.68, 0.95]) == pytest.approx([1, 2], rel=0.15)


def test_each_scale_is_fitted_where_it_is_labelled():
    u = rng().gamma(2.0, 1.0, 60)
    force, energy = np.sqrt(u) * rng(1).gamma(5.0, 0.2, 60), np.sqrt(u) * rng(2).standard_normal(60)
    none, both = np.full(60, np.nan), Calibration.fit(u, force, energy, rng())
    forces_only, energy_only = Calibration.fit(u, force, none, rng()), Calibration.fit(u, none, energy, rng())
    assert forces_only.energy is None
    assert forces_only.forces == both.forces
    assert energy_only.forces is None
    assert energy_only.energy == both.energy
    assert len(energy_only.variances) == 60
    with pytest.raises(InputError, match="force labels"):
        energy_only.error_bound(u, 0.9)
    half = np.where(np.arange(60) < 30, force, np.nan)
    assert (
        Calibration.fit(u, half, energy, rng()).forces == Calibration.fit(u[:30], force[:30], energy[:30], rng()).forces
    )
    few = np.where(np.arange(60) < 9, force, np.nan)
    assert Calibration.fit(u, few, energy, rng()).forces is None
    with pytest.raises(InputError, match="at least 10 labelled structures, better 100, not 9"):
        Calibration.fit(u, few, none, rng())
