"""A network with several heads: each has energies of atoms, a scale, a shift and readouts of its own."""

import numpy as np
import pytest
import torch

from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.mace.stock import modules
from tests.models.mace.networks import NUMBERS, build

ENERGIES = np.array([[-1.0 * z for z in NUMBERS], [-2.0 * z for z in NUMBERS], [-3.0 * z for z in NUMBERS]])
OPTIONS = {
    "heads": ["dft", "ccsd", "mp2"],
    "atomic_energies": ENERGIES,
    "atomic_inter_scale": [0.5, 1.5, 2.5],
    "atomic_inter_shift": [0.1, 0.2, 0.3],
}


@pytest.fixture
def module():
    return build(OPTIONS)


def test_energies_count_from_the_atoms_of_the_head(module, ethanol_frames):
    for number, head in enumerate(OPTIONS["heads"]):
        potential = MACEPotential(module, head=head)
        assert potential.capabilities.trainable
        assert potential.isolated_energies == dict(zip(NUMBERS, ENERGIES[number], strict=True))
        graphs = [potential.graph(atoms) for atoms in ethanol_frames[:2]]
        total = [sum(potential.isolated_energies[int(z)] for z in atoms.numbers) for atoms in ethanol_frames[:2]]
        expected = potential.predict(ethanol_frames[:2]).energies - total
        outputs = potential.training_outputs(graphs, training=True)
        for found in (outputs[0], potential.interaction_energies(graphs)):
            assert np.allclose(found.detach().numpy(), expected, atol=1e-9)


def test_only_the_energies_of_the_head_are_shifted(module, ethanol_frames):
    def energies():
        heads = [MACEPotential(module, head=head) for head in OPTIONS["heads"]]
        return np.array([potential.predict(ethanol_frames[:1]).energies[0] for potential in heads])

    before = energies()
    MACEPotential(module, head="ccsd").shift_energies(0.5)
    assert energies() - before == pytest.approx([0, 0.5 * len(ethanol_frames[0]), 0])
    assert module.scale_shift.shift.tolist() == pytest.approx([0.1, 0.7, 0.3])


def test_a_shift_without_heads(ethanol_frames):
    """MACE stores it as a number, or as a list with one."""
    for shift in (0.2, [0.2]):
        module = build({"atomic_energies": ENERGIES[0], "atomic_inter_scale": 1.0, "atomic_inter_shift": shift})
        potential = MACEPotential(module)
        potential.shift_energies(0.5)
        assert module.scale_shift.shift.flatten().tolist() == pytest.approx([0.7])
        assert module.scale_shift.shift.ndim == np.ndim(shift)
        assert potential.isolated_energies[6] == -6.0
        assert not potential.training_remarks


def test_what_a_user_is_told_before_such_a_network_is_trained(module):
    (remark,) = MACEPotential(module, head="ccsd").training_remarks
    assert "(dft, mp2) will not give the energies they gave" in remark
    unknown = build({"interaction_cls": modules.RealAgnosticResidualNonLinearInteractionBlock})
    (remark,) = MACEPotential(unknown).training_remarks
    assert "several times slower" in remark
    assert "RealAgnosticResidualNonLinearInteractionBlock" in remark


def test_the_gradient_of_a_head_leaves_the_others_alone(module, ethanol_frames):
    """All that a training moves: what the heads share, and their own readouts."""
    potential = MACEPotential(module, head="ccsd")
    row = potential.energy_gradients([potential.graph(ethanol_frames[0])])[0]
    named = potential.parameters()
    slopes = dict(zip([name for name, _ in named], row.split([p.numel() for _, p in named]), strict=True))
    first = slopes["readouts.0.linear.weight"].view(-1, 3)
    assert first[:, 1].all()
    assert not first[:, [0, 2]].any()
    hidden = slopes["readouts.1.linear_1.weight"].view(4, 3, 4)
    assert hidden[:, 1].any()
    assert not hidden[:, [0, 2]].any()
    assert torch.count_nonzero(slopes["readouts.1.linear_2.weight"]) == 4
