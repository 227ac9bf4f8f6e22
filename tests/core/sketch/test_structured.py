import itertools
import math

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings, strategies as st

from adaptntk.core.posterior import RidgePath
from adaptntk.core.sketch.counter_hash import hash_number
from adaptntk.core.sketch.gaussian import GaussianSketch
from adaptntk.core.sketch.quality import sketch_error
from adaptntk.core.sketch.structured import SparseSignSketch, SRHTSketch, _Scatter, hadamard_transform

KINDS = [SparseSignSketch, SRHTSketch]


def matrix(sketch, columns: int) -> torch.Tensor:
    """S itself, from its action on unit vectors."""
    return sketch.apply(torch.eye(columns, dtype=torch.float64)).T


@pytest.mark.parametrize("width", [16, 500])
def test_a_scatter_has_one_sign_per_column_where_its_definition_says(width):
    columns = 3 * width + 7
    scatter = _Scatter(width, seed=hash_number(3))
    dense = scatter.apply(torch.eye(columns, dtype=torch.float64), 0).T
    assert torch.equal(dense.abs().sum(0), torch.ones(columns, dtype=torch.float64))
    rows = dense.abs().argmax(0).tolist()
    expected = [(j + hash_number(scatter.seed + j // width) % width) % width for j in range(columns)]
    assert rows == expected
    assert abs(float(dense.sum())) < 5 * math.sqrt(columns)


def test_hadamard_transform_is_the_matrix():
    rows = torch.randn(3, 64, dtype=torch.float64)
    expected = rows.numpy() @ scipy.linalg.hadamard(64)
    assert np.allclose(hadamard_transform(rows).numpy(), expected, rtol=0, atol=1e-12)


def test_rows_of_the_srht_are_orthogonal_without_the_scatter():
    """R H D: p rows of an orthogonal matrix, scaled."""
    sketch = SRHTSketch(32, seed=1)
    s = matrix(sketch, sketch._order)
    assert torch.allclose(s @ s.T, torch.eye(32, dtype=torch.float64) * sketch._order / 32, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10, deadline=None)
@given(cuts=st.lists(st.integers(1, 2999), max_size=4), dim=st.sampled_from([2, 30, 64]))
def test_any_division_into_columns_gives_the_same_projection(kind, cuts, dim):
    rows = torch.randn(3, 3000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = kind(dim, seed=5).apply(rows)
    edges = [0, *sorted(set(cuts)), 3000]
    parts = sum(kind(dim, seed=5).apply(rows[:, a:b], start=a) for a, b in itertools.pairwise(edges))
    assert torch.allclose(parts, whole, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_far_out(kind):
    """Beyond the signs that are drawn together."""
    rows = torch.randn(2, 300_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = kind(64).apply(rows)
    parts = kind(64).apply(rows[:, :262_000]) + kind(64).apply(rows[:, 262_000:], start=262_000)
    assert torch.allclose(parts, whole, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_inner_products_are_kept_as_well_as_by_a_gaussian(kind):
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 1500, dtype=torch.float64, generator=generator)
    b = 0.5 * a + b
    exact = float(a @ b)
    scale = float(a.norm() * b.norm())

    def errors(make) -> np.ndarray:
        sketched = (make(64, seed).apply(torch.stack([a, b])) for seed in range(300))
        return np.array([float(x @ y) - exact for x, y in sketched]) / scale

    found, reference = errors(kind), errors(GaussianSketch)
    assert abs(found.mean()) < 4 * found.std() / math.sqrt(300)
    assert 0.85 < found.std() / reference.std() < 1.15


@pytest.mark.parametrize("kind", KINDS)
def test_scores_from_a_structured_sketch(kind):
    """The error of U against the exact one falls as 1/sqrt(p), and is that of a Gaussian sketch."""
    generator = torch.Generator().manual_seed(0)
    spectrum = torch.linspace(0, 4, 3000, dtype=torch.float64).mul(-math.log(10)).exp()
    rows = torch.randn(240, 3000, dtype=torch.float64, generator=generator) * spectrum
    train, queries = rows[:80], rows[80:]
    lam = float(train.square().sum(1).mean())
    exact = RidgePath(train).variances(queries, [lam])[0]

    def worst(make, dim: int) -> float:
        values = []
        for seed in range(4):
            sketch = make(dim, seed)
            scores = RidgePath(sketch.apply(train)).variances(sketch.apply(queries), [lam])[0]
            values.append(float(sketch_error(scores, exact, lam).max()))
        return float(np.mean(values))

    dims = [128, 512, 2048]
    errors = [worst(kind, dim) for dim in dims]
    assert -0.7 < np.polyfit(np.log(dims), np.log(errors), 1)[0] < -0.35
    assert errors[1] < 1.5 * worst(GaussianSketch, 512)


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_device_threads_or_precision(kind, device):
    rows = torch.randint(-8, 8, (4, 3000), generator=torch.Generator().manual_seed(0))
    reference = kind(64, seed=2).apply(rows.double())
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        single = kind(64, seed=2).apply(rows.float().to(device)).cpu()
    finally:
        torch.set_num_threads(threads)
    assert torch.allclose(single, reference, rtol=1e-12)


def test_the_numbers_never_change():
    """A .ntk file relies on them for ever."""
    rows = torch.ones(1, 10_000, dtype=torch.float64)
    rows[0, ::3] = 2.0
    assert SparseSignSketch(64, seed=0).apply(rows)[0, :4].tolist() == FROZEN["sparse"]
    assert (SRHTSketch(64, seed=0).apply(rows)[0, :4] * 8).tolist() == FROZEN["srht"]


FROZEN = {"sparse": [1.5, -18.5, 50.5, 23.5], "srht": [84.0, -52.0, -88.0, 102.0]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [0, 7])
def test_impossible_dimensions_are_refused(kind, dim):
    with pytest.raises(ValueError, match="sketch dimension"):
        kind(dim)
