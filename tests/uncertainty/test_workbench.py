import numpy as np
import pytest
import torch

from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch
from adaptntk.errors import InputError
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.features.last_layer import LastLayerFeatures
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.workbench import GivenModel

SKETCHED = EnergyGradients(GaussianSketch(64))


def test_what_costs_something_is_done_once(tiny, parts, monkeypatch):
    bench = GivenModel(parts["train"][:8], parts["valid"][:5], potential=tiny)
    first, predicted = bench.extracted(EnergyGradients(GaussianSketch(16))), bench.predicted_valid()
    assert first.train.shape == (8, 1, 16)
    assert np.array_equal(predicted.energies, tiny.predict(parts["valid"][:5]).energies)
    other = bench.extracted(EnergyGradients(GaussianSketch(16, seed=1)))
    assert not np.allclose(other.train.tensor, first.train.tensor)
    monkeypatch.setattr(type(tiny), "energy_gradients", None)
    monkeypatch.setattr(type(tiny), "predict", None)
    assert bench.extracted(EnergyGradients(GaussianSketch(16))) is first
    assert bench.predicted_valid() is predicted


@pytest.mark.parametrize("name", ["ensemble", "dropout", "swag"])
def test_one_model_is_not_enough_for_every_method(name, given):
    with pytest.raises(InputError, match="none can be trained: use a FolderWorkbench"):
        fit(given, name)


def extracted(feature_map, potential, train, valid, budget):
    return GivenModel(train, valid, memory_budget=budget, potential=potential).extracted(feature_map)


def test_both_sets_are_those_extracted_alone(tiny, ethanol_frames):
    train, valid = ethanol_frames[:6], ethanol_frames[6:10]
    for feature_map in (SKETCHED, EnergyGradients(NoSketch()), LastLayerFeatures()):
        found = extracted(feature_map, tiny, train, valid, DEFAULT_BUDGET)
        for part, frames in ((found.train, train), (found.valid, valid)):
            expected = feature_map.extract(tiny, frames)
            assert torch.allclose(part.tensor, expected, rtol=1e-9, atol=1e-12 + 1e-12 * float(expected.abs().max()))


def test_exact_blocks_are_kept_where_they_fit(tiny, ethanol_frames):
    """Into a quarter of the budget."""
    train, valid = ethanol_frames[:60], ethanol_frames[60:100]
    budget = 4 * 100 * 788 * 8
    exact = extracted(SKETCHED, tiny, train, valid, budget).exact
    assert torch.allclose(exact[1].tensor, EnergyGradients(NoSketch()).extract(tiny, valid), rtol=1e-9, atol=1e-12)
    assert extracted(SKETCHED, tiny, train, valid, budget - 1).exact is None
    assert extracted(EnergyGradients(NoSketch()), tiny, train, valid, budget).exact is None
