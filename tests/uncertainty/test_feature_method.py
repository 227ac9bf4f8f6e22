"""NTK and LLPR: the scores of Eq. 5, and the choice of the ridge."""

import numpy as np
import pytest
import torch

from adaptntk.core.metrics import spearman
from adaptntk.core.posterior import DualPosterior
from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch
from adaptntk.errors import InputError
from adaptntk.evaluation import force_errors
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.features.last_layer import LastLayerFeatures
from adaptntk.uncertainty.feature_method import ABSOLUTE, NTKOptions, RidgeOptions
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.workbench import GivenModel
from tests.conftest import PAPER


def options_of(name):
    """Features of energies, as last layers have them."""
    return PAPER if name == "ntk" else {}


@pytest.fixture(scope="module")
def unlabelled(trained, parts):
    """No validation set: nothing is chosen, nothing calibrated."""
    return GivenModel(parts["train"], potential=trained)


@pytest.mark.parametrize(
    ("name", "feature_map"), [("ntk", EnergyGradients(GaussianSketch(512))), ("last_layer", LastLayerFeatures())]
)
def test_scores_follow_the_definition(name, feature_map, given, parts):
    """Eq. 5, written out, with the paper's features."""
    fitted = fit(given, name, options_of(name) | {"normalise": "none"})
    train, queries = (feature_map.extract(fitted.potential, parts[part])[:, 0] for part in ("train", "pool"))
    lam = fitted.features.ridge.alpha * float(train.square().sum(1).mean())
    C = train.T @ train + lam * torch.eye(train.shape[1], dtype=torch.float64)
    expected = lam * (queries * torch.linalg.solve(C, queries.T).T).sum(1)
    assert fitted.features.ridge.lam == pytest.approx(lam)
    assert np.allclose(fitted.score(parts["pool"]).variance, expected.numpy(), rtol=1e-5)


def test_uncertainty_says_something_about_the_error(fitted, parts):
    frames = parts["test"]
    errors = force_errors(fitted.potential.predict(frames).forces, frames)
    assert spearman(fitted.score(frames).variance, errors) > 0.2


def test_exact_mode_is_the_dual_form(unlabelled, trained, parts):
    exact = fit(unlabelled, "ntk", PAPER | {"sketch": "none"})
    assert exact.features.blocks.shape == (40, 1, 788)
    assert exact.features.sketch_check is None
    rows = EnergyGradients(NoSketch(), "per_atom").extract(trained, parts["pool"])
    expected = DualPosterior.fit(exact.features.blocks, exact.features.ridge.lam).variance(rows)
    assert np.allclose(exact.score(parts["pool"]).variance, expected.numpy(), rtol=1e-6)
    assert spearman(fit(unlabelled, "ntk", PAPER).score(parts["pool"]).variance, expected.numpy()) > 0.9


@pytest.mark.parametrize("name", ["ntk", "last_layer"])
@pytest.mark.parametrize("criterion", ["spearman", "nll", "effective_dimension"])
def test_the_ridge_is_decomposed_once(name, criterion, given, monkeypatch):
    decomposed = []
    eigh = torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda matrix: decomposed.append(matrix.shape) or eigh(matrix))
    fit(given, name, {"criterion": criterion})
    assert len(decomposed) == 1


def test_ridge_options(unlabelled, given, parts):
    by_alpha = fit(unlabelled, "ntk", PAPER | {"alpha": 1e-2}).features.ridge
    assert (by_alpha.alpha, by_alpha.criterion) == (pytest.approx(1e-2), "fixed")
    for bench in (unlabelled, given):
        by_lam = fit(bench, "ntk", PAPER | {"lam": by_alpha.lam}).features.ridge
        assert (by_lam.lam, by_lam.criterion) == (by_alpha.lam, ABSOLUTE)
        assert by_lam.alpha == pytest.approx(1e-2)
    kept = fit(given, "ntk", PAPER | {"alpha": 1e-2, "criterion": "fixed"}).features.ridge
    assert kept.alpha == pytest.approx(1e-2)
    for bench in (unlabelled, given):
        label_free = fit(bench, "ntk", PAPER | {"criterion": "effective_dimension"}).features.ridge
        assert label_free.effective_dimension < len(parts["train"])
        assert "n/3" in label_free.reason
    # A criterion that needs labels keeps what was given where there are none.
    assert fit(unlabelled, "ntk", PAPER | {"alpha": 1e-2, "criterion": "nll"}).features.ridge == by_alpha


@pytest.mark.parametrize("name", ["ntk", "last_layer"])
def test_a_given_alpha_is_used_as_given(name, given):
    """Whatever validation says: it may move the prior only, unless it is asked for."""
    for alpha in (1e-9, 1e-4, 1e-1):
        found = fit(given, name, options_of(name) | {"alpha": alpha}).features.ridge
        assert (found.alpha, found.criterion, found.reason) == (pytest.approx(alpha), "fixed", "given")
        assert (
            fit(given, name, options_of(name) | {"alpha": alpha, "criterion": "spearman"}).features.ridge.criterion
            == "spearman"
        )
    assert fit(given, name, options_of(name)).features.ridge.criterion == "spearman"


def test_impossible_options(given):
    for bad in ({"alpha": 0.0}, {"lam": -1.0}, {"lam": np.inf}):
        with pytest.raises(InputError, match="must be positive"):
            RidgeOptions(**bad)
    with pytest.raises(InputError, match="unknown criterion 'magic'"):
        NTKOptions(criterion="magic")
    with pytest.raises(InputError, match="exceeds the 788 parameters"):
        fit(given, "ntk", {"dim": 1024})
    with pytest.raises(InputError, match="unknown normalisation"):
        fit(given, "last_layer", {"normalise": "often"})


def test_the_seed_of_the_sketch(trained, parts):
    bench = GivenModel(parts["train"], seed=7, potential=trained)
    assert fit(bench, "ntk", PAPER | {"dim": 64}).features.feature_map.sketch == GaussianSketch(64, seed=7)
    assert fit(bench, "ntk", PAPER | {"dim": 64, "sketch_seed": 2}).features.feature_map.sketch == GaussianSketch(
        64, seed=2
    )


def test_the_sketch_is_checked_against_exact_scores(trained, parts):
    checks = []
    full = 70 * 788 * 4
    for budget in (4 * full, 4 * full - 1):
        bench = GivenModel(parts["train"], parts["valid"], memory_budget=budget, potential=trained)
        checks.append(fit(bench, "ntk", PAPER | {"dim": 64, "criterion": "fixed"}).features.sketch_check)
    exact, split = checks
    assert (exact.reference, split.reference) == ("exact", "split")
    assert 0 < exact.error < 1
    assert split.error == pytest.approx(exact.error, rel=1.0)
