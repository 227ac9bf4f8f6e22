"""Energy and forces of a label in the covariance, and a committee drawn from what they leave open."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from adaptntk.core.ridge import JOINT_ALPHA
from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch
from adaptntk.data.structures import structure_sizes
from adaptntk.errors import InputError
from adaptntk.features.dimension import choose_force_rows, joint_dimension
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.uncertainty.committee import Drawn
from adaptntk.uncertainty.feature_method import NTKOptions
from adaptntk.uncertainty.file import load_fitted, save_fitted
from adaptntk.uncertainty.fit import fit

JOINT = {"features": "joint", "force_rows": 4, "dim": 512}
EXACT = {"features": "joint", "force_rows": 4, "sketch": "none"}


@pytest.fixture(scope="module")
def joint(given):
    return fit(given, "ntk", JOINT | {"committee": 8})


@pytest.fixture(scope="module")
def exact(given):
    return fit(given, "ntk", EXACT)


def dense_scores(exact, train, queries):
    """``lam phi^T (F + lam I)^-1 phi`` with F written out, P x P."""
    feature_map = EnergyGradients(NoSketch(), "per_atom", force_rows=4)
    rows, asked = (feature_map.extract(exact.potential, frames)[:, 0].double() for frames in (train, queries))
    further = feature_map.further(exact.potential, train).flatten(0, 1).double()
    lam = exact.features.posterior.lam
    matrix = rows.T @ rows + further.T @ further
    trace = float(matrix.diagonal().sum())
    matrix.diagonal().add_(lam)
    return lam * (asked * torch.linalg.solve(matrix, asked.T).T).sum(1).numpy(), lam / (trace / len(train))


def test_the_score_is_the_dense_formula(exact, parts):
    expected, alpha = dense_scores(exact, parts["train"], parts["pool"])
    assert np.allclose(exact.score(parts["pool"]).variance, expected, rtol=1e-4)
    assert alpha == pytest.approx(JOINT_ALPHA, rel=1e-6)
    assert exact.features.ridge.alpha == pytest.approx(JOINT_ALPHA, rel=1e-6)


def test_the_sketch_keeps_the_ranks(joint, exact, parts):
    sketched, full = (fitted.score(parts["pool"]).variance for fitted in (joint, exact))
    assert spearmanr(sketched, full)[0] > 0.95
    check = joint.features.sketch_check
    assert check.reference == "exact"
    assert check.rank_correlation > 0.9


def test_forces_lower_the_score(given, exact, parts):
    """Every row that is learnt takes variance away, at the same ridge."""
    alone = fit(given, "ntk", {"features": "energy", "sketch": "none", "lam": exact.features.posterior.lam})
    assert (exact.score(parts["pool"]).variance <= alone.score(parts["pool"]).variance * (1 + 1e-9)).all()


def test_to_condition_is_to_fit_with_more(given, exact, parts, trained):
    new = parts["pool"][:3]
    bench = type(given)([*parts["train"], *new], parts["valid"], potential=trained)
    again = fit(bench, "ntk", EXACT | {"lam": exact.features.posterior.lam})
    later = exact.condition(new)
    queries = parts["pool"][3:]
    assert np.allclose(later.score(queries).variance, again.score(queries).variance, rtol=1e-4)
    assert (later.score(queries).variance <= exact.score(queries).variance * (1 + 1e-9)).all()


def test_a_file_brings_back_scores_and_committee(joint, parts, tmp_path):
    save_fitted(joint, tmp_path / "joint.ntk")
    loaded = load_fitted(tmp_path / "joint.ntk", potential=joint.potential)
    assert np.allclose(loaded.score(parts["pool"]).variance, joint.score(parts["pool"]).variance, rtol=1e-9)
    assert torch.allclose(loaded.method.committee.directions, joint.method.committee.directions, rtol=1e-9)
    assert loaded.method.drawn == joint.method.drawn
    # Few numbers instead of the directions: what is large are the rows.
    assert set(joint.method.state().tensors) == {"blocks", "further"}


def test_members_have_the_variance_of_the_score(given, parts, trained):
    """``phi . d`` over many draws has the variance U, of the energy per atom."""
    # Without validation structures nobody asks so many members about them.
    fitted = fit(type(given)(parts["train"], potential=trained), "ntk", JOINT | {"committee": 400})
    frames = parts["pool"][:8]
    changes = [each.energies for each in fitted.method.committee.changes(frames)]
    spread = np.mean(np.square(changes), axis=1) / structure_sizes(frames) ** 2
    ratio = spread / fitted.score(frames).variance
    # A mean of 400 squares of normal numbers is right to 7 %; that of eight structures together no better.
    assert np.abs(ratio - 1).max() < 0.35
    assert ratio.mean() == pytest.approx(1, abs=0.25)


def test_as_many_dimensions_as_tell_the_rows_apart():
    assert joint_dimension(100, 50_000) == 1024
    assert joint_dimension(1360, 50_000) == 1792
    assert joint_dimension(17_000, 724_240) == 4096
    assert joint_dimension(17_000, 789) == 788


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": "forces"}, "unknown features 'forces': choose one of energy, joint"),
        ({"features": "joint", "force_rows": 0}, "force rows must be 1 to 1000"),
        ({"committee": 1}, "a committee has 2 to 1000 members"),
    ],
)
def test_what_cannot_be_is_refused(given, options, message):
    with pytest.raises(InputError, match=message):
        fit(given, "ntk", options)


def test_where_rounding_drowns_the_changes_members_compute_in_double(given, parts, tmp_path, caplog):
    """So many force rows in so few dimensions leave next to nothing open."""
    caplog.set_level("INFO")
    fitted = fit(given, "ntk", {"features": "joint", "force_rows": 16, "dim": 256, "committee": 4})
    assert fitted.method.drawn.precision == "float64"
    assert "the committee computes in float64" in caplog.text
    assert fitted.potential.dtype == torch.float32
    frames = parts["pool"][:3]
    assert fitted.method.committee.linearity(frames).max() < 1e-2
    alone = [fitted.score_atoms([atoms]).variance[0] for atoms in frames]
    together = fitted.score_atoms(frames).variance
    assert all(np.allclose(a, b, rtol=1e-4) for a, b in zip(alone, together, strict=True))
    save_fitted(fitted, tmp_path / "double.ntk")
    loaded = load_fitted(tmp_path / "double.ntk", potential=fitted.potential)
    assert loaded.method.drawn == fitted.method.drawn


def test_what_is_fitted_if_nothing_is_chosen(fitted, paper):
    assert (fitted.features.feature_map.force_rows, len(fitted.check_committee())) == (16, 16)
    assert len(fitted.features.further)
    assert paper.features.feature_map == EnergyGradients(GaussianSketch(512), "per_atom")
    assert paper.method.committee is None
    assert not paper.asks_committee
    assert not len(paper.features.further)


@pytest.mark.parametrize(("labels", "rows"), [(1, 16), (1000, 16), (1001, 15), (4000, 4), (100_000, 1)])
def test_many_labels_have_fewer_force_rows_each(labels, rows):
    assert choose_force_rows(None, labels) == NTKOptions().rows_of_forces(labels) == rows
    assert choose_force_rows(40, labels) == NTKOptions(force_rows=40).rows_of_forces(labels) == 40
    assert NTKOptions(features="energy", force_rows=40).rows_of_forces(labels) == 0


def test_where_no_committee_can_be_drawn_there_is_none_unless_it_was_asked_for(given, parts, caplog, monkeypatch):
    def refuse(*_):
        raise InputError("no step gives force changes of a committee that are right")

    monkeypatch.setattr(Drawn, "choose", refuse)
    found = fit(given, "ntk", {"force_rows": 2})
    assert found.method.committee is None
    assert found.features.feature_map.force_rows == 2
    assert (found.score(parts["pool"]).sigma > 0).all()
    assert "atoms have no uncertainty and forces are judged by U: no step gives force changes" in caplog.text
    for options in ({"committee": 16}, {"forces_by": "committee"}):
        with pytest.raises(InputError, match="no step gives force changes"):
            fit(given, "ntk", options | {"force_rows": 2})
