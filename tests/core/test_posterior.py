import pytest
import torch
from hypothesis import given, settings, strategies as st

from adaptntk.core.blocks import TensorBlocks, join
from adaptntk.core.posterior import (
    WIDEST_PRIMAL,
    DualPosterior,
    Posterior,
    RidgePath,
    as_primal,
    fit_posterior,
    principal_plane,
    sequential_variances,
)
from adaptntk.errors import IndefiniteMatrixError
from tests.core.selection.rules import blocks, naive_variance

FORMS = [Posterior, DualPosterior]


def problem(seed, n, m, p):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(n + m, p, generator=generator, dtype=torch.float64)
    rows *= torch.logspace(0, -1.5, p, dtype=torch.float64)
    return rows[:n], rows[n:]


problems = st.builds(
    problem, seed=st.integers(0, 999), n=st.integers(1, 30), m=st.integers(2, 12), p=st.integers(2, 25)
)
ridges = st.floats(1e-5, 10.0)


@settings(max_examples=40, deadline=None)
@given(data=problems, lam=ridges)
def test_primal_and_dual_equal_the_definition(data, lam):
    train, queries = data
    expected = naive_variance(train, queries, lam)
    for form in (Posterior, DualPosterior):
        assert torch.allclose(form.fit(train, lam).variance(queries), expected, rtol=1e-8, atol=1e-11)
    assert torch.allclose(RidgePath(train).variances(queries, [lam])[0], expected, rtol=1e-8, atol=1e-11)


