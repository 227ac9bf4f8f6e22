import pytest
import torch

from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch
from adaptntk.errors import InputError
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.features.extraction import announce, extract_sets
from adaptntk.features.last_layer import LastLayerFeatures
from adaptntk.memory import DEFAULT_BUDGET

SKETCHED = EnergyGradients(GaussianSketch(64))


def test_both_sets_are_those_extracted_alone(tiny, ethanol_frames):
    train, valid = ethanol_frames[:6], ethanol_frames[6:10]
    for feature_map in (SKETCHED, EnergyGradients(NoSketch()), LastLayerFeatures()):
        found = extract_sets(feature_map, tiny, train, valid, DEFAULT_BUDGET)
        for part, frames in ((found.train, train), (found.valid, valid)):
            expected = feature_map.extract(tiny, frames)
            assert torch.allclose(part.tensor, expected, rtol=1e-9, atol=1e-12 + 1e-12 * float(expected.abs().max()))


def test_exact_blocks_are_kept_where_they_fit(tiny, ethanol_frames):
    """Into a quarter of the budget."""
    train, valid = ethanol_frames[:60], ethanol_frames[60:100]
    budget = 4 * 100 * 788 * 8
    exact = extract_sets(SKETCHED, tiny, train, valid, budget).exact
    assert torch.allclose(exact[1].tensor, EnergyGradients(NoSketch()).extract(tiny, valid), rtol=1e-9, atol=1e-12)
    assert extract_sets(SKETCHED, tiny, train, valid, budget - 1).exact is None
    assert extract_sets(EnergyGradients(NoSketch()), tiny, train, valid, budget).exact is None


def test_the_cost_is_told_and_what_does_not_fit_refused(tiny, ethanol_frames, caplog):
    with caplog.at_level("INFO"):
        announce(SKETCHED, tiny, ethanol_frames, DEFAULT_BUDGET)
    assert "140 structures x 788 parameters" in caplog.text
    with pytest.raises(InputError, match="more than the memory budget"):
        announce(EnergyGradients(NoSketch()), tiny, ethanol_frames, 10_000)
    announce(LastLayerFeatures(), tiny, ethanol_frames, 10_000)  # nothing worth telling
