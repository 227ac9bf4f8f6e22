import math

import numpy as np
import pytest
import torch
from scipy import integrate

from adaptntk.errors import InputError
from adaptntk.features.last_layer import mean_invariants
from adaptntk.uncertainty.baselines.evidential import EvidentialHead, EvidentialOptions, nig_loss


def test_the_likelihood_is_the_marginal():
    """Against the double integral over mean and variance of the normal-inverse-gamma prior."""
    gamma, nu, alpha, beta, y = 0.3, 1.7, 2.5, 0.8, 1.1

    def normal(x, mean, variance):
        return math.exp(-((x - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)

    def integrand(mu, s2):
        inverse_gamma = beta**alpha / math.gamma(alpha) * s2 ** (-alpha - 1) * math.exp(-beta / s2)
        return normal(y, mu, s2) * normal(mu, gamma, s2 / nu) * inverse_gamma

    marginal, _ = integrate.dblquad(integrand, 1e-4, 60, -12, 12)
    parameters = tuple(torch.tensor([value], dtype=torch.float64) for value in (gamma, nu, alpha, beta))
    loss = float(nig_loss(parameters, torch.tensor([y], dtype=torch.float64), coefficient=0.0))
    assert loss == pytest.approx(-math.log(marginal), abs=1e-3)
    with_penalty = float(nig_loss(parameters, torch.tensor([y], dtype=torch.float64), coefficient=0.1))
    assert with_penalty - loss == pytest.approx(0.1 * abs(y - gamma) * (2 * nu + alpha))


def test_the_head_respects_its_bounds():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = EvidentialHead(3)
        _, nu, alpha, beta = head(100 * torch.randn(500, 3))
    assert (nu > 0).all()
    assert (alpha > 1).all()
    assert (beta > 0).all()


def test_the_score_is_the_epistemic_variance(fit_by_name, parts):
    method, frames = fit_by_name("evidential").method, parts["test"][:4]
    features = torch.as_tensor(mean_invariants(method.potential, method.potential.predict(frames)))
    with torch.no_grad():
        _, nu, alpha, beta = method.head((features - method.centre) / method.scale)
    assert np.allclose(method.assess(frames).score, beta / (nu * (alpha - 1)))


@pytest.mark.parametrize("bad", [{"steps": 9}, {"learning_rate": 0.0}, {"coefficient": -1.0}])
def test_impossible_options(bad):
    with pytest.raises(InputError, match="evidential needs at least 10 steps"):
        EvidentialOptions(**bad)
