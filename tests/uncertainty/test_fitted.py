import dataclasses

import numpy as np
import pytest
import torch
from ase import Atoms

from adaptntk.core.calibration import fit_variance
from adaptntk.core.selection.registry import LABELLED, SCORES_SUFFICE, SELECTORS
from adaptntk.data.structures import structure_hash
from adaptntk.errors import InputError
from adaptntk.evaluation import force_errors
from adaptntk.uncertainty.file import load_fitted, save_fitted
from adaptntk.uncertainty.fit import fit

FEATURES = ["ntk", "last_layer"]


def test_sigma_is_the_calibrated_scale(fitted, parts):
    valid = fitted.score(parts["valid"])
    errors = force_errors(fitted.potential.predict(parts["valid"]).forces, parts["valid"])
    expected = fit_variance(valid.of_forces, errors)
    assert fitted.calibration.forces.a == pytest.approx(expected.a, rel=1e-3)
    assert np.allclose(valid.sigma, expected.sigma(valid.of_forces), rtol=1e-3)
    assert (valid.energy_sigma > 0).all()


@pytest.mark.parametrize(("normalise", "factor"), [("none", 1), ("sqrt_n", 3), ("per_atom", 9)])
def test_energy_sigma_grows_with_the_size_when_normalised(given, parts, normalise, factor):
    fitted = fit(given, "ntk", {"normalise": normalise, "dim": 64})
    scores = fitted.score(parts["pool"])
    assert np.allclose(scores.energy_sigma, factor * fitted.calibration.energy.sigma(scores.variance))


@pytest.mark.parametrize("name", FEATURES)
def test_condition_lowers_scores_and_leaves_the_original_alone(name, fit_by_name, parts):
    fitted = fit_by_name(name)
    before = fitted.score(parts["pool"]).variance
    after = fitted
    for start in (0, 2, 4):  # sequentially
        lower = after.condition(parts["pool"][start : start + 2])
        variance = after.score(parts["pool"]).variance
        assert (lower.score(parts["pool"]).variance <= variance * (1 + 1e-9) + 1e-12).all()
        after = lower
    assert after.score(parts["pool"][:6]).variance.sum() < 0.9 * before[:6].sum()
    assert np.array_equal(fitted.score(parts["pool"]).variance, before)
    assert after.train_hashes == (*fitted.train_hashes, *(structure_hash(a) for a in parts["pool"][:6]))
    together = fitted.condition(parts["pool"][:6]).score(parts["pool"]).variance
    assert np.allclose(after.score(parts["pool"]).variance, together, rtol=1e-3)


@pytest.mark.parametrize("name", FEATURES)
def test_later_picks_are_conditioned_on_earlier_ones(name, fit_by_name, parts):
    fitted, pool = fit_by_name(name), parts["pool"]
    selection = fitted.select(pool, 6)
    scores = fitted.score(pool).variance
    assert selection.indices[0] == int(scores.argmax())
    assert selection.scores[0] == pytest.approx(scores.max(), rel=1e-6)
    conditioned = fitted.condition([pool[i] for i in selection.indices[:5]]).score(pool).variance
    assert selection.scores[5] == pytest.approx(conditioned[selection.indices[5]], rel=1e-3)


@pytest.mark.parametrize("rule", [rule for rule in SELECTORS if rule not in LABELLED])
@pytest.mark.parametrize("name", FEATURES)
def test_any_feature_map_works_with_any_rule(name, rule, fit_by_name, parts, tmp_path):
    """Fitted, conditioned, saved and loaded: the same picks, none of them known."""
    fitted = fit_by_name(name)
    known = [parts["pool"][i] for i in fitted.select(parts["pool"], 3, rule, seed=1).indices]
    later = fitted.condition(known)
    chosen = later.select(parts["pool"], 8, rule, seed=1).indices
    assert len(set(chosen)) == 8
    assert not {structure_hash(atoms) for atoms in known} & {structure_hash(parts["pool"][i]) for i in chosen}
    save_fitted(later, tmp_path / "later.ntk")
    loaded = load_fitted(tmp_path / "later.ntk", potential=fitted.potential)
    assert loaded.select(parts["pool"], 8, rule, seed=1).indices == chosen
    assert np.allclose(loaded.score(parts["pool"]).sigma, later.score(parts["pool"]).sigma, rtol=1e-6)


def test_training_and_excluded_structures_are_never_picked(fitted, parts):
    pool = [*parts["train"][:10], *parts["pool"]]
    chosen = fitted.select(pool, 12, exclude=[*parts["pool"][:10], *map(structure_hash, parts["pool"][10:15])]).indices
    assert min(chosen) >= 25
    with pytest.raises(InputError, match="only 15 candidates"):
        fitted.select(pool, 16, exclude=parts["pool"][:15])


def test_groups_and_separation(fitted, parts):
    groups = [index % 3 for index in range(30)]
    chosen = fitted.select(parts["pool"], 6, groups=(groups, 2)).indices
    assert np.bincount([groups[i] for i in chosen]).tolist() == [2, 2, 2]
    with pytest.raises(InputError, match="satisfy the constraints"):
        fitted.select(parts["pool"], 20, min_separation=0.9)
    with pytest.raises(InputError, match="between 0"):
        fitted.select(parts["pool"], 6, min_separation=3.0)


