import numpy as np
import pytest
import torch

from adaptntk.errors import InputError
from adaptntk.features.last_layer import LastLayerFeatures, mean_invariants
from adaptntk.features.registry import restore_feature_map
from adaptntk.models.torch_module import TorchModulePotential


def test_rows_are_sums_over_the_atoms(tiny, ethanol_frames):
    frames = [ethanol_frames[0], ethanol_frames[1][:5]]
    predicted = tiny.predict(frames)
    for normalise, power in (("none", 0), ("sqrt_n", 0.5), ("per_atom", 1)):
        blocks = LastLayerFeatures(normalise).extract(tiny, frames)
        assert blocks.shape == (2, 1, LastLayerFeatures().width(tiny)) == (2, 1, 8)
        for block, features in zip(blocks, predicted.node_features, strict=True):
            assert np.allclose(block[0], features.sum(axis=0) / len(features) ** power, rtol=1e-5)


def test_they_do_not_turn(tiny, ethanol_frames):
    turned = ethanol_frames[0].copy()
    turned.rotate(40, (1, 2, 3))
    a, b = (mean_invariants(tiny, tiny.predict([atoms])) for atoms in (ethanol_frames[0], turned))
    assert a.shape == (1, 8)
    assert np.allclose(a, b, atol=1e-4)


def test_blocks_and_predictions_come_from_one_pass(tiny, ethanol_frames):
    feature_map, frames = LastLayerFeatures(), ethanol_frames[:3]
    blocks, predicted = feature_map.extract_and_predict(tiny, frames)
    assert torch.equal(blocks, feature_map.extract(tiny, frames))
    assert np.array_equal(predicted.energies, tiny.predict(frames).energies)
    point, block = feature_map.observe(tiny, frames[1])
    assert torch.allclose(block, blocks[1], rtol=1e-5)
    assert point.energy == pytest.approx(predicted.energies[1])
    assert np.allclose(point.forces, predicted.forces[1], atol=1e-5)


def test_it_is_what_was_written_down(tiny):
    feature_map = LastLayerFeatures("sqrt_n")
    assert restore_feature_map(feature_map.spec(tiny)) == feature_map
    with pytest.raises(InputError, match="unknown normalisation"):
        LastLayerFeatures("often")


class Pairs(torch.nn.Module):
    """A potential without features of atoms."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, positions, numbers):
        return self.scale * torch.pdist(positions).sum()


def test_a_model_without_features_is_refused(ethanol_frames):
    potential = TorchModulePotential(Pairs().double(), species=[1, 6, 8])
    with pytest.raises(InputError, match="has no features of atoms"):
        LastLayerFeatures().extract(potential, ethanol_frames[:2])
