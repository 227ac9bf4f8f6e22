import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch
from adaptntk.core.sketch.registry import SKETCHES, make_sketch
from adaptntk.errors import InputError


def normal(seed, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(SKETCHES),
    half_dim=st.integers(1, 70),
    parameters=st.integers(1, 3001),
    count=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_the_transpose_is_the_adjoint(kind, half_dim, parameters, count, seed):
    """<S x, w> = <x, S^T w> for all x and w."""
    sketch = make_sketch(kind, 2 * half_dim, seed)
    x, w = normal(seed, 3, parameters), normal(seed + 1, count, sketch.dim(parameters))
    directions = sketch.transpose(w, parameters)
    assert directions.shape == (count, parameters)
    assert directions.dtype == torch.float64
    scale = float(x.norm() * w.norm()) * math.sqrt(parameters)
    assert torch.allclose(x @ directions.T, sketch.apply(x) @ w.T, rtol=0, atol=1e-14 * scale)


@pytest.mark.parametrize("kind", SKETCHES)
@pytest.mark.parametrize("parameters", [262_144, 300_007])
def test_the_transpose_of_many_parameters(kind, parameters):
    """Beyond what is drawn at once, of signs and of normal numbers."""
    sketch = make_sketch(kind, 66, 3, memory_budget=0)
    x, w = normal(0, 2, parameters), normal(1, 2, sketch.dim(parameters))
    products = x @ sketch.transpose(w, parameters).T
    assert torch.allclose(products, sketch.apply(x) @ w.T, rtol=0, atol=1e-10 * math.sqrt(parameters))


@pytest.mark.parametrize("kind", SKETCHES)
def test_the_transpose_in_single_precision(kind):
    sketch = make_sketch(kind, 64, 3)
    w = normal(0, 2, sketch.dim(1000))
    single = sketch.transpose(w.float(), 1000)
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), sketch.transpose(w, 1000), rtol=1e-4, atol=1e-5)


def test_a_kept_gaussian_sketch_serves_its_transpose(monkeypatch):
    kept, redrawn = GaussianSketch(4096), GaussianSketch(4096, memory_budget=0)
    rows = normal(0, 2, 4096)
    expected = redrawn.transpose(rows, 9001)
    assert not redrawn._kept
    kept.apply(normal(1, 1, 9001))
    monkeypatch.setattr(kept, "normals", None)
    assert torch.equal(kept.transpose(rows, 9001), expected)


def test_full_gradients_have_as_many_numbers_as_parameters():
    with pytest.raises(InputError, match="7 numbers are no directions of 8 parameters"):
        NoSketch().transpose(normal(0, 2, 7), 8)
