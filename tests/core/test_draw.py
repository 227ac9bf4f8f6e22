"""Draws from the posterior, ``w ~ N(0, lam C^-1)``."""

import math

import pytest
import torch

from adaptntk.core.posterior import _PRIOR_STREAM, DualPosterior, Posterior
from adaptntk.core.sketch.gaussian import GaussianSketch

FORMS = [Posterior, DualPosterior]
LAM = 0.3


def rows(count=7, width=11):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, width, generator=generator, dtype=torch.float64)


def covariance(training):
    matrix = training.T @ training + LAM * torch.eye(training.shape[1], dtype=torch.float64)
    return LAM * torch.linalg.inv(matrix)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(7, 11), (30, 11)])
def test_the_covariance_of_draws_is_that_of_the_posterior(form, shape):
    """A sample covariance over n draws of white numbers has entries of variance 2/n (diagonal) and 1/n (others).

    Five standard deviations: over p (p + 1)/2 = 66 entries a wrong alarm has a probability of 4e-5.
    """
    count, training = 20_000, rows(*shape)
    draws = form.fit(training, LAM).draw(count, seed=1)
    # Whitened with the exact covariance: what is left must be the identity.
    white = torch.linalg.solve_triangular(torch.linalg.cholesky(covariance(training)), draws.T, upper=False)
    error = white @ white.T / count - torch.eye(len(white), dtype=torch.float64)
    bound = 5 * torch.where(torch.eye(len(white), dtype=torch.bool), math.sqrt(2 / count), math.sqrt(1 / count))
    assert (error.abs() < bound).all()
    assert (white.mean(1).abs() < 5 / math.sqrt(count)).all()


@pytest.mark.parametrize("form", FORMS)
def test_the_covariance_is_exact_in_the_random_numbers(form, monkeypatch):
    """A draw is linear in its normal numbers; over all unit vectors of them it gives the covariance to rounding."""
    training = rows()
    numbers = {Posterior: 11, DualPosterior: 11 + 7}[form]
    unit = torch.eye(numbers, dtype=torch.float64)

    def columns(_, number, __, like):
        return (unit[:, :11] if number == _PRIOR_STREAM else unit[:, 11:]).clone()

    monkeypatch.setattr("adaptntk.core.posterior._normals", columns)
    draws = form.fit(training, LAM).draw(numbers, seed=0)
    assert torch.allclose(draws.T @ draws, covariance(training), rtol=0, atol=1e-13)


@pytest.mark.parametrize("form", FORMS)
def test_the_seed_decides(form):
    posterior = form.fit(rows(), LAM)
    draws = posterior.draw(8, seed=3)
    assert draws.shape == (8, 11)
    assert draws.dtype == torch.float64
    assert torch.equal(draws, posterior.draw(8, seed=3))
    assert not torch.isclose(draws, posterior.draw(8, seed=4)).any()
    # A larger committee begins with the smaller one.
    assert torch.allclose(posterior.draw(3, seed=3), draws[:3], rtol=1e-12)


def test_draws_are_not_the_rows_of_a_sketch_with_the_same_seed():
    draws = Posterior.fit(torch.zeros(1, 400, dtype=torch.float64), LAM).draw(8, seed=5)
    sketch = GaussianSketch(8, seed=5).normals(0, 400).double()
    assert torch.allclose(draws.square().mean(), torch.ones((), dtype=torch.float64), atol=0.15)
    assert (torch.corrcoef(torch.cat([draws, sketch]))[:8, 8:].abs() < 5 / math.sqrt(400)).all()


@pytest.mark.parametrize("form", FORMS)
def test_float32_rows_are_drawn_in_float64(form):
    draws = form.fit(rows().float(), LAM).draw(2, seed=0)
    assert draws.dtype == torch.float64
