import pytest
import torch
from ase import Atoms

from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch
from adaptntk.errors import InputError
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.features.feature_map import check_finite, choose_normalisation, size_powers
from adaptntk.features.last_layer import LastLayerFeatures
from adaptntk.memory import DEFAULT_BUDGET


def test_normalisation_is_per_atom_unless_told(parts):
    water = Atoms("OH2", positions=[[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
    assert choose_normalisation("auto") == "per_atom"
    assert choose_normalisation("sqrt_n") == "sqrt_n"
    with pytest.raises(InputError, match="unknown normalisation 'often'"):
        choose_normalisation("often")
    assert size_powers([water, parts["train"][0]], 0.5).tolist() == [3**0.5, 3.0]


def test_any_row_of_a_block_may_be_the_bad_one():
    blocks = torch.zeros(4, 3, 2)
    check_finite(blocks, "pool")
    blocks[2, 1, 0] = torch.inf
    with pytest.raises(InputError, match="pool, frame 2: the model's gradient is NaN or infinite"):
        check_finite(blocks, "pool")


def test_the_cost_is_told_and_what_does_not_fit_refused(tiny, ethanol_frames, caplog):
    with caplog.at_level("INFO"):
        EnergyGradients(GaussianSketch(64)).announce(tiny, ethanol_frames, DEFAULT_BUDGET)
    assert "140 structures x 788 parameters" in caplog.text
    with caplog.at_level("INFO"):
        EnergyGradients(force_rows=4).announce(tiny, ethanol_frames, DEFAULT_BUDGET, taught=ethanol_frames[:100])
    assert "140 structures x 788 parameters, with 400 force rows" in caplog.text
    with pytest.raises(InputError, match="more than the memory budget"):
        EnergyGradients(NoSketch()).announce(tiny, ethanol_frames, 10_000)
    LastLayerFeatures().announce(tiny, ethanol_frames, 10_000)  # nothing worth telling
