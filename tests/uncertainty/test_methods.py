"""Every method against a case that can be computed by hand, and all of them behind one interface."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from adaptntk.uncertainty.baselines.controls import Random
from adaptntk.uncertainty.baselines.last_layer import mean_invariants
from adaptntk.uncertainty.calibrated import CalibratedMethod, load_method, save_method
from adaptntk.uncertainty.load import load_fitted
from adaptntk.uncertainty.ntk_file import load_uncertainty
from scipy import integrate

from adaptntk.core.error_model import LogErrorRegression
from adaptntk.core.metrics import spearman
from adaptntk.errors import InputError, MismatchError
from adaptntk.models.mace.architecture import TINY
from adaptntk.models.mace.potential import MACEPotential
from adaptntk.progress import silent
from adaptntk.testing import check_method
from adaptntk.training.loop import TrainingOptions, train
from adaptntk.training.recipe import Recipe
from adaptntk.training.snapshots import snapshot_epochs
from adaptntk.uncertainty.baselines.dropout import Dropout
from adaptntk.uncertainty.baselines.ensemble import Ensemble
from adaptntk.uncertainty.baselines.evidential import EvidentialHead, nig_loss
from adaptntk.uncertainty.baselines.swag import SWAG, WeightDistribution
from adaptntk.uncertainty.method import spread_of_forces
from adaptntk.uncertainty.registry import METHODS, fit_method, parse_options
from adaptntk.uncertainty.workbench import FolderWorkbench

RECIPE = Recipe(TINY, epochs=12, batch_size=5, learning_rate=3e-2, cosine=True)
OPTIONS = {"ensemble": {"members": 2}, "dropout": {"passes": 4}, "swag": {"draws": 4}, "evidential": {"steps": 50}}


@pytest.fixture(scope="module")
def workbench(parts, tmp_path_factory):
    return FolderWorkbench(
        parts["train"], parts["valid"], tmp_path_factory.mktemp("bench"), RECIPE, seed=1, device="cpu"
    )


@pytest.mark.parametrize("name", METHODS)
def test_every_method(name, workbench, parts):
    method = fit_method(name, workbench, OPTIONS.get(name))
    assert method.name == name
    test = parts["test"][:12]
    found, again = method.assess(test), method.assess(test)
    assert found.score.shape == (12,)
    assert np.isfinite(found.score).all()
    assert (found.score >= 0).all()
    assert np.array_equal(found.score, again.score)
    assert np.allclose(found.variance, found.score**2 if found.kind == "std" else found.score)
    assert [forces.shape for forces in found.forces] == [(len(atoms), 3) for atoms in test]
    assert len(set(found.score.tolist())) > 1
    # The model itself is never changed by a method.
    fresh = FolderWorkbench(workbench.train, workbench.valid, workbench.folder, RECIPE, seed=1, device="cpu")
    expected = fresh.member(0).predict(test)
    assert np.array_equal(workbench.member(0).predict(test).energies, expected.energies)


def test_unknown_method(workbench):
    with pytest.raises(InputError, match="choose one of ntk, error_model, ensemble"):
        fit_method("oracle", workbench)


def test_spread_by_hand():
    a, b = [np.array([[0.0, 0.0, 0.0]])], [np.array([[2.0, 0.0, 4.0]])]
    spread, mean = spread_of_forces([a, b])
    assert spread[0] == pytest.approx((math.sqrt(2) + 0 + 2 * math.sqrt(2)) / 3)
    assert mean[0].tolist() == [[1.0, 0.0, 2.0]]


def test_an_ensemble_is_its_members(workbench, parts):
    ensemble = Ensemble.fit(workbench, members=2)
    test = parts["test"][:3]
    forces = [np.stack([m.predict(test).forces[i] for m in ensemble.members]) for i in range(3)]
    found = ensemble.assess(test)
    assert np.allclose(found.score, [f.std(axis=0, ddof=1).mean() for f in forces])
    assert np.allclose(found.forces[1], forces[1].mean(axis=0))
    with pytest.raises(InputError, match="at least two members"):
        Ensemble.fit(workbench, members=1)


def test_members_differ_and_are_trained_once(workbench):
    weights = [torch.cat([p.flatten() for _, p in workbench.member(n).parameters()]) for n in (0, 1)]
    assert not torch.allclose(*weights)
    before = {path: path.stat().st_mtime_ns for path in workbench.folder.glob("*.model")}
    again = FolderWorkbench(workbench.train, workbench.valid, workbench.folder, RECIPE, seed=1, device="cpu")
    again.member(0), again.member(1)
    assert {path: path.stat().st_mtime_ns for path in workbench.folder.glob("*.model") if path in before} == before
    assert workbench.training_seconds()["member-0"] > 0


def test_a_network_trained_with_dropout_is_saved_as_a_stock_one(workbench):
    Dropout.fit(workbench, rate=0.2, passes=2)
    module = torch.load(workbench.folder / "dropout-0.2.model", weights_only=False)
    assert not any(isinstance(child, torch.nn.Dropout) for child in module.modules())


def test_swag_distribution_by_hand():
    """Moments of many draws: the mean, and half of (diagonal + sample covariance)."""
    snapshots = torch.tensor([[1.0, 0.0, 2.0], [3.0, 1.0, 2.0], [2.0, 5.0, 2.0], [2.0, 2.0, 2.0]])
    weights = WeightDistribution.fit(snapshots)
    assert weights.mean.tolist() == [2.0, 2.0, 2.0]
    assert torch.allclose(weights.variance, snapshots.double().var(0, correction=0))
    generator = torch.Generator().manual_seed(0)
    draws = torch.stack([weights.draw(generator) for _ in range(40_000)])
    expected = 0.5 * (weights.variance.diag() + torch.cov(snapshots.double().T))
    assert torch.allclose(draws.mean(0), weights.mean, atol=0.03)
    assert torch.allclose(torch.cov(draws.T), expected, atol=0.1)
    assert torch.equal(draws[:, 2], torch.full((40_000,), 2.0, dtype=torch.float64))
    with pytest.raises(InputError, match="at least two snapshots"):
        WeightDistribution.fit(snapshots[:1])


def test_swag_uses_the_snapshots_of_the_training(workbench):
    snapshots = workbench.snapshots()
    assert len(snapshots) == len(snapshot_epochs(RECIPE.epochs)) == 3
    # The learning rate of this recipe falls to zero: the last quarter is repeated at the rate with which it began.
    assert "swag" in workbench.training_seconds()
    weights = torch.cat([tensor.flatten() for _, tensor in workbench.member(0).parameters()])
    rows = torch.stack([torch.cat([tensor.flatten() for tensor in s.values()]) for s in snapshots])
    assert 1e-4 < float((rows[1] - rows[0]).norm() / weights.detach().norm()) < 0.5
    swag = SWAG.fit(workbench, draws=2)
    name = workbench.member(0).parameters()[0][0]
    mean = torch.stack([snapshot[name] for snapshot in snapshots]).double().mean(0).flatten()
    assert torch.allclose(swag.weights.mean[: mean.numel()], mean)


def test_the_evidential_likelihood_is_the_marginal():
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


def test_the_evidential_head_respects_its_bounds():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = EvidentialHead(3)
        _, nu, alpha, beta = head(100 * torch.randn(500, 3))
    assert (nu > 0).all()
    assert (alpha > 1).all()
    assert (beta > 0).all()


def test_invariants_do_not_turn(workbench, parts):
    potential = workbench.member(0)
    turned = parts["test"][0].copy()
    turned.rotate(40, (1, 2, 3))
    a, b = (mean_invariants(potential, potential.predict([atoms])) for atoms in (parts["test"][0], turned))
    assert a.shape == (1, 8)
    assert np.allclose(a, b, atol=1e-4)


def test_distance_is_zero_in_the_training_set(workbench, parts):
    distance = fit_method("distance", workbench)
    assert np.allclose(distance.assess(parts["train"][:5]).score, 0, atol=1e-3)
    assert (distance.assess(parts["test"][:5]).score > 0.01).all()


def test_the_energy_control_ranks_by_energy(workbench, parts):
    found = fit_method("energy", workbench).assess(parts["test"])
    assert spearman(found.score, found.energies) > 0.99


@pytest.mark.parametrize("name", METHODS)
def test_the_contract_and_the_file(name, workbench, parts, tmp_path):
    """Every method passes the public check, and comes back from its file with the same scores."""
    method = fit_method(name, workbench, OPTIONS.get(name))
    check_method(method, parts["test"][:8], pointwise=name != "dropout")
    fitted = CalibratedMethod.fit(method, parts["train"], parts["valid"])
    save_method(fitted, tmp_path / "fitted.uq")
    loaded = load_fitted(tmp_path / "fitted.uq", device="cpu")
    assert isinstance(loaded, CalibratedMethod)
    assert loaded.name == name
    before, after = (f.score(parts["test"][:8]) for f in (fitted, loaded))
    assert np.allclose(before.variance, after.variance, rtol=1e-6)
    assert np.allclose(before.sigma, after.sigma)
    assert np.allclose(before.energy_sigma, after.energy_sigma)
    assert (before.sigma > 0).all()


class Broken(Random):
    """A method that answers differently every time."""

    calls = 0

    def assess(self, structures, batch_size=16, progress=silent):
        type(self).calls += 1
        found = super().assess(structures, batch_size, progress)
        return dataclasses.replace(found, score=found.score + type(self).calls)


def test_the_check_finds_defects(workbench, parts):
    good = fit_method("random", workbench)
    with pytest.raises(AssertionError, match="same question"):
        check_method(Broken(good.potential, 0), parts["test"][:8])

    class Negative(Random):
        def assess(self, structures, batch_size=16, progress=silent):
            found = super().assess(structures, batch_size, progress)
            return dataclasses.replace(found, score=-found.score)

    with pytest.raises(AssertionError, match="cannot be negative"):
        check_method(Negative(good.potential, 0), parts["test"][:8])

    class Relative(Random):
        def assess(self, structures, batch_size=16, progress=silent):
            found = super().assess(structures, batch_size, progress)
            return dataclasses.replace(found, score=found.score / found.score.sum())

    with pytest.raises(AssertionError, match="single structure"):
        check_method(Relative(good.potential, 0), parts["test"][:8])

    class Forgetful(Random):
        @classmethod
        def restore(cls, state):
            return cls(state.networks[0], state.settings["seed"] + 1)

    with pytest.raises(AssertionError, match="restored from its state"):
        check_method(Forgetful(good.potential, 0), parts["test"][:8])


def test_a_file_refuses_other_networks(workbench, parts, tmp_path):
    fitted = CalibratedMethod.fit(fit_method("energy", workbench), parts["train"], parts["valid"])
    save_method(fitted, tmp_path / "a.uq")
    with pytest.raises(MismatchError, match="network 0 SHA-256"):
        load_method(tmp_path / "a.uq", "cpu", workbench.member(1).source)
    with pytest.raises(InputError, match="holds the method 'energy'"):
        load_uncertainty(tmp_path / "a.uq")


def test_options_are_typed():
    assert parse_options("dropout", ["rate=0.2", "passes=7"]) == {"rate": 0.2, "passes": 7}
    assert parse_options("ntk", ["criterion=nll", "dim=64"]) == {"criterion": "nll", "dim": 64}
    with pytest.raises(InputError, match=r"rate \(float, 0.1\), passes \(int, 20\)"):
        parse_options("dropout", ["masks=3"])
    with pytest.raises(InputError, match="passes of dropout must be of type int"):
        parse_options("dropout", ["passes=many"])


def test_the_error_model_is_monotone_and_leaves_noise_alone():
    rng = np.random.default_rng(0)
    covariates = rng.normal(size=(100, 4))
    signal = 0.5 * covariates[:, 0] - 0.4 * covariates[:, 1] - 0.3 * covariates[:, 3]
    errors = np.exp(signal + 0.2 * rng.normal(size=100) - 3)
    monotone = [True, True, True, False]
    fitted = LogErrorRegression.fit(covariates, errors, monotone, monotone, rng)
    assert fitted.weights[0] == pytest.approx(0.5, abs=0.1)
    assert fitted.weights[1] == 0  # the data want less error with more of a score: refused
    assert fitted.weights[3] == pytest.approx(-0.3, abs=0.1)
    more = covariates + np.array([1.0, 0.0, 0.0, 0.0])
    assert (fitted.predict(more) > fitted.predict(covariates)).all()
    # Far outside, a score still counts, and what may count either way does not.
    far = np.tile(covariates.mean(axis=0), (3, 1))
    far[1, 0], far[2, 3] = 100.0, 100.0
    edge = far.copy()
    edge[2, 3] = covariates[:, 3].max()
    assert fitted.predict(far)[1] > 1e3 * fitted.predict(far)[0]
    assert fitted.predict(far)[2] == fitted.predict(edge)[2]
    # Unregularised and unconstrained it is ordinary least squares.
    loose = LogErrorRegression.solve(covariates, np.log(errors), (np.zeros(4, dtype=bool),) * 2, ridge=1e-12)
    design = np.column_stack([np.ones(100), covariates])
    expected = np.exp(design @ np.linalg.lstsq(design, np.log(errors), rcond=None)[0])
    assert np.allclose(loose.predict(covariates), expected)
    with pytest.raises(InputError, match="at least 10"):
        LogErrorRegression.fit(covariates[:5], errors[:5], monotone, monotone, rng)


def test_given_networks_are_not_trained_again(workbench, parts, tmp_path):
    given = {f"member-{n}": workbench.folder / f"member-{n}.model" for n in (0, 1)}
    bench = FolderWorkbench(parts["train"], parts["valid"], tmp_path, RECIPE, seed=1, device="cpu", given=given)
    assert Ensemble.fit(bench, members=2).members[1].fingerprint == workbench.member(1).fingerprint
    assert not list(tmp_path.glob("*.model"))
    other = dataclasses.replace(RECIPE, architecture=dataclasses.replace(TINY, max_ell=0))
    bench = FolderWorkbench(parts["train"], parts["valid"], tmp_path, other, seed=1, device="cpu", given=given)
    with pytest.raises(InputError, match="not built like the networks of this preset"):
        bench.member(2)


def test_a_network_of_another_training_is_not_taken(workbench, parts):
    """The folder remembers what its networks were trained on."""
    other = FolderWorkbench(parts["valid"], parts["test"], workbench.folder, RECIPE, seed=1, device="cpu")
    with pytest.raises(InputError, match="with other data, seed or settings"):
        other.member(0)
    longer = dataclasses.replace(RECIPE, epochs=RECIPE.epochs + 1)
    with pytest.raises(InputError, match="with other data, seed or settings"):
        FolderWorkbench(parts["train"], parts["valid"], workbench.folder, longer, seed=1, device="cpu").member(1)


def test_a_training_starts_from_the_very_network(workbench, parts, tmp_path):
    """Also what is not in its weights: the mean number of neighbours."""
    module = copy.deepcopy(workbench.member(0).module)
    for block in module.interactions:
        block.avg_num_neighbors = 4.0
    start = MACEPotential(module, "1" * 64)
    recipe = dataclasses.replace(RECIPE, epochs=1, learning_rate=1e-9, weight_decay=0.0, cosine=False)
    trained = train(
        parts["train"], parts["valid"], tmp_path / "a.model", recipe, device="cpu", options=TrainingOptions(start=start)
    ).potential
    expected, found = (p.predict(parts["test"][:4]).forces for p in (start, trained))
    assert all(np.allclose(a, b, atol=1e-4) for a, b in zip(expected, found, strict=True))
    assert not np.allclose(workbench.member(0).predict(parts["test"][:4]).forces[0], found[0], atol=1e-2)


def test_an_ensemble_of_copies_is_refused(workbench, parts, tmp_path):
    file = workbench.folder / "member-0.model"
    given = {"member-0": file, "member-1": file}
    bench = FolderWorkbench(parts["train"], parts["valid"], tmp_path, RECIPE, seed=1, device="cpu", given=given)
    with pytest.raises(InputError, match="are the same network"):
        Ensemble.fit(bench, members=2)


def test_the_energy_of_another_molecule_decides_nothing(workbench, parts):
    """Far out of the range of the validation set it counts no more than at its edge."""
    model = fit_method("error_model", workbench)
    edge = np.tile(model.regression.means, (3, 1))
    edge[1, 2], edge[2, 2] = model.regression.highest[2], model.regression.highest[2] + 500.0
    scores = model.regression.predict(edge)
    assert scores[2] == scores[1] < 10 * scores[0]
