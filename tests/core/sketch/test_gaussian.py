import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats

from adaptntk.core.posterior import RidgePath
from adaptntk.core.sketch.gaussian import GaussianSketch
from adaptntk.core.sketch.quality import sketch_error


def reference_entry(seed: int, row: int, column: int) -> float:
    """The definition of sqrt(p) S[row, column] in plain Python integers and library functions."""
    mask = 2**64 - 1

    def mix(state):
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        return state ^ (state >> 31)

    origin = mix((seed + 0x9E3779B97F4A7C15) & mask)
    bits = mix((origin + (column // 4 * 2**21 + row) * 0x9E3779B97F4A7C15) & mask)
    return QUANTILES[(bits >> 16 * (column % 4)) & 0xFFFF]


QUANTILES = stats.norm.ppf((np.arange(2**16) + 0.5) / 2**16)
QUANTILES /= np.sqrt(np.mean(QUANTILES**2))


def test_entries_follow_the_definition(device):
    normals = GaussianSketch(16, seed=7).normals(5001, 5040, device).cpu()
    expected = [[reference_entry(7, i, j) for j in range(5001, 5040)] for i in range(16)]
    assert np.allclose(normals.numpy(), expected, rtol=0, atol=1e-6)


def test_the_bits_never_change(device):
    """A .ntk file relies on them for ever: these four numbers must be the same on every machine."""
    normals = GaussianSketch(512, seed=0).normals(724_239, 724_240, device).cpu()
    frozen = [-1072064761, -1101583666, -1095129295, 1074034839]  # -2.3998, -0.2101, -0.3626, 2.0699
    assert normals[[0, 1, 510, 511], 0].view(torch.int32).tolist() == frozen


def test_numbers_are_standard_normal():
    sample = GaussianSketch(256, seed=1).normals(0, 2048).double().flatten().numpy()
    assert stats.kstest(sample, "norm").pvalue > 1e-3
    assert abs(stats.kurtosis(sample)) < 0.03


def test_rows_columns_and_seeds_are_independent():
    a = GaussianSketch(64, seed=0).normals(0, 4096).double()
    b = GaussianSketch(64, seed=1).normals(0, 4096).double()
    correlations = torch.corrcoef(a) - torch.eye(64)
    assert correlations.abs().max() < 5 / math.sqrt(4096)
    neighbours = (a[:, 1:] * a[:, :-1]).mean()
    assert abs(neighbours) < 5 / math.sqrt(a.numel())
    assert abs((a * b).mean()) < 5 / math.sqrt(a.numel())


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(1, 2999), max_size=4), budget=st.sampled_from([0, 50_000, 10**9]))
def test_any_division_into_blocks_gives_the_same_projection(cuts, budget):
    rows = torch.randn(3, 3000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = GaussianSketch(32, seed=5).apply(rows)
    sketch = GaussianSketch(32, seed=5, memory_budget=budget)
    edges = [0, *sorted(set(cuts)), 3000]
    parts = sum(sketch.apply(rows[:, a:b], start=a) for a, b in itertools.pairwise(edges))
    assert torch.allclose(parts, whole, rtol=1e-12, atol=1e-12)


def test_bits_do_not_depend_on_threads_or_block_size():
    whole = GaussianSketch(64).normals(0, 3000)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        single = GaussianSketch(64).normals(0, 3000)
    finally:
        torch.set_num_threads(threads)
    odd = torch.cat([GaussianSketch(64).normals(a, b) for a, b in ((0, 7), (7, 1501), (1501, 3000))], dim=1)
    assert torch.equal(whole, single)
    assert torch.equal(whole, odd)


def test_a_smaller_sketch_is_the_beginning_of_a_larger_one():
    assert torch.equal(GaussianSketch(32).normals(0, 100), GaussianSketch(128).normals(0, 100)[:32])


def test_kept_and_redrawn_sketches_agree():
    rows = torch.randn(4, 20_000, generator=torch.Generator().manual_seed(0))
    kept, redrawn = GaussianSketch(64), GaussianSketch(64, memory_budget=0)
    first = kept.apply(rows)
    assert torch.equal(first, kept.apply(rows))
    assert torch.equal(first, redrawn.apply(rows))
    assert redrawn.memory(20_000) <= kept.memory(20_000)


def test_projection_is_a_product():
    rows = torch.randn(5, 1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sketch = GaussianSketch(48, seed=2)
    S = sketch.normals(0, 1000).double() / math.sqrt(48)
    assert torch.allclose(sketch.apply(rows), rows @ S.T, rtol=1e-12, atol=1e-12)


def test_sketch_error_falls_like_one_over_sqrt_p():
    """max |U~ - U| / (lam + U) over p = 128..2048: the slope of the theorem, -1/2, on a log-log plot."""
    generator = torch.Generator().manual_seed(0)
    spectrum = torch.linspace(0, 4, 3000, dtype=torch.float64).mul(-math.log(10)).exp()
    rows = torch.randn(240, 3000, dtype=torch.float64, generator=generator) * spectrum
    train, queries = rows[:80], rows[80:]
    lam = float(train.square().sum(1).mean())
    exact = RidgePath(train).variances(queries, [lam])[0]
    dims = [128, 256, 512, 1024, 2048]
    errors = []
    for dim in dims:
        worst = []
        for seed in range(4):
            sketch = GaussianSketch(dim, seed)
            scores = RidgePath(sketch.apply(train)).variances(sketch.apply(queries), [lam])[0]
            worst.append(float(sketch_error(scores, exact, lam).max()))
        errors.append(np.mean(worst))
    slope = np.polyfit(np.log(dims), np.log(errors), 1)[0]
    assert -0.65 < slope < -0.4
    assert errors[-1] < 0.2


@pytest.mark.parametrize("dim", [0, 7, 2**22])
def test_impossible_dimensions_are_refused(dim):
    with pytest.raises(ValueError, match="sketch dimension"):
        GaussianSketch(dim)
