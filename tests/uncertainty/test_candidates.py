import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from adaptntk.core.posterior import as_primal, principal_plane
from adaptntk.core.selection.problem import Constraints
from adaptntk.core.selection.registry import SELECTORS
from adaptntk.errors import InputError
from adaptntk.uncertainty.feature_model import FeatureModel
from adaptntk.uncertainty.fit import fit


@pytest.mark.parametrize("rule", SELECTORS)
def test_structures_are_described_once_for_all_rules(rule, fitted, parts, monkeypatch, tmp_path):
    kept = fitted.candidates(parts["pool"])
    stored = fitted.candidates(parts["pool"], store=tmp_path / "store")
    expected = fitted.select(parts["pool"], 5, rule, seed=2)
    monkeypatch.setattr(FeatureModel, "extract", None)  # nothing is computed again
    for candidates in (kept, stored):
        assert candidates.select(rule, 5, Constraints([False] * 30), seed=2).indices == expected.indices
    assert np.allclose(kept.scores.energy_sigma, stored.scores.energy_sigma, rtol=1e-3)


def test_scores_are_enough_where_there_are_no_features(fit_by_name, parts):
    fitted = fit_by_name("energy")
    candidates = fitted.candidates(parts["pool"])
    assert isinstance(candidates.source, torch.Tensor)
    assert np.allclose(candidates.scores.energy_sigma, fitted.score(parts["pool"]).energy_sigma)
    assert candidates.select("topb", 4).indices == fitted.select(parts["pool"], 4, "topb").indices
    assert candidates.sketch_overlap(4, Constraints()) is None
    assert candidates.map_of(np.arange(5)).tolist() == [[0.0, 0.0]] * 5


def test_the_map_is_the_plane_of_the_posterior(fitted, parts):
    candidates = fitted.candidates(parts["pool"])
    shown = np.array([3, 1, 20, 7])
    rows = fitted.features.extract(fitted.potential, parts["pool"]).tensor[torch.as_tensor(shown), 0]
    expected = principal_plane(as_primal(fitted.features.posterior).whiten(rows))
    # Up to the sign of each axis.
    assert np.allclose(
        np.abs(candidates.map_of(shown)), np.abs(expected), rtol=1e-3, atol=1e-3 * np.abs(expected).max()
    )
    assert 0 < candidates.sketch_overlap(5, Constraints()) <= 1


def test_a_pick_teaches_what_its_label_will(given, parts):
    """The scores of the rule are those of an uncertainty that was told of the picks before, forces and all."""
    fitted, pool = fit(given, "ntk", {"features": "joint", "force_rows": 3, "committee": 0, "dim": 512}), parts["pool"]
    found = fitted.select(pool, 4, "adaptntk+forces")
    told = fitted
    for index, score in zip(found.indices, found.scores, strict=True):
        now = told.score(pool).variance
        assert int(np.argmax(now)) == index
        assert now[index] == pytest.approx(score, rel=1e-6)
        told = told.condition([pool[index]])
    # Forces of a pick lower the scores of the others further than its energy does.
    assert sum(found.scores) < sum(fitted.select(pool, 4, "adaptntk").scores)


@pytest.mark.parametrize("rule", ["adaptntk+forces", "bait+forces"])
def test_rules_of_forces_need_rows_of_forces(rule, given, parts):
    energies = fit(given, "ntk", {"features": "energy"})
    with pytest.raises(InputError, match=f"--method {re.escape(rule)} needs rows of forces"):
        energies.select(parts["pool"], 3, rule)


def test_forces_become_sure_where_they_are_wanted(given, parts):
    """The rule that is told of a target leaves its forces surer than the one that is not, and than random picks."""
    fitted = fit(given, "ntk", {"features": "joint", "force_rows": 4, "committee": 0, "dim": 512})
    pool, target = parts["pool"], parts["test"][:2]

    rows = fitted.features.feature_map.further(fitted.potential, target).flatten(0, 1)

    def left(picks):
        told = fitted.condition([pool[index] for index in picks])
        return float(told.features.posterior.variance(rows).sum())

    aimed = left(fitted.candidates(pool, target=target).select("bait+forces", 3).indices)
    assert aimed < left(fitted.select(pool, 3, "bait+forces").indices)
    assert aimed < min(left(fitted.select(pool, 3, "random", seed=seed).indices) for seed in range(5))


def test_what_is_above_a_ceiling(given, fitted, fit_by_name, parts):
    joint = fit(given, "ntk", {"features": "joint", "force_rows": 3, "committee": 4, "dim": 512})
    for each in (fitted, joint, fit_by_name("energy")):
        candidates, scores = each.candidates(parts["pool"]), each.score(parts["pool"])
        assert not any(candidates.above(None))
        level = float(np.median(scores.sigma))
        assert candidates.above(None, level) == (scores.sigma > level).tolist()
        multiple = float(np.median(scores.variance)) / each.calibration.largest
        assert sum(candidates.above(multiple)) == 15
        both = candidates.above(multiple, level)
        assert both == [a or b for a, b in zip(candidates.above(multiple), candidates.above(None, level), strict=True)]
        found = candidates.select("topb", 3, Constraints().without(both))
        assert not any(both[index] for index in found.indices)


def test_a_ceiling_needs_a_calibration(fitted, parts):
    candidates = replace(fitted, calibration=None).candidates(parts["pool"])
    assert not any(candidates.above(None))
    with pytest.raises(InputError, match="a ceiling needs a calibrated uncertainty"):
        candidates.above(2.0)
