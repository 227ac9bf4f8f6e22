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
    assert torch.allclose(exact.valid.tensor, EnergyGradients(NoSketch()).extract(tiny, valid), rtol=1e-9, atol=1e-12)
    assert extracted(SKETCHED, tiny, train, valid, budget - 1).exact is None
    assert extracted(EnergyGradients(NoSketch()), tiny, train, valid, budget).exact is None


def test_exact_blocks_count_as_memory(tiny, ethanol_frames, monkeypatch):
    told = []
    monkeypatch.setattr(EnergyGradients, "announce", lambda *_, beside, taught: told.append(beside))
    size = 100 * 788 * 8
    for budget in (4 * size, 4 * size - 1):
        extracted(SKETCHED, tiny, ethanol_frames[:60], ethanol_frames[60:100], budget)
    assert told == [size, 0]
    monkeypatch.undo()
    with pytest.raises(InputError, match="more than the memory budget"):
        SKETCHED.announce(tiny, ethanol_frames, 10**9, beside=2 * 10**9)


@pytest.mark.parametrize(("place", "name"), [(2, "training set, frame 2"), (7, "validation set, frame 1")])
def test_a_frame_without_a_gradient_is_named(place, name, tiny, ethanol_frames, monkeypatch):
    make, gradients = type(tiny).graph, type(tiny).gradients_and_predictions

    def broken(self, graphs):
        rows, predicted = gradients(self, graphs)
        rows[[graph is bad for graph in graphs]] = torch.nan
        return rows, predicted

    frames, graphs = ethanol_frames[:10], {}
    monkeypatch.setattr(type(tiny), "graph", lambda self, atoms: graphs.setdefault(id(atoms), make(self, atoms)))
    bad = tiny.graph(frames[place])
    monkeypatch.setattr(type(tiny), "gradients_and_predictions", broken)
    for feature_map in (SKETCHED, EnergyGradients(NoSketch())):
        with pytest.raises(InputError, match=f"{name}: the model's gradient"):
            extracted(feature_map, tiny, frames[:6], frames[6:], DEFAULT_BUDGET)
