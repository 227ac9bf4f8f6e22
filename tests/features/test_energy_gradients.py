import numpy as np
import pytest
import torch
from ase import Atoms

from adaptntk.core.posterior import DualPosterior, Posterior, RidgePath
from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch
from adaptntk.core.sketch.quality import sketch_error
from adaptntk.errors import InputError
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.features.registry import restore_feature_map
from adaptntk.models.protocol import parameter_count
from tests.conftest import tiny_network

EXACT = EnergyGradients(NoSketch())


@pytest.fixture(scope="module")
def full_rows(tiny, ethanol_frames):
    return EXACT.extract(tiny, ethanol_frames)[:, 0]


def test_rows_are_the_gradients(tiny, ethanol_frames, full_rows):
    for index in (0, 5):
        expected = tiny.energy_gradients([tiny.graph(ethanol_frames[index])])[0]
        assert torch.allclose(full_rows[index], expected, rtol=1e-10, atol=1e-12)


def test_streaming_equals_projecting_everything_at_once(tiny, ethanol_frames, full_rows):
    sketch = GaussianSketch(64)
    budget = 8 * 3 * parameter_count(tiny) * 8
    collected = []

    class Counting(GaussianSketch):
        def apply(self, rows, start=0):
            collected.append(len(rows))
            return super().apply(rows, start)

    streamed = EnergyGradients(Counting(64)).extract(tiny, ethanol_frames[:11], budget)
    assert streamed.shape == (11, 1, 64)
    assert max(collected) <= 3 < sum(collected) == 11
    assert torch.allclose(streamed[:, 0], sketch.apply(full_rows[:11]), rtol=1e-10, atol=1e-12)


def test_the_exact_map_of_a_sketched_one(tiny, ethanol_frames, full_rows):
    sketched = EnergyGradients(GaussianSketch(64), "per_atom")
    full = sketched.unsketched().extract(tiny, ethanol_frames[:5])
    assert torch.allclose(full[:, 0], full_rows[:5] / 9, rtol=1e-10)
    assert torch.allclose(sketched.project(full), sketched.extract(tiny, ethanol_frames[:5]), rtol=1e-9, atol=1e-12)
    assert EXACT.unsketched() is None


def test_normalisation_divides_by_a_power_of_the_size(tiny, ethanol_frames, full_rows):
    for name, power in (("none", 0), ("sqrt_n", 0.5), ("per_atom", 1)):
        rows = EnergyGradients(NoSketch(), name).extract(tiny, ethanol_frames[:2])[:, 0]
        assert torch.allclose(rows, full_rows[:2] / 9**power, rtol=1e-10)
    with pytest.raises(InputError, match="unknown normalisation"):
        EnergyGradients(NoSketch(), "sometimes")


def test_one_structure_that_is_watched(tiny, ethanol_frames):
    """Energy, forces and block of one pass are those of prediction and extraction."""
    feature_map = EnergyGradients(GaussianSketch(64), "sqrt_n")
    point, block = feature_map.observe(tiny, ethanol_frames[3])
    expected = tiny.predict([ethanol_frames[3]])
    assert point.energy == pytest.approx(expected.energies[0])
    assert np.allclose(point.forces, expected.forces[0])
    assert torch.allclose(block, feature_map.extract(tiny, [ethanol_frames[3]])[0], rtol=1e-9, atol=1e-12)


def test_it_is_what_was_written_down(tiny):
    for feature_map in (EnergyGradients(GaussianSketch(64, 3), "per_atom"), EXACT):
        again = restore_feature_map(feature_map.spec(tiny))
        assert again == feature_map
        assert again.width(tiny) == feature_map.width(tiny)
    with pytest.raises(InputError, match="unknown feature map 'charges'"):
        restore_feature_map({"map": "charges"})


def test_scores_do_not_depend_on_batch_rotation_translation_or_order(tiny, ethanol_frames):
    feature_map = EnergyGradients(GaussianSketch(128))
    posterior = Posterior.fit(feature_map.extract(tiny, ethanol_frames[:20]), 1e-3)
    atoms = ethanol_frames[30]
    moved = atoms.copy()
    moved.rotate(77, (1, -2, 0.5))
    moved.translate((5.0, 4.0, -3.0))
    order = np.random.default_rng(0).permutation(len(atoms))
    variants = [atoms, moved, atoms[order]]
    alone = [posterior.variance(feature_map.extract(tiny, [a]))[0] for a in variants]
    together = posterior.variance(feature_map.extract(tiny, [*ethanol_frames[40:50], *variants]))[-3:]
    assert torch.allclose(torch.stack(alone), alone[0].expand(3), rtol=1e-8)
    assert torch.allclose(together, alone[0].expand(3), rtol=1e-8)


def test_primal_dual_and_full_space_agree_on_a_real_network(full_rows):
    train, queries = full_rows[:40], full_rows[40:]
    lam = RidgePath(train).lam(1e-4)
    primal, dual = Posterior.fit(train, lam).variance(queries), DualPosterior.fit(train, lam).variance(queries)
    C = train.T @ train + lam * torch.eye(train.shape[1], dtype=torch.float64)
    full = lam * (queries * torch.linalg.solve(C, queries.T).T).sum(1)
    assert torch.allclose(primal, dual, rtol=1e-8, atol=0)
    assert torch.allclose(primal, full, rtol=1e-8, atol=0)


def test_sketch_error_falls_like_one_over_sqrt_p_on_a_real_network(full_rows):
    train, queries = full_rows[:40], full_rows[40:]
    path = RidgePath(train)
    lam = path.lam(1e-3)
    exact = path.variances(queries, [lam])[0]
    dims, errors = [128, 256, 512, 1024, 2048], []
    for dim in dims:
        worst = []
        for seed in range(6):
            rows = GaussianSketch(dim, seed).apply(full_rows)
            worst.append(float(sketch_error(RidgePath(rows[:40]).variances(rows[40:], [lam])[0], exact, lam).max()))
        errors.append(np.mean(worst))
    slope = np.polyfit(np.log(dims), np.log(errors), 1)[0]
    assert -0.65 < slope < -0.4


def test_float32_features_are_close_to_float64(ethanol_frames, full_rows):
    network = tiny_network()
    network.module.float()
    single = EXACT.extract(network, ethanol_frames[:10])[:, 0]
    assert single.dtype == torch.float32
    scale = full_rows[:10].norm(dim=1)
    assert ((single.double() - full_rows[:10]).norm(dim=1) / scale).max() < 1e-4


def test_mixed_sizes_and_a_missing_element(tiny, ethanol_frames):
    corners = [[0.63, 0.63, 0.63], [-0.63, -0.63, 0.63], [-0.63, 0.63, -0.63], [0.63, -0.63, -0.63]]
    mixed = [ethanol_frames[0], Atoms("CH4", positions=[[0, 0, 0], *corners]), ethanol_frames[1]]
    together = EXACT.extract(tiny, mixed)
    alone = torch.cat([EXACT.extract(tiny, [atoms]) for atoms in mixed])
    assert torch.allclose(together, alone, rtol=1e-9, atol=1e-12)


def test_no_structures_give_no_blocks(tiny):
    assert EnergyGradients(GaussianSketch(32)).extract(tiny, []).shape == (0, 1, 32)
