import numpy as np
import pytest
import torch

from adaptntk.errors import InputError
from adaptntk.models.protocol import energy_gradients_one_by_one
from adaptntk.models.torch_module import TorchModulePotential
from adaptntk.testing import check_potential
from adaptntk.uncertainty.file import load_fitted, save_fitted
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.workbench import GivenModel


class PairNetwork(torch.nn.Module):
    """A small hand-written network: a learnt function of distance for each pair of elements."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 4)
        self.scale = torch.nn.Parameter(torch.tensor(0.7))
        self.body = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.SiLU(), torch.nn.Linear(16, 1))

    def forward(self, positions, numbers):
        first, second = torch.triu_indices(len(numbers), len(numbers), 1)
        distance = (positions[first] - positions[second]).norm(dim=1, keepdim=True)
        species = self.embedding(numbers[first]) + self.embedding(numbers[second])
        return (self.body(torch.cat([torch.exp(-distance), species], dim=1)) / distance).sum() * self.scale


@pytest.fixture(params=[torch.float32, torch.float64])
def potential(request, device):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = PairNetwork().to(device=device, dtype=request.param)
    return TorchModulePotential(module, species=[1, 6, 8])


def test_contract(potential, ethanol_frames):
    check_potential(potential, ethanol_frames[:3])


def test_the_whole_way(potential, parts, tmp_path):
    fitted = fit(GivenModel(parts["train"], parts["valid"], potential=potential), options={"sketch": "none"})
    scores = fitted.score(parts["pool"])
    assert np.isfinite(scores.sigma).all()
    assert len(fitted.select(parts["pool"], 5).indices) == 5
    save_fitted(fitted, tmp_path / "pair.ntk")
    again = load_fitted(tmp_path / "pair.ntk", potential=potential)
    assert np.allclose(again.score(parts["pool"]).variance, scores.variance, rtol=1e-6)


def test_the_fingerprint_follows_the_weights(potential):
    before = potential.fingerprint
    with torch.no_grad():
        potential.module.body[0].bias[0] += 1
    assert potential.fingerprint != before


def test_gradients_at_once_are_those_one_by_one(potential, ethanol_frames):
    structures = [*ethanol_frames[:4], ethanol_frames[4][:5], ethanol_frames[5]]
    graphs = [potential.graph(atoms) for atoms in structures]
    rows, expected = potential.energy_gradients(graphs), energy_gradients_one_by_one(potential, graphs)
    tolerance = 1e-12 if potential.dtype == torch.float64 else 1e-5
    assert float((rows - expected).norm() / expected.norm()) < tolerance


class Stubborn(PairNetwork):
    """What torch.func cannot vectorise: a decision on a value."""

    def forward(self, positions, numbers):
        energy = super().forward(positions, numbers)
        return energy if float(energy.detach()) > -1e9 else -energy


def test_a_module_that_cannot_be_vectorised(ethanol_frames, caplog):
    potential = TorchModulePotential(Stubborn().double(), species=[1, 6, 8])
    graphs = [potential.graph(atoms) for atoms in ethanol_frames[:3]]
    with caplog.at_level("WARNING"):
        rows = [potential.energy_gradients(graphs) for _ in range(2)]
    assert caplog.text.count("torch.func cannot vectorise") == 1
    assert torch.equal(rows[1], energy_gradients_one_by_one(potential, graphs))


class Images(torch.nn.Module):
    """Pairs with the images of the neighbouring cells."""

    def __init__(self):
        super().__init__()
        self.strength = torch.nn.Parameter(torch.tensor(0.7))

    def forward(self, positions, numbers, cell):
        shifts = torch.cartesian_prod(*[torch.arange(-2.0, 3.0, dtype=cell.dtype)] * 3) @ cell
        between = positions[:, None] - positions + shifts[:, None, None] + 1e-9
        distances = torch.linalg.vector_norm(between, dim=-1)
        return self.strength * (torch.exp(-2 * distances) * numbers[:, None] * numbers).sum()


def test_periodic_structures_need_a_module_that_takes_cells(silicon):
    with pytest.raises(InputError, match=r"Si\d*: PairNetwork takes no cell.*takes_cell=True"):
        TorchModulePotential(PairNetwork()).predict([silicon])
    slab = silicon.copy()
    slab.pbc = (True, False, False)
    with pytest.raises(InputError, match="takes no cell"):
        TorchModulePotential(PairNetwork()).energy_gradients([TorchModulePotential(PairNetwork()).graph(slab)])
    potential = TorchModulePotential(Images().double(), takes_cell=True)
    larger = silicon.copy()
    larger.cell *= 1.1  # the atoms stay, their images do not
    assert len(set(potential.predict([silicon, slab, larger]).energies)) == 3
    graphs = [potential.graph(atoms) for atoms in (silicon, slab)]
    assert torch.allclose(potential.energy_gradients(graphs), energy_gradients_one_by_one(potential, graphs))
