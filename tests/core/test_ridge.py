import numpy as np
import pytest
import torch

from adaptntk.core.blocks import TensorBlocks
from adaptntk.core.posterior import RidgePath
from adaptntk.core.ridge import ALPHA_GRID, choose_ridge, fixed_ridge
from adaptntk.errors import InputError


def rng(seed=0):
    return np.random.default_rng(seed)


def ridge_problem(noise):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(300, 30, generator=generator, dtype=torch.float64) * torch.logspace(
        0, -3, 30, dtype=torch.float64
    )
    path = RidgePath(rows[:100])
    queries = rows[100:]
    truth = path.variances(queries, [path.lam(1e-7)])[0].numpy()
    errors = np.sqrt(truth) * np.exp(noise * rng().standard_normal(200))
    return path, queries, errors


@pytest.mark.parametrize("criterion", ["spearman", "nll"])
def test_a_clear_gain_moves_the_ridge(criterion):
    path, queries, errors = ridge_problem(noise=0.05)
    choice = choose_ridge(path, criterion, queries, errors, rng())
    assert choice.alpha < 1e-5
    assert "better than the prior's by" in choice.reason
    assert choice.lam == pytest.approx(choice.alpha * path.mean_squared_norm)


@pytest.mark.parametrize("criterion", ["spearman", "nll"])
def test_noise_does_not(criterion):
    path, queries, _ = ridge_problem(noise=0.0)
    moved = 0
    for seed in range(10):
        errors = np.abs(rng(seed).standard_normal(200))
        moved += choose_ridge(path, criterion, queries, errors, rng(seed)).alpha != 1e-4
    assert moved <= 6  # a one-standard-error rule lets some pass; without it all ten would move


def test_it_is_said_when_there_are_too_few_to_choose():
    path, queries, errors = ridge_problem(noise=1.0)
    choice = choose_ridge(path, "spearman", queries[:12], errors[:12], rng())
    assert choice.alpha == 1e-4
    why = "12 validation structures are too few to choose, alpha 1e-05 .. 1e-01 cannot be told apart"
    assert choice.reason == f"prior kept: {why}"
    # Many that see no difference are not too few.
    path, queries, errors = ridge_problem(noise=0.0)
    errors = np.sqrt(path.variances(queries, [path.lam(1e-4 * 10**0.5)])[0].numpy())
    kept = choose_ridge(path, "spearman", queries, errors, rng(), prior_alpha=ALPHA_GRID[9])
    assert kept.reason == "prior kept: no alpha has a better spearman"


def test_errors_that_do_not_differ_choose_nothing():
    path, queries, _ = ridge_problem(noise=0.0)
    choice = choose_ridge(path, "spearman", queries, np.full(200, 0.1), rng())
    assert (choice.alpha, choice.reason) == (1e-4, "prior kept: all errors of the validation set are the same")


def test_the_edge_of_the_grid_is_known():
    path, queries, _ = ridge_problem(noise=0.0)
    errors = np.sqrt(path.variances(queries, [path.lam(1e-12)])[0].numpy())
    assert choose_ridge(path, "spearman", queries, errors, rng(), prior_alpha=1e-8).at_edge
    assert not choose_ridge(path, "spearman", queries, errors, rng(), prior_alpha=1e-9).at_edge
    assert not fixed_ridge(path, path.lam(1e-8)).at_edge


def test_effective_dimension_criterion_needs_no_labels():
    path, _, _ = ridge_problem(noise=0.0)
    choice = choose_ridge(path, "effective_dimension", None, None, rng())
    distances = [abs(path.effective_dimension(path.lam(a)) - 100 / 3) for a in ALPHA_GRID]
    assert choice.alpha == ALPHA_GRID[int(np.argmin(distances))]


def test_fixed_keeps_what_was_given():
    path, _, _ = ridge_problem(noise=0.0)
    assert choose_ridge(path, "fixed", None, None, rng(), prior_alpha=0.0123).alpha == 0.0123


def test_a_given_ridge_is_described(features):
    train, _, lam = features
    found = fixed_ridge(RidgePath(train), lam)
    assert found.lam == lam
    assert found.alpha == pytest.approx(lam * len(train) / float(train.square().sum()))
    eigenvalues = torch.linalg.eigvalsh(train @ train.T)
    assert found.effective_dimension == pytest.approx(float((eigenvalues / (eigenvalues + lam)).sum()))


def test_alpha_is_relative_to_a_structure_not_to_a_row(features):
    """Ten structures of six rows each have six times the mean squared norm of sixty of one row."""
    train, _, lam = features
    of_blocks = fixed_ridge(RidgePath(TensorBlocks(train.view(10, 6, -1))), lam)
    assert of_blocks.alpha == pytest.approx(fixed_ridge(RidgePath(train), lam).alpha / 6)


def test_impossible_requests():
    path, _, _ = ridge_problem(noise=0.0)
    with pytest.raises(InputError, match="unknown criterion"):
        choose_ridge(path, "magic", None, None, rng())
    with pytest.raises(InputError, match="needs labelled validation"):
        choose_ridge(path, "nll", None, None, rng())
