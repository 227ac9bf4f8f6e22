import numpy as np
import pytest
import torch

from adaptntk.errors import InputError
from adaptntk.training.checkpoint import snapshot_laps
from adaptntk.uncertainty.baselines.swag import SWAGOptions, WeightDistribution
from adaptntk.uncertainty.method import Assessment


def test_swag_distribution_by_hand():
    """Moments of many draws: the mean, and half of (diagonal + sample covariance)."""
    snapshots = torch.tensor([[1.0, 0.0, 2.0], [3.0, 1.0, 2.0], [2.0, 5.0, 2.0], [2.0, 2.0, 2.0]])
    weights = WeightDistribution.fit(snapshots)
    assert weights.mean.tolist() == [2.0, 2.0, 2.0]
    assert torch.allclose(weights.variance, snapshots.double().var(0, correction=0))
    generator = torch.Generator().manual_seed(0)
    draws = torch.stack([weights.draw(generator) for _ in range(20_000)])
    expected = 0.5 * (weights.variance.diag() + torch.cov(snapshots.double().T))
    assert torch.allclose(draws.mean(0), weights.mean, atol=0.04)
    assert torch.allclose(torch.cov(draws.T), expected, atol=0.1)
    assert torch.equal(draws[:, 2], torch.full((20_000,), 2.0, dtype=torch.float64))
    with pytest.raises(InputError, match="at least two snapshots"):
        WeightDistribution.fit(snapshots[:1])


def test_it_uses_the_snapshots_of_the_training(workbench, fit_by_name):
    snapshots = workbench.snapshots()
    assert len(snapshots) == len(snapshot_laps(workbench.recipe.epochs)) == 3
    # The learning rate of this recipe falls to zero: the last quarter is repeated at the rate with which it began.
    assert "swag" in workbench.training_seconds()
    weights = torch.cat([tensor.flatten() for _, tensor in workbench.member(0).parameters()])
    rows = torch.stack([torch.cat([tensor.flatten() for tensor in s.values()]) for s in snapshots])
    assert 1e-4 < float((rows[1] - rows[0]).norm() / weights.detach().norm()) < 0.5
    swag = fit_by_name("swag").method
    name = workbench.member(0).parameters()[0][0]
    mean = torch.stack([snapshot[name] for snapshot in snapshots]).double().mean(0).flatten()
    assert torch.allclose(swag.weights.mean[: mean.numel()], mean)


def test_the_score_is_the_spread_over_drawn_weights(fit_by_name, parts):
    swag, frames = fit_by_name("swag").method, parts["test"][:3]
    found = swag.assess(frames)
    network, generator = swag.potential.copy(), torch.Generator().manual_seed(swag.seed)
    drawn = []
    for _ in range(4):
        network.set_weights(swag.weights.draw(generator))
        drawn.append(network.predict(frames))
    assert np.allclose(found.score, Assessment.of_committee(drawn).score, rtol=1e-5)
    network.set_weights(swag.weights.mean)
    assert np.allclose(found.energies, network.predict(frames).energies)


def test_impossible_options():
    with pytest.raises(InputError, match="at least two draws"):
        SWAGOptions(draws=1)
    with pytest.raises(InputError, match="scale of SWAG must be positive"):
        SWAGOptions(scale=0.0)
