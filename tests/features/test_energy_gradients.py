import numpy as np
import pytest
import torch
from ase import Atoms

from adaptntk.core.posterior import DualPosterior, Posterior, RidgePath
from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch
from adaptntk.core.sketch.quality import sketch_error
from adaptntk.errors import InputError
from adaptntk.features.energy_gradients import chunk_size, estimate_features, extract_features
from adaptntk.models.protocol import parameter_count
from tests.conftest import tiny_network


@pytest.fixture(scope="module")
def full_rows(tiny, ethanol_frames):
    return extract_features(tiny, ethanol_frames, NoSketch())


def test_rows_are_the_gradients(tiny, ethanol_frames, full_rows):
    for index in (0, 5):
        expected = tiny.energy_gradients([tiny.graph(ethanol_frames[index])])[0]
        assert torch.allclose(full_rows[index], expected, rtol=1e-10, atol=1e-12)


def test_streaming_equals_projecting_everything_at_once(tiny, ethanol_frames, full_rows):
    sketch = GaussianSketch(64)
    row_bytes = parameter_count(tiny) * 8
    streamed = extract_features(tiny, ethanol_frames[:11], sketch, memory_budget=8 * 3 * row_bytes)
    assert chunk_size(tiny, sketch, 8 * 3 * row_bytes) == 3
    assert torch.allclose(streamed, sketch.apply(full_rows[:11]), rtol=1e-10, atol=1e-12)


def test_normalisation_divides_by_a_power_of_the_size(tiny, ethanol_frames, full_rows):
    for name, power in (("none", 0), ("sqrt_n", 0.5), ("per_atom", 1)):
        rows = extract_features(tiny, ethanol_frames[:2], NoSketch(), normalise=name)
        assert torch.allclose(rows, full_rows[:2] / 9**power, rtol=1e-10)
    with pytest.raises(InputError, match="unknown normalisation"):
        extract_features(tiny, ethanol_frames[:2], NoSketch(), normalise="sometimes")


def test_scores_do_not_depend_on_batch_rotation_translation_or_order(tiny, ethanol_frames):
    sketch = GaussianSketch(128)
    posterior = Posterior.fit(extract_features(tiny, ethanol_frames[:20], sketch), 1e-3)
    atoms = ethanol_frames[30]
    moved = atoms.copy()
    moved.rotate(77, (1, -2, 0.5))
    moved.translate((5.0, 4.0, -3.0))
    order = np.random.default_rng(0).permutation(len(atoms))
    permuted = atoms[order]
    variants = [atoms, moved, permuted]
    alone = [posterior.variance(extract_features(tiny, [a], sketch))[0] for a in variants]
    together = posterior.variance(extract_features(tiny, [*ethanol_frames[40:50], *variants], sketch))[-3:]
    assert torch.allclose(torch.stack(alone), alone[0].expand(3), rtol=1e-8)
    assert torch.allclose(together, alone[0].expand(3), rtol=1e-8)


def test_primal_dual_and_full_space_agree_on_a_real_network(tiny, full_rows):
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
    single = extract_features(network, ethanol_frames[:10], NoSketch())
    assert single.dtype == torch.float32
    scale = full_rows[:10].norm(dim=1)
    assert ((single.double() - full_rows[:10]).norm(dim=1) / scale).max() < 1e-4


def test_mixed_sizes_and_a_missing_element(tiny, ethanol_frames):
    methane = Atoms(
        "CH4",
        positions=[[0, 0, 0], [0.63, 0.63, 0.63], [-0.63, -0.63, 0.63], [-0.63, 0.63, -0.63], [0.63, -0.63, -0.63]],
    )
    rows = extract_features(tiny, [ethanol_frames[0], methane], GaussianSketch(32))
    assert torch.isfinite(rows).all()


def test_no_structures_give_no_rows(tiny):
    assert extract_features(tiny, [], GaussianSketch(32)).shape == (0, 32)


def test_estimate_is_about_right(tiny, ethanol_frames):
    import time

    def right() -> bool:
        began = time.perf_counter()
        extract_features(tiny, ethanol_frames, sketch)
        taken = time.perf_counter() - began
        return taken / 10 < estimate_features(tiny, ethanol_frames, sketch).seconds < taken * 10

    sketch = GaussianSketch(64)
    estimate = estimate_features(tiny, ethanol_frames, sketch)
    assert estimate.structures == 140
    assert any(right() for _ in range(5))  # other work on the machine may disturb one of them
    assert "140 structures x 788 parameters" in str(estimate)


def test_exact_features_that_do_not_fit_are_refused(tiny, ethanol_frames):
    estimate = estimate_features(tiny, ethanol_frames, NoSketch(), memory_budget=10_000)
    with pytest.raises(InputError, match="raise --memory, or use --sketch gaussian"):
        estimate.check(10_000)


@pytest.mark.parametrize("gibibytes", [1, 4, 16])
@pytest.mark.parametrize("parameters", [10**4, 724_240, 4_700_000, 9_000_000])
def test_any_sketched_model_fits_the_budget(tiny, ethanol_frames, monkeypatch, parameters, gibibytes):
    """Foundation-size models must not be refused: the sketch is then drawn again instead of kept."""
    import adaptntk.features.energy_gradients as module

    monkeypatch.setattr(module, "parameter_count", lambda potential: parameters)
    budget = gibibytes * 2**30
    estimate = estimate_features(tiny, ethanol_frames * 10, GaussianSketch(512, memory_budget=budget // 2), budget)
    estimate.check(budget)
    assert estimate.memory <= 1.1 * budget
