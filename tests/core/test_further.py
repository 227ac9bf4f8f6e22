"""Rows beyond the blocks of the structures: all that matters of them is what they add to F."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from adaptntk.core.blocks import TensorBlocks, as_blocks
from adaptntk.core.posterior import DualPosterior, Posterior, RidgePath, fit_posterior
from adaptntk.core.ridge import choose_ridge, fixed_ridge
from adaptntk.core.rows import compressed, gram, inner_products
from adaptntk.core.sketch.quality import advice_from_halves, effective_dimension, halves, halves_of_rows
from adaptntk.errors import InputError
from tests.core.selection.rules import blocks, naive_variance

FORMS = [Posterior, DualPosterior]


def problem(seed, structures, further, width):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(structures + further + 9, width, generator=generator, dtype=torch.float64)
    rows *= torch.logspace(0, -1.5, width, dtype=torch.float64)
    return rows[:structures], rows[structures:-9], rows[-9:]


problems = st.builds(
    problem,
    seed=st.integers(0, 999),
    structures=st.integers(1, 12),
    further=st.integers(0, 40),
    width=st.integers(2, 25),
)
ridges = st.floats(1e-5, 10.0)


@settings(max_examples=60, deadline=None)
@given(data=problems, lam=ridges)
def test_all_forms_equal_the_definition(data, lam):
    train, further, queries = data
    expected = naive_variance(torch.cat([train, further]), queries, lam)
    fits = [form.fit(train, lam, further) for form in FORMS]
    for posterior in (*fits, fit_posterior(train, lam, further)):
        assert torch.allclose(posterior.variance(queries), expected, rtol=1e-8, atol=1e-11)
    path = RidgePath(train, further)
    assert torch.allclose(path.variances(queries, [lam])[0], expected, rtol=1e-7, atol=1e-11)
    cross = fits[0].covariance(queries, queries)
    assert torch.allclose(cross, fits[1].covariance(queries, queries), rtol=1e-8, atol=1e-10)
    for posterior in fits:
        assert torch.allclose(queries @ posterior.representers(queries).T, cross, rtol=1e-8, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(data=problems, lam=ridges)
def test_the_effective_dimension_needs_no_eigenvalues(data, lam):
    train, further, _ = data
    expected = RidgePath(train, further).effective_dimension(lam)
    assert effective_dimension(train, lam, further) == expected
    for form in FORMS:
        assert form.fit(train, lam, further).effective_dimension() == pytest.approx(expected, rel=1e-7, abs=1e-9)
    # What the definition says, tr[F C^-1].
    matrix = gram([train, further])
    inverse = torch.linalg.inv(matrix + lam * torch.eye(len(matrix), dtype=torch.float64))
    assert float((matrix * inverse).sum()) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(data=problems, lam=ridges)
def test_compression_changes_nothing(data, lam):
    train, further, queries = data
    small = compressed(further)
    assert len(small) == min(further.shape)
    scale = float(further.square().sum())
    assert torch.allclose(gram([small]), gram([further]), rtol=0, atol=1e-13 * scale)
    before, after = RidgePath(train, further), RidgePath(train, small)
    assert after.mean_squared_norm == pytest.approx(before.mean_squared_norm, rel=1e-12)
    assert after.directions == before.directions
    for form in FORMS:
        expected = form.fit(train, lam, further).variance(queries)
        assert torch.allclose(form.fit(train, lam, small).variance(queries), expected, rtol=1e-8, atol=1e-11)


def test_rows_that_do_not_span_the_space_are_compressed_too():
    rows = problem(0, 1, 4, 6)[1]
    repeated = rows.repeat(10, 1)
    assert torch.allclose(gram([compressed(repeated)]), 10 * rows.T @ rows, rtol=0, atol=1e-12)
    assert compressed(rows) is rows


@settings(max_examples=40, deadline=None)
@given(data=problems, lam=ridges)
def test_more_rows_never_raise_a_variance(data, lam):
    train, further, queries = data
    for form in FORMS:
        least = form.fit(train, lam).variance(queries)
        for count in {0, len(further) // 2, len(further)}:
            now = form.fit(train, lam, further[:count]).variance(queries)
            assert (now <= least + 1e-11).all()
        learnt = form.fit(train, lam, further).condition(queries[:2], queries[2:5]).variance(queries)
        assert (learnt <= now + 1e-11).all()


@settings(max_examples=40, deadline=None)
@given(data=problems, lam=ridges)
def test_conditioning_is_refitting(data, lam):
    train, further, queries = data
    new, more, rest = queries[:2], queries[2:6], queries[6:]
    for form in FORMS:
        expected = form.fit(torch.cat([train, new]), lam, torch.cat([further, more]))
        step_by_step = form.fit(train, lam).condition(new, more)
        if len(further):
            step_by_step = step_by_step.condition(further)
        assert torch.allclose(step_by_step.variance(rest), expected.variance(rest), rtol=1e-8, atol=1e-11)
        at_once = form.fit(train, lam, further).condition(new, more)
        assert torch.allclose(at_once.variance(rest), expected.variance(rest), rtol=1e-8, atol=1e-11)
        assert at_once.effective_dimension() == pytest.approx(expected.effective_dimension(), rel=1e-8)


@pytest.mark.parametrize("form", FORMS)
def test_further_rows_may_come_by_structure(form):
    train, queries = blocks(0, 8, rows=2), blocks(2, 30, rows=2, asked=2)
    further = blocks(1, 8, rows=3).tensor
    expected = form.fit(train, 0.1, further.flatten(0, 1)).variance(queries)
    assert torch.equal(form.fit(train, 0.1, further).variance(queries), expected)
    assert torch.allclose(RidgePath(train, further).variances(queries, [0.1])[0], expected, rtol=1e-9)
    none = form.fit(train, 0.1).variance(queries)
    assert torch.equal(form.fit(train, 0.1, further[:, :0]).variance(queries), none)


@pytest.mark.parametrize("form", FORMS)
def test_single_precision_is_worked_on_in_double(form):
    train, further, queries = (rows.float() for rows in problem(0, 5, 20, 600))
    expected = naive_variance(torch.cat([train, further]).double(), queries.double(), 0.1)
    assert torch.allclose(form.fit(train, 0.1, further.double()).variance(queries), expected, rtol=1e-8)
    assert compressed(further.T).dtype == torch.float64


@pytest.mark.parametrize("form", FORMS)
def test_draws_know_the_further_rows(form):
    """Of 20,000 draws: the variance of phi . w is U; a sample variance has a relative deviation of sqrt(2/n)."""
    train, further, queries = problem(3, 4, 5, 12)
    posterior = form.fit(train, 0.2, further)
    found = (posterior.draw(20_000, seed=0) @ queries.T).square().mean(0)
    assert torch.allclose(found, posterior.variance(queries), rtol=5 * (2 / 20_000) ** 0.5)


def test_the_ridge_is_relative_to_all_rows_of_a_structure(features):
    train, candidates, lam = features
    further = candidates[:90]
    path = RidgePath(train, further)
    trace = float(train.square().sum() + further.square().sum())
    assert path.lam(0.1) == pytest.approx(0.1 * trace / len(train))
    found = fixed_ridge(path, lam)
    assert found.alpha == pytest.approx(lam * len(train) / trace)
    assert found.effective_dimension == pytest.approx(path.effective_dimension(lam), rel=1e-7)
    # 60 rows and, of the 90 further ones, as many as they have columns.
    choice = choose_ridge(path, "effective_dimension", None, None, None)
    assert choice.reason == "d_lam nearest 33 (n/3)"


def test_a_path_keeps_its_latest_posterior(features):
    train, candidates, lam = features
    path = RidgePath(train, candidates[:9])
    posterior = path.posterior(lam)
    assert path.posterior(lam) is posterior
    assert path.posterior(2 * lam).lam == 2 * lam
    expected = fit_posterior(train, lam, candidates[:9]).variance(candidates)
    assert torch.equal(posterior.variance(candidates), expected)


def test_halves_of_a_sketch_with_further_rows(features):
    train, candidates, lam = features
    further, queries = candidates[:30], candidates[100:]
    for half, more in zip(halves(as_blocks(train)), halves_of_rows(further), strict=True):
        expected = torch.cat([half[:][:, 0], more])
        assert torch.equal(halves_of_rows(torch.cat([train, further]))[half.first > 0], expected)
    alone = advice_from_halves(as_blocks(train[:5]), as_blocks(queries), lam)
    together = advice_from_halves(as_blocks(train[:5]), as_blocks(queries), lam, further)
    joined = advice_from_halves(as_blocks(torch.cat([train[:5], further])), as_blocks(queries), lam)
    assert together.error == pytest.approx(joined.error, rel=1e-7)
    assert together.error != pytest.approx(alone.error, rel=1e-2)


@pytest.mark.parametrize("form", [*FORMS, fit_posterior])
def test_bad_further_rows_are_told(form):
    fit = getattr(form, "fit", form)
    train = torch.ones(4, 3)
    with pytest.raises(InputError, match="further rows have 2 numbers, those of the structures 3"):
        fit(train, 0.1, torch.ones(4, 2))
    with pytest.raises(InputError, match="row 1 are not finite"):
        fit(train, 0.1, torch.tensor([[1.0, 2.0, 3.0], [float("nan"), 0.0, 0.0]]))


def test_products_in_blocks(monkeypatch):
    """Blocks and conversions of any size give the same sums."""
    monkeypatch.setattr("adaptntk.core.rows._CONVERTED", 5000)
    monkeypatch.setattr("adaptntk.core.rows._GRAM_BLOCK", 7)
    rows = torch.randn(30, 1001, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    narrow = rows[:, :40]
    assert torch.allclose(gram([narrow, narrow[:3]]), narrow.T @ narrow + narrow[:3].T @ narrow[:3], rtol=1e-12)
    assert torch.allclose(inner_products(rows, rows[:4]), rows @ rows[:4].T, rtol=1e-11)
    train, queries = TensorBlocks(rows[:20].view(5, 4, -1)), rows[20:]
    expected = naive_variance(train, queries, 0.1)
    assert torch.allclose(DualPosterior.fit(train, 0.1).variance(queries), expected, rtol=1e-9)
