"""A feature map with several rows per structure goes all the way, and equals refitting from scratch."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from adaptntk.core.selection.registry import LABELLED, SELECTORS
from adaptntk.core.sketch.gaussian import GaussianSketch
from adaptntk.features import registry as maps
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.features.feature_map import FeatureMap
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.progress import silent
from adaptntk.testing import check_method
from adaptntk.uncertainty import registry as methods
from adaptntk.uncertainty.feature_method import FeatureMethod, RidgeOptions
from adaptntk.uncertainty.feature_model import FeatureModel
from adaptntk.uncertainty.file import load_fitted, read_header, save_fitted
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.workbench import GivenModel
from tests.core.selection.rules import naive_variance
from tests.uncertainty.test_sizes import copies

DIRECTIONS, STEP = 2, 1e-3


def displaced(atoms, direction):
    """The structure moved along a random direction, forwards and backwards."""
    vector = np.random.default_rng(direction).normal(size=(len(atoms), 3))
    both = [atoms.copy(), atoms.copy()]
    for moved, step in zip(both, (STEP, -STEP), strict=True):
        moved.positions += step * vector / np.linalg.norm(vector)
    return both


@dataclass(frozen=True)
class EnergyAndForces(FeatureMap):
    """The energy, which is asked about, and the force along some directions v: ``d(v.F)/dtheta``."""

    energy: EnergyGradients = field(default_factory=lambda: EnergyGradients(GaussianSketch(64), "per_atom"))
    name: ClassVar[str] = "energy_and_forces"
    rows = 1 + DIRECTIONS
    normalise = "per_atom"

    def width(self, potential):
        return self.energy.width(potential)

    def extract(self, potential, structures, memory_budget=DEFAULT_BUDGET, progress=silent):
        moved = [m for atoms in structures for k in range(DIRECTIONS) for m in displaced(atoms, k)]
        gradients = self.energy.extract(potential, moved).view(len(structures), DIRECTIONS, 2, -1)
        forces = (gradients[:, :, 1] - gradients[:, :, 0]) / (2 * STEP)
        return torch.cat([self.energy.extract(potential, structures), forces], dim=1)

    def observe(self, potential, atoms):
        return potential.single_point(atoms), self.extract(potential, [atoms])[0]

    def spec(self, potential):
        return {"map": self.name, "energy": self.energy.spec(potential)}

    def summary(self, potential):
        return "energy and forces"

    @classmethod
    def restore(cls, spec, memory_budget=DEFAULT_BUDGET):
        return cls(EnergyGradients.restore(spec["energy"], memory_budget))


class WithForces(FeatureMethod):
    name = "with_forces"
    Options = RidgeOptions

    @classmethod
    def fit(cls, bench, rng, options):
        return cls.fit_map(bench, rng, EnergyAndForces(), options)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(maps.FEATURE_MAPS, "energy_and_forces", EnergyAndForces)
    monkeypatch.setitem(methods.METHODS, "with_forces", WithForces)


@pytest.fixture(scope="module")
def sets(ethanol_frames):
    return {"train": ethanol_frames[:8], "valid": ethanol_frames[8:20], "pool": ethanol_frames[20:36]}


@pytest.fixture(scope="module")
def fitted(tiny, sets):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(methods.METHODS, "with_forces", WithForces)
        return fit(GivenModel(sets["train"], sets["valid"], potential=tiny), "with_forces")


def rows_of(fitted, frames):
    return EnergyAndForces().extract(fitted.potential, frames)


def test_rows_are_derivatives_of_forces(tiny, sets):
    """The same by differences in the parameters."""
    atoms = sets["train"][0]
    block = EnergyAndForces(EnergyGradients(GaussianSketch(8))).extract(tiny, [atoms])[0]
    vector = np.random.default_rng(1).normal(size=(9, 3))
    vector /= np.linalg.norm(vector)
    sketch = GaussianSketch(8)
    direction = torch.randn(788, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights, network = tiny.weights().double(), tiny.copy()
    along = []
    for step in (1e-4, -1e-4):
        network.set_weights(weights + step * direction)
        along.append(float((network.predict([atoms]).forces[0] * vector).sum()))
    full = rows_without_sketch(tiny, atoms)
    assert float(full @ direction) == pytest.approx((along[0] - along[1]) / 2e-4, rel=1e-4)
    assert torch.allclose(sketch.apply(full[None])[0], block[2], rtol=1e-6, atol=1e-9)


def rows_without_sketch(potential, atoms):
    plus, minus = (potential.energy_gradients([potential.graph(a)])[0] for a in displaced(atoms, 1))
    return (minus - plus) / (2 * STEP)


def test_the_score_asks_about_the_energy_and_knows_the_forces(fitted, sets):
    train, pool = rows_of(fitted, sets["train"]), rows_of(fitted, sets["pool"])
    assert fitted.features.blocks.shape == (8, 3, 64)
    assert fitted.features.blocks.asked == 1
    lam = fitted.features.ridge.lam
    assert lam == pytest.approx(fitted.features.ridge.alpha * float(train.square().sum()) / 8)
    expected = naive_variance(train, pool[:, :1], lam)
    assert np.allclose(fitted.score(sets["pool"]).variance, expected, rtol=1e-6)
    assert np.allclose(fitted.assess(sets["pool"]).variance, expected, rtol=1e-6)
    energies_alone = naive_variance(train[:, 0], pool[:, :1], lam)
    assert (expected < energies_alone).all()


def test_conditioning_is_refitting(fitted, sets, tiny):
    lam = fitted.features.ridge.lam
    later = fitted.condition(sets["pool"][:4])
    bench = GivenModel([*sets["train"], *sets["pool"][:4]], potential=tiny)
    refitted = fit(bench, "with_forces", {"lam": lam})
    found, expected = (f.score(sets["pool"]).variance for f in (later, refitted))
    assert np.allclose(found, expected, rtol=1e-8)
    assert later.train_hashes == refitted.train_hashes
    assert (found < fitted.score(sets["pool"]).variance).all()


@pytest.mark.parametrize("rule", [rule for rule in SELECTORS if rule not in LABELLED])
def test_every_rule_selects_whole_structures(fitted, sets, rule, tmp_path):
    found = fitted.select(sets["pool"], 6, rule, seed=1)
    assert len(set(found.indices)) == 6
    stored = fitted.candidates(sets["pool"], store=tmp_path / "store")
    assert stored.select(rule, 6, seed=1).indices == found.indices


def test_the_sequential_rule_is_refitting_after_every_pick(fitted, sets):
    train, pool = rows_of(fitted, sets["train"]), rows_of(fitted, sets["pool"])
    found = fitted.select(sets["pool"], 8)
    picks = []
    for score in found.scores:
        variance = naive_variance(torch.cat([train, pool[picks]]), pool[:, :1], fitted.features.ridge.lam)
        variance[picks] = -torch.inf
        picks.append(int(variance.argmax()))
        assert score == pytest.approx(float(variance.max()), rel=1e-6)
    assert found.indices == picks


def test_store(fitted, sets, tmp_path, monkeypatch):
    expected = fitted.score(sets["pool"])
    stored = fitted.score(sets["pool"], store=tmp_path / "store")
    assert np.allclose(stored.variance, expected.variance, rtol=1e-8)
    assert (tmp_path / "store" / "rows.bin").stat().st_size == 16 * 3 * 64 * 8
    monkeypatch.setattr(FeatureModel, "extract", None)
    again = fitted.score(sets["pool"], store=tmp_path / "store")
    assert np.array_equal(again.variance, stored.variance)


def test_file(fitted, sets, tmp_path):
    later = fitted.condition(sets["pool"][:2])
    save_fitted(later, tmp_path / "a.ntk")
    assert read_header(tmp_path / "a.ntk")["settings"]["features"]["map"] == "energy_and_forces"
    loaded = load_fitted(tmp_path / "a.ntk", potential=fitted.potential)
    found, expected = (f.score(sets["pool"]) for f in (loaded, later))
    assert np.allclose(found.variance, expected.variance, rtol=1e-8)
    assert np.allclose(found.sigma, expected.sigma, rtol=1e-8)
    assert loaded.select(sets["pool"], 5).indices == later.select(sets["pool"], 5).indices


def test_observation_and_contract(fitted, sets):
    atoms = sets["pool"][3]
    _, observed = fitted.observe(atoms)
    assert fitted.entries(observed, 0, 0.5) == pytest.approx(fitted.entries(fitted.score([atoms]), 0, 0.5), rel=1e-6)
    check_method(fitted.method, sets["pool"][:6])


def test_copies_have_the_score_of_one(fitted, sets):
    """The energy is asked about per atom; what is known besides does not matter."""
    single, double = sets["pool"][3], copies(sets["pool"][3], sets["pool"][3])
    one, two = (fitted.score([atoms]) for atoms in (single, double))
    assert two.variance == pytest.approx(one.variance, rel=1e-6)
    assert two.energy_sigma == pytest.approx(2 * one.energy_sigma, rel=1e-6)


def test_all_rows_may_be_asked_about(fitted, sets):
    """The score is then the sum over the rows."""
    blocks = replace(fitted.features.blocks, asked=3)
    asked = replace(fitted, method=replace(fitted.method, features=replace(fitted.features, blocks=blocks)))
    train, pool = rows_of(fitted, sets["train"]), rows_of(fitted, sets["pool"])
    rows = naive_variance(train, pool.flatten(0, 1), fitted.features.ridge.lam).view(-1, 3)
    assert np.allclose(asked.assess(sets["pool"]).variance, rows.sum(1), rtol=1e-6)