@settings(max_examples=30, deadline=None)
@given(data=problems, lam=ridges)
def test_covariance_agrees_between_forms_and_with_the_variance(data, lam):
    train, queries = data
    primal, dual = Posterior.fit(train, lam), DualPosterior.fit(train, lam)
    cross = primal.covariance(queries, queries)
    assert torch.allclose(cross, dual.covariance(queries, queries), rtol=1e-8, atol=1e-10)
    assert torch.allclose(cross.diagonal(), primal.variance(queries), rtol=1e-10)
    for posterior in (primal, dual):
        assert torch.allclose(queries @ posterior.representers(queries).T, cross, rtol=1e-8, atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(data=problems, lam=ridges)
def test_rank_one_formula_conditioning_and_refitting_agree(data, lam):
    """Eq. 8 against `condition` against a fit from scratch."""
    train, queries = data
    new, rest = queries[:1], queries[1:]
    for form in (Posterior, DualPosterior):
        before = form.fit(train, lam)
        formula = before.variance(rest) - before.covariance(rest, new)[:, 0] ** 2 / (lam + before.variance(new))
        scratch = form.fit(torch.cat([train, new]), lam).variance(rest)
        assert torch.allclose(before.condition(new).variance(rest), scratch, rtol=1e-8, atol=1e-10)
        assert torch.allclose(formula, scratch, rtol=1e-7, atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(data=problems, lam=ridges)
def test_variance_never_rises_when_a_structure_is_added(data, lam):
    train, queries = data
    before = Posterior.fit(train, lam)
    assert (before.condition(queries[:2]).variance(queries) <= before.variance(queries) + 1e-12).all()


@settings(max_examples=30, deadline=None)
@given(data=problems, lam=ridges)
def test_order_of_updates_does_not_matter(data, lam):
    train, queries = data
    a, b = queries[:1], queries[1:2]
    start = Posterior.fit(train, lam)
    ab, ba = start.condition(a).condition(b), start.condition(b).condition(a)
    together = start.condition(queries[:2])
    assert torch.allclose(ab.variance(queries), ba.variance(queries), rtol=1e-10, atol=1e-13)
    assert torch.allclose(ab.variance(queries), together.variance(queries), rtol=1e-10, atol=1e-13)


def test_small_ridge_gives_the_projector(features):
    """Eq. 3: as lam goes to 0, U becomes the squared distance from the span of the training rows."""
    _, candidates, _ = features
    train, queries = candidates[:20], candidates[100:130]
    q, _ = torch.linalg.qr(train.T)
    residual = queries - queries @ q @ q.T
    scores = DualPosterior.fit(train, 1e-12).variance(queries)
    assert torch.allclose(scores, residual.square().sum(1), rtol=1e-6, atol=1e-10)


def test_bounded_by_the_prior(features):
    train, queries, lam = features
    scores = Posterior.fit(train, lam).variance(queries)
    assert (scores > 0).all()
    assert (scores <= queries.square().sum(1)).all()


def test_ridge_path_for_a_grid(features):
    train, queries, _ = features
    for rows in (train, train[:15]):
        path = RidgePath(rows)
        lams = [path.lam(alpha) for alpha in (1e-6, 1e-3, 1e-1)]
        for lam, scores in zip(lams, path.variances(queries, lams), strict=True):
            assert torch.allclose(scores, naive_variance(rows, queries, lam), rtol=1e-7, atol=1e-10)


def test_relative_ridge_is_the_mean_squared_norm(features):
    train, _, _ = features
    assert RidgePath(train).lam(0.1) == pytest.approx(0.1 * float((train.T @ train).trace()) / len(train))


def test_the_cheaper_form_is_chosen():
    rows = torch.ones(32, 64, dtype=torch.float64)
    assert isinstance(fit_posterior(rows, 1.0), Posterior)
    assert isinstance(fit_posterior(rows[:31], 1.0), DualPosterior)
    assert isinstance(fit_posterior(rows[:8].view(2, 4, 64), 1.0, rows[:24]), Posterior)
    assert isinstance(fit_posterior(rows[:8].view(2, 4, 64), 1.0, rows[:23]), DualPosterior)
    assert isinstance(fit_posterior(torch.ones(10, 5000), 1.0), DualPosterior)


def test_the_same_in_primal_form(features):
    train, queries, lam = features
    for dual in (DualPosterior.fit(train, lam), DualPosterior.fit(train, lam, queries[:5]).condition(queries[5:7])):
        assert torch.allclose(as_primal(dual).variance(queries), dual.variance(queries), rtol=1e-9)
    primal = Posterior.fit(train, lam)
    assert as_primal(primal) is primal
    assert as_primal(DualPosterior.fit(torch.ones(2, WIDEST_PRIMAL + 1), lam)) is None


def test_a_score_is_never_lost_to_rounding(features):
    """Of a training row with a ridge far below rounding, the difference of the dual form is nothing but noise."""
    train, _, _ = features
    rows = 1e3 * train[:20]
    scores = DualPosterior.fit(rows, 1e-14).variance(rows)
    assert (scores > 0).all()
    assert (scores < 1e-8).all()
    assert (RidgePath(rows).variances(rows, [1e-14]) > 0).all()


def test_float32_rows_are_handled_in_float64(features):
    train, queries, lam = features
    scores = Posterior.fit(train.float(), lam).variance(queries.float())
    assert scores.dtype == torch.float64
    expected = naive_variance(train.float().double(), queries.float().double(), lam)
    assert torch.allclose(scores, expected, rtol=1e-8)


def test_values_are_not_mutated(features):
    train, queries, lam = features
    posterior = Posterior.fit(train, lam)
    before = posterior.variance(queries)
    posterior.condition(queries[:3])
    assert torch.equal(posterior.variance(queries), before)


def test_a_numerically_singular_matrix_is_named_as_such():
    rows = torch.ones(50, 8, dtype=torch.float64) * 1e6
    with pytest.raises(IndefiniteMatrixError, match="larger alpha or lam"):
        Posterior.fit(rows, 1e-12)


@pytest.mark.parametrize(
    ("rows", "lam", "message"),
    [
        (torch.zeros(3), 1.0, "rows or blocks of rows"),
        (torch.zeros(3, 2), 0.0, "lam and alpha must be positive"),
        (torch.tensor([[1.0, 2.0], [float("nan"), 0.0]]), 1.0, "row 1 are not finite"),
    ],
)
def test_bad_input_is_told_apart(rows, lam, message):
    with pytest.raises(ValueError, match=message):
        Posterior.fit(rows, lam)


def test_principal_plane_keeps_the_largest_spread():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    rows *= torch.tensor([9.0, 4.0, 1.0, 0.5, 0.1, 0.1], dtype=torch.float64)
    expected = torch.linalg.svdvals(rows - rows.mean(0))[:2]
    for shown in (rows, torch.cat([rows, torch.zeros(40, 60, dtype=torch.float64)], dim=1)):
        plane = torch.from_numpy(principal_plane(shown))
        assert torch.allclose(plane.norm(dim=0), expected, rtol=1e-8)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("asked", [1, 2, 3])
def test_the_score_of_a_structure_is_the_sum_over_the_rows_asked_about(form, asked):
    train, queries = blocks(0, 8), blocks(1, 30, asked=asked)
    expected = naive_variance(train, queries, 0.1)
    assert torch.allclose(form.fit(train, 0.1).variance(queries), expected, rtol=1e-10)
    assert torch.allclose(RidgePath(train).variances(queries, [0.1, 1.0])[0], expected, rtol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_conditioning_on_blocks_is_refitting_with_them(form):
    train, new, queries = blocks(0, 8), blocks(1, 4), blocks(2, 30, asked=2)
    before = form.fit(train, 0.1)
    together = form.fit(join(train, new.tensor), 0.1).variance(queries)
    assert torch.allclose(before.condition(new).variance(queries), together, rtol=1e-10)
    assert (together <= before.variance(queries) + 1e-12).all()
    # In whatever order they come.
    one_by_one = before.condition(new.tensor[2:]).condition(new.tensor[:2])
    assert torch.allclose(one_by_one.variance(queries), together, rtol=1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("asked", [1, 3])
def test_sequential_variances_are_those_of_refitting_after_each(form, asked):
    train, picks = blocks(0, 8), blocks(1, 6, asked=asked)
    posterior = form.fit(train, 0.05)
    expected = []
    for index in range(len(picks)):
        now = posterior.condition(picks.tensor[:index]) if index else posterior
        expected.append(float(now.variance(TensorBlocks(picks.tensor[index : index + 1], asked))))
    assert sequential_variances(posterior, picks).tolist() == pytest.approx(expected, rel=1e-9)
