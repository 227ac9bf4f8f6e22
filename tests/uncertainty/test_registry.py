"""All methods behind one interface."""

import numpy as np
import pytest

from adaptntk.errors import InputError
from adaptntk.testing import check_method
from adaptntk.uncertainty import registry
from adaptntk.uncertainty.baselines.random_numbers import RandomNumbers
from adaptntk.uncertainty.file import load_fitted, save_fitted
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.folder_workbench import FolderWorkbench
from adaptntk.uncertainty.registry import METHODS, find_method, make_options, parse_options, register_method


@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_the_public_contract(name, fit_by_name, parts):
    method = fit_by_name(name).method
    assert method.name == name
    check_method(method, parts["test"][:8], pointwise=name != "dropout")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_comes_back_from_its_file(name, fit_by_name, parts, tmp_path):
    fitted = fit_by_name(name)
    save_fitted(fitted, tmp_path / "fitted.uq")
    loaded = load_fitted(tmp_path / "fitted.uq", device="cpu")
    assert loaded.name == name
    before, after = (found.score(parts["test"][:8]) for found in (fitted, loaded))
    assert np.allclose(before.variance, after.variance, rtol=1e-6)
    assert np.allclose(before.sigma, after.sigma)
    assert np.allclose(before.energy_sigma, after.energy_sigma)
    assert (before.sigma > 0).all()
    assert (loaded.train_hashes, loaded.calibration_hashes) == (fitted.train_hashes, fitted.calibration_hashes)


@pytest.mark.parametrize("name", METHODS)
def test_the_model_itself_is_never_changed(name, workbench, fit_by_name, parts):
    fit_by_name(name).assess(parts["test"][:4])
    bench = workbench
    fresh = FolderWorkbench(bench.train, bench.valid, 1, folder=bench.folder, recipe=bench.recipe, device="cpu")
    expected = fresh.member(0).predict(parts["test"][:4])
    assert np.array_equal(bench.member(0).predict(parts["test"][:4]).energies, expected.energies)


def test_unknown_methods(workbench):
    with pytest.raises(InputError, match="choose one of ntk, error_model, ensemble"):
        fit(workbench, "oracle")


def test_a_method_of_ones_own(monkeypatch, given, parts):
    monkeypatch.setattr(registry, "METHODS", dict(METHODS))

    class Mine(RandomNumbers):
        name = "mine"

    register_method(Mine)
    assert find_method("mine") is Mine
    assert fit(given, "mine").score(parts["pool"][:3]).sigma.shape == (3,)
    with pytest.raises(InputError, match="there is a method 'mine' already"):
        register_method(Mine)


def test_options_are_typed():
    assert parse_options("dropout", ["rate=0.2", "passes=7"]) == {"rate": 0.2, "passes": 7}
    assert parse_options("ntk", ["criterion=nll", "dim=64"]) == {"criterion": "nll", "dim": 64}
    with pytest.raises(InputError, match=r"rate \(float, 0.1\), passes \(int, 20\)"):
        parse_options("dropout", ["masks=3"])
    with pytest.raises(InputError, match="passes of dropout must be of type int"):
        parse_options("dropout", ["passes=many"])


def test_options_of_a_fit():
    assert make_options("ensemble", None).members == 3
    assert make_options("ntk", {"dim": 64, "lam": 0.1}).lam == 0.1
    with pytest.raises(InputError, match="energy has no option 'dim'; write KEY=VALUE with one of: none"):
        make_options("energy", {"dim": 3})