@pytest.mark.parametrize("name", ["ntk", "last_layer", "distance", "ensemble"])
def test_what_is_observed_is_what_is_scored(name, fit_by_name, parts):
    fitted, atoms = fit_by_name(name), parts["test"][2]
    point, observed = fitted.observe(atoms)
    entries = fitted.entries(observed, 0, 0.8)
    scores = fitted.score([atoms])
    expected = fitted.entries(scores, 0, 0.8)
    keys = {f"{name}_variance", *(f"{w}_{x}" for w in ("forces", "energy") for x in ("uncertainty", "error_bound"))}
    assert entries.keys() == expected.keys() == keys | {"beyond_calibration"}
    assert entries == pytest.approx(expected, rel=1e-3)
    predicted = fitted.potential.predict([atoms])
    assert point.energy == pytest.approx(predicted.energies[0], abs=1e-4)
    assert np.allclose(point.forces, predicted.forces[0], atol=1e-4)


@pytest.mark.parametrize("name", ["ntk", "last_layer", "distance"])
def test_the_stress_of_a_crystal_is_observed(name, fit_by_name, parts):
    fitted, atoms = fit_by_name(name), parts["test"][2].copy()
    atoms.set_cell([6.0, 6.0, 6.0])
    atoms.pbc = True
    expected = fitted.potential.single_point(atoms)
    assert np.allclose(fitted.observe(atoms)[0].stress, expected.stress, atol=1e-5)


@pytest.mark.parametrize("name", FEATURES)
def test_a_network_that_breaks_down_is_seen(name, fit_by_name, parts):
    atoms = parts["test"][2].copy()
    atoms.positions[1] = atoms.positions[0]
    _, scores = fit_by_name(name).observe(atoms)
    assert np.isnan(scores.variance[0])


@pytest.mark.parametrize("name", ["ntk", "last_layer", "ensemble"])
def test_what_a_network_breaks_down_on_is_refused_by_its_place(name, fit_by_name, parts):
    broken = parts["test"][2].copy()
    broken.positions[1] = broken.positions[0]
    for ask in (fit_by_name(name).assess, fit_by_name(name).score):
        with pytest.raises(InputError, match=r"pool.xyz, frame 1: .* NaN or infinite"):
            ask([parts["test"][0], broken], name="pool.xyz")


def test_a_coverage_out_of_reach_gives_no_bound(fitted, parts):
    scores = fitted.score(parts["pool"][:1])
    assert "forces_error_bound" in fitted.entries(scores, 0, 0.9)
    assert "forces_error_bound" not in fitted.entries(scores, 0, 0.99)
    raw = dataclasses.replace(fitted, calibration=None)
    assert raw.entries(raw.score(parts["pool"][:1]), 0, 0.9).keys() == {"ntk_variance"}


def test_scores_from_a_store(fit_by_name, parts, tmp_path):
    for name in FEATURES:
        fitted = fit_by_name(name)
        plain = fitted.score(parts["pool"])
        for _ in range(2):
            stored = fitted.score(parts["pool"], store=tmp_path / name)
            assert np.allclose(stored.variance, plain.variance, rtol=1e-3)
            assert np.allclose(stored.energy_sigma, plain.energy_sigma, rtol=1e-3)


def test_methods_with_scores_only(fit_by_name, parts, tmp_path):
    fitted = fit_by_name("distance")
    assert fitted.features is None
    chosen = fitted.select(parts["pool"], 3, "topb").indices
    assert chosen == np.argsort(-fitted.score(parts["pool"]).variance)[:3].tolist()
    for rule in SELECTORS.keys() - SCORES_SUFFICE:
        with pytest.raises(InputError, match="distance has only scores: use --method topb or random"):
            fitted.select(parts["pool"], 3, rule)
    with pytest.raises(InputError, match="this rule needs features"):
        fitted.select(parts["pool"], 3, "topb", min_separation=0.1)
    with pytest.raises(InputError, match="cannot be updated"):
        fitted.condition(parts["pool"][:2])
    with pytest.raises(InputError, match="--store keeps features, and distance has none"):
        fitted.score(parts["pool"], store=tmp_path / "store")


def test_bad_structures_are_refused(fitted, parts):
    with pytest.raises(InputError, match="no structures"):
        fitted.score([])
    with pytest.raises(InputError, match="does not know the element"):
        fitted.score([Atoms("Fe")])
    with pytest.raises(InputError, match="unknown selection method 'best'"):
        fitted.select(parts["pool"], 3, "best")


def test_the_cost_is_announced(fitted, fit_by_name, parts, caplog):
    with caplog.at_level("INFO"):
        fit_by_name("distance").announce(parts["pool"])
        assert not caplog.text
        fitted.announce(parts["pool"])
    assert "30 structures x 788 parameters" in caplog.text


def test_features_are_in_double_precision(fitted):
    assert fitted.features.blocks.tensor.dtype == torch.float64
