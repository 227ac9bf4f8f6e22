import math

import pytest
import torch

from adaptntk.core.blocks import as_blocks
from adaptntk.core.posterior import Posterior, RidgePath
from adaptntk.core.sketch import quality as theory
from adaptntk.core.sketch.gaussian import GaussianSketch
from tests.core.selection.rules import greedy


def test_effective_dimension_is_the_trace(features):
    train, _, lam = features
    K = train @ train.T
    expected = torch.trace(K @ torch.linalg.inv(K + lam * torch.eye(len(K), dtype=torch.float64)))
    assert theory.effective_dimension(train, lam) == pytest.approx(float(expected))
    assert theory.effective_dimension(train.T.contiguous(), lam) == pytest.approx(float(expected))


def test_effective_dimension_lies_between_nothing_and_the_rank(features):
    train, _, _ = features
    assert theory.effective_dimension(train, 1e9) == pytest.approx(0, abs=1e-3)
    assert theory.effective_dimension(train, 1e-14) == pytest.approx(40, abs=1e-3)


def test_gap_and_overlap():
    assert theory.decision_gap(3.0, 1.0, 0.5) == pytest.approx(2 / 5)
    assert theory.jaccard([1, 2, 3], [3, 4, 5]) == pytest.approx(1 / 5)
    assert theory.jaccard([1, 2], [2, 1]) == 1


def sketched_problem(dim):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(300, 4000, dtype=torch.float64, generator=generator)
    rows *= torch.linspace(0, 3, 4000, dtype=torch.float64).mul(-math.log(10)).exp()
    lam = 1e-2 * float(rows[:100].square().sum(1).mean())
    exact = RidgePath(rows[:100]).variances(rows[100:], [lam])[0]
    sketch = GaussianSketch(dim)
    return sketch.apply(rows[:100]), sketch.apply(rows[100:]), exact, lam


def test_halves_estimate_the_error_of_the_whole():
    train, queries, exact, lam = sketched_problem(512)
    measured = theory.advice_from_exact(Posterior.fit(train, lam).variance(queries), exact, lam, 512)
    estimated = theory.advice_from_halves(as_blocks(train), as_blocks(queries), lam)
    assert measured.reference == "exact"
    assert estimated.reference == "split"
    assert estimated.error == pytest.approx(measured.error, rel=0.6)
    assert estimated.rank_correlation < measured.rank_correlation


def test_no_larger_sketch_is_advised_than_one_that_suffices():
    train, queries, exact, lam = sketched_problem(64)
    advice = theory.advice_from_exact(Posterior.fit(train, lam).variance(queries), exact, lam, 64)
    assert advice.dim_for(1.01 * advice.error) == 64


def test_advice_is_kept_by_a_sketch_of_that_size():
    """The p that the advice names really brings the error down to about what was asked for."""
    train, queries, exact, lam = sketched_problem(256)
    advice = theory.advice_from_exact(Posterior.fit(train, lam).variance(queries), exact, lam, 256)
    wanted = advice.error / 2
    train, queries, exact, lam = sketched_problem(advice.dim_for(wanted))
    error = theory.sketch_error(Posterior.fit(train, lam).variance(queries), exact, lam).max()
    assert float(error) == pytest.approx(wanted, rel=0.4)


def test_corollary_a_gap_above_the_error_gives_the_same_batch():
    """Planted candidates with well separated scores: exact and sketched rules take the same ordered batch."""
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(60, 3000, dtype=torch.float64, generator=generator)
    candidates = rows[20:].clone()
    candidates[:5] *= torch.tensor([32.0, 16.0, 8.0, 4.0, 2.0], dtype=torch.float64)[:, None]
    lam = 1.0
    full = greedy(Posterior.fit(rows[:20], lam), candidates, 5)
    sketch = GaussianSketch(1024)
    sketched_posterior = Posterior.fit(sketch.apply(rows[:20]), lam)
    sketched_rows = sketch.apply(candidates)
    exact = Posterior.fit(rows[:20], lam).variance(candidates)
    eps = float(theory.sketch_error(sketched_posterior.variance(sketched_rows), exact, lam).max())
    assert min(full.gaps) > eps
    assert greedy(sketched_posterior, sketched_rows, 5).indices == full.indices
