import warnings

import numpy as np
import pytest
from scipy import stats

from adaptntk.core import metrics


def rng(seed=0):
    return np.random.default_rng(seed)


def test_correlations_against_scipy():
    u, e = rng().standard_normal((2, 50))
    assert metrics.spearman(u, e) == pytest.approx(stats.spearmanr(u, e).statistic)
    assert metrics.pearson(u, e) == pytest.approx(stats.pearsonr(u, e).statistic)
    rows = np.vstack([u, u**2, np.round(u)])
    assert np.allclose(metrics.spearman_rows(rows, e), [stats.spearmanr(row, e).statistic for row in rows])
    assert np.isnan(metrics.spearman(np.ones(50), e))
    assert np.isnan(metrics.pearson(np.ones(50), e))


def test_risk_coverage_by_hand():
    u, e = np.array([0.1, 0.3, 0.2]), np.array([1.0, 3.0, 2.0])
    coverage, risk = metrics.risk_coverage(u, e)
    assert np.allclose(coverage, [1 / 3, 2 / 3, 1])
    assert np.allclose(risk, [1, np.sqrt(5 / 2), np.sqrt(14 / 3)])
    assert metrics.aurc(u, e) == pytest.approx(np.trapezoid(risk, coverage))


def test_normalised_aurc_is_0_for_the_oracle_and_about_1_for_chance():
    e = rng().gamma(2.0, 1.0, 2000)
    assert metrics.normalised_aurc(e, e, rng()) == 0.0
    assert metrics.normalised_aurc(rng(1).standard_normal(2000), e, rng()) == pytest.approx(1.0, abs=0.1)
    assert metrics.normalised_aurc(-e, e, rng()) > 1.5


def test_ence_by_hand():
    sigma, e = np.array([1.0, 1.0, 2.0, 2.0]), np.array([1.0, 1.0, 3.0, 3.0])
    assert metrics.ence(sigma, e, bins=2) == pytest.approx((0 + 0.5) / 2)


def test_ence_floor_is_what_a_perfect_sigma_shows():
    sigma = rng().uniform(0.5, 2.0, 2000)
    one = metrics.ence_floor(sigma, 1, rng())
    many = metrics.ence_floor(sigma, 63, rng())
    assert one == pytest.approx(0.04, abs=0.01)
    assert many == pytest.approx(0.005, abs=0.002)
    perfect = sigma * np.abs(rng(3).standard_normal(2000))
    assert metrics.ence(sigma, perfect) == pytest.approx(one, abs=0.03)


@pytest.mark.parametrize("freedom", [1, 5, 60])
def test_degrees_of_freedom_are_recovered(freedom):
    sigma = rng().uniform(0.5, 2.0, 20_000)
    e = sigma * np.sqrt(rng(1).chisquare(freedom, 20_000) / freedom)
    assert metrics.error_degrees_of_freedom(sigma, e) == pytest.approx(freedom, rel=0.1)


def test_bootstrap_interval_covers_and_shrinks():
    u = rng().standard_normal(2000)
    e = u + rng(1).standard_normal(2000)
    low, high = metrics.bootstrap_interval(metrics.pearson, (u, e), rng())
    assert low < metrics.pearson(u, e) < high
    short_low, short_high = metrics.bootstrap_interval(metrics.pearson, (u[:100], e[:100]), rng())
    assert high - low < short_high - short_low


def test_ence_against_netcal():
    """netcal's bins have equal widths: the same as ours where sigma is evenly spaced."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from netcal.metrics.regression import ENCE
    sigma = np.linspace(0.05, 0.5, 200)
    e = rng().normal(scale=1.3 * sigma)
    theirs = ENCE(bins=10).measure((np.zeros(200), sigma), e)
    assert metrics.ence(sigma, np.abs(e)) == pytest.approx(float(theirs))


def test_the_interval_of_a_calibration_error_contains_it():
    """Resampling makes it larger: plain quantiles of a well calibrated sigma lie above the value itself."""
    sigma = rng().uniform(0.1, 0.2, 120)
    e = np.abs(rng(1).normal(scale=sigma))
    low, high = metrics.bootstrap_interval(metrics.ence, (sigma, e), rng(2), draws=200)
    assert low < metrics.ence(sigma, e) < high
