import torch

from adaptntk.models.family import EnergyReference
from adaptntk.models.mace.architecture import PAPER, SMALL
from adaptntk.models.mace.network import build_network
from tests.conftest import tiny_network


def test_architectures_have_the_sizes_they_should():
    def count(architecture, elements):
        reference = EnergyReference(tuple(range(1, elements + 1)), (0.0,) * elements, 1.0, 0.0)
        network = build_network(architecture, reference, 10.0, torch.float32, seed=0)
        return sum(p.numel() for p in network.parameters())

    assert count(PAPER, 3) == 724_240
    assert count(PAPER, 4) == 811_664
    assert count(SMALL, 3) == 15_712


def test_building_is_seeded_and_leaves_global_state_alone():
    state, dtype = torch.get_rng_state(), torch.get_default_dtype()
    weights = [torch.cat([p.flatten() for _, p in tiny_network(seed=s).parameters()]) for s in (1, 1, 2)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_default_dtype() == dtype
