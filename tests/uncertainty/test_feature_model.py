import dataclasses

import numpy as np
import pytest
import torch
from ase import Atoms

from adaptntk.core.selection.problem import Constraints
from adaptntk.core.sketch.gaussian import GaussianSketch
from adaptntk.data.structures import structure_hash
from adaptntk.errors import InputError, MismatchError
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.uncertainty import feature_model
from adaptntk.uncertainty.feature_model import FeatureModel
from adaptntk.uncertainty.fit import fit


@pytest.mark.parametrize("name", ["ntk", "last_layer"])
def test_stored_features_are_computed_once(name, given, parts, tmp_path, monkeypatch):
    monkeypatch.setattr(feature_model, "STORE_STEP", 4)
    fitted = fit(given, name)
    features, potential = fitted.features, fitted.potential
    pool = [*parts["pool"][:10], parts["pool"][3]]
    stored = features.extract_stored(potential, pool, tmp_path / "store")
    store = features.open_store(potential, tmp_path / "store")
    assert len(store) == 10
    assert store.find([structure_hash(atoms) for atoms in parts["pool"][8:12]]).tolist() == [8, 9, -1, -1]
    # float32 gradients depend on the batch to rounding.
    expected = features.extract(potential, pool).tensor
    assert torch.allclose(stored[:], expected, rtol=0, atol=1e-5 * float(expected.abs().max()))

    def fail(*args, **more):
        raise AssertionError("computed again")

    monkeypatch.setattr(FeatureModel, "extract", fail)
    again = features.extract_stored(potential, pool[::-1], tmp_path / "store")
    assert torch.equal(again[:].flip(0), stored[:])
    with pytest.raises(AssertionError, match="computed again"):
        features.extract_stored(potential, parts["pool"][:12], tmp_path / "store")


def test_another_map_has_another_store(fitted, given, tmp_path):
    features = fitted.features
    features.open_store(fitted.potential, tmp_path / "store")
    other = dataclasses.replace(features, feature_map=EnergyGradients(GaussianSketch(512, seed=1), "per_atom"))
    with pytest.raises(MismatchError, match="sketch is"):
        other.open_store(fitted.potential, tmp_path / "store")
    with pytest.raises(MismatchError, match="map is energy there and last_layer here"):
        fit(given, "last_layer").features.open_store(fitted.potential, tmp_path / "store")


def test_a_part_at_a_time_gives_the_same_scores(fitted, parts):
    """A budget that holds only a few blocks beside everything else."""
    whole = fitted.score(parts["pool"]).variance
    small = dataclasses.replace(fitted.features, memory_budget=8 * 8 * 788 * 7)
    assert [len(part) for part in small.parts(parts["pool"])] == [7, 7, 7, 7, 2]
    method = dataclasses.replace(fitted.method, features=small)
    found = dataclasses.replace(fitted, method=method)
    assert np.allclose(found.score(parts["pool"]).variance, whole, rtol=1e-3)
    assert np.allclose(found.assess(parts["pool"]).variance, whole, rtol=1e-3)


def test_the_overlap_of_the_halves_of_a_sketch(fitted, given, parts):
    blocks = fitted.features.extract(fitted.potential, parts["pool"])
    overlap = fitted.features.sketch_overlap(blocks, 5, Constraints())
    assert 0 < overlap <= 1
    assert fitted.features.sketch_overlap(blocks, 30, Constraints()) == 1
    last_layer = fit(given, "last_layer").features
    assert last_layer.sketch_overlap(last_layer.extract(fitted.potential, parts["pool"]), 5, Constraints()) is None


def test_bad_structures_are_named(fitted, parts):
    features, potential, frames = fitted.features, fitted.potential, parts["pool"]
    with pytest.raises(InputError, match="pool: no structures"):
        features.extract(potential, [], "pool")
    with pytest.raises(InputError, match=r"pool, frame 1.*does not know the element"):
        features.extract(potential, [frames[0], Atoms("Fe")], "pool")
    broken = frames[1].copy()
    broken.positions[1] = broken.positions[0] + np.array([1e-200, 0, 0])
    with pytest.raises(InputError, match="pool, frame 17: the model's gradient is NaN or infinite"):
        features.extract(potential, [frames[0], broken], "pool", numbers=[9, 17])
