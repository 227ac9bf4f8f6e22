import numpy as np
import pytest
import torch
from adaptntk.uncertainty.ntk import NTKUncertainty, choose_normalisation
from ase import Atoms

from adaptntk.core.calibration import fit_variance
from adaptntk.core.metrics import force_rmse, spearman
from adaptntk.core.posterior import DualPosterior
from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch
from adaptntk.data.structures import ENERGY, FORCES, reference_forces
from adaptntk.errors import InputError
from adaptntk.features.energy_gradients import extract_features


def errors_of(potential, frames):
    return force_rmse(potential.predict(frames).forces, reference_forces(frames))


def test_scores_follow_the_definition(fitted, parts):
    """Eq. 5 with sketched rows, written out."""
    sketch = GaussianSketch(512)
    train, queries = (extract_features(fitted.potential, parts[name], sketch) for name in ("train", "pool"))
    lam = fitted.ridge.alpha * float(train.square().sum(1).mean())
    C = train.T @ train + lam * torch.eye(512, dtype=torch.float64)
    expected = lam * (queries * torch.linalg.solve(C, queries.T).T).sum(1)
    scores = fitted.score(parts["pool"])
    assert fitted.ridge.lam == pytest.approx(lam)
    assert np.allclose(scores.variance, expected.numpy(), rtol=1e-6)


def test_sigma_is_the_calibrated_scale(fitted, parts):
    valid = fitted.score(parts["valid"])
    expected = fit_variance(valid.variance, errors_of(fitted.potential, parts["valid"]))
    assert fitted.calibration.forces.a == pytest.approx(expected.a, rel=1e-4)
    assert np.allclose(valid.sigma, expected.sigma(valid.variance), rtol=1e-4)
    assert (valid.energy_sigma > 0).all()


def test_uncertainty_says_something_about_the_error(fitted, parts):
    frames = parts["test"]
    assert spearman(fitted.score(frames).variance, errors_of(fitted.potential, frames)) > 0.2


def test_exact_mode_is_the_dual_form(trained, parts, fitted):
    exact = NTKUncertainty.fit(trained, parts["train"], NoSketch())
    assert exact.features.shape[1] == 788
    rows = extract_features(trained, parts["pool"], NoSketch())
    expected = DualPosterior.fit(exact.features, exact.ridge.lam).variance(rows)
    assert np.allclose(exact.score(parts["pool"]).variance, expected.numpy(), rtol=1e-6)
    sketched = NTKUncertainty.fit(trained, parts["train"]).score(parts["pool"]).variance
    assert spearman(sketched, expected.numpy()) > 0.9


def test_condition_lowers_scores_and_leaves_the_original_alone(fitted, parts):
    before = fitted.score(parts["pool"]).variance
    after = fitted.condition(parts["pool"][:5])
    assert (after.score(parts["pool"]).variance <= before + 1e-12).all()
    assert np.array_equal(fitted.score(parts["pool"]).variance, before)
    assert len(after.train_hashes) == len(fitted.train_hashes) + 5


def test_first_pick_is_the_top_score_and_later_scores_are_conditioned(fitted, parts):
    pool = parts["pool"]
    selection = fitted.select(pool, 6)
    scores = fitted.score(pool).variance
    assert selection.indices[0] == int(scores.argmax())
    assert selection.scores[0] == pytest.approx(scores.max(), rel=1e-6)
    conditioned = fitted.condition([pool[i] for i in selection.indices[:5]]).score(pool).variance
    assert selection.scores[5] == pytest.approx(conditioned[selection.indices[5]], rel=1e-6)


def test_training_and_excluded_structures_are_never_picked(fitted, parts):
    pool = [*parts["train"][:10], *parts["pool"]]
    chosen = fitted.select(pool, 12, exclude=parts["pool"][:15]).indices
    assert min(chosen) >= 25
    with pytest.raises(InputError, match="only 15 candidates"):
        fitted.select(pool, 16, exclude=parts["pool"][:15])


def test_ridge_options(trained, parts):
    by_alpha = NTKUncertainty.fit(trained, parts["train"], alpha=1e-2)
    by_lam = NTKUncertainty.fit(trained, parts["train"], lam=by_alpha.ridge.lam)
    assert by_lam.ridge.alpha == pytest.approx(1e-2)
    assert by_lam.calibrate(parts["valid"]).ridge.lam == by_alpha.ridge.lam
    kept = by_alpha.calibrate(parts["valid"], criterion="fixed")
    assert kept.ridge.alpha == pytest.approx(1e-2)
    label_free = by_alpha.calibrate(parts["valid"], criterion="effective_dimension")
    assert label_free.ridge.effective_dimension < len(parts["train"])


def test_a_separate_calibration_set(trained, parts):
    fitted = NTKUncertainty.fit(trained, parts["train"])
    own = fitted.calibrate(parts["valid"], criterion="fixed")
    other = fitted.calibrate(parts["valid"], criterion="fixed", calibration_set=parts["test"])
    assert len(other.calibration.ratios) == len(parts["test"])
    assert other.calibration.forces != own.calibration.forces


def test_normalisation_is_chosen_by_the_training_set(parts):
    water = Atoms("OH2", positions=[[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
    assert choose_normalisation("auto", parts["train"]) == "none"
    assert choose_normalisation("auto", [*parts["train"], water]) == "per_atom"
    assert choose_normalisation("sqrt_n", parts["train"]) == "sqrt_n"


def test_energy_sigma_grows_with_the_size_when_normalised(trained, parts):
    fitted = NTKUncertainty.fit(trained, parts["train"], normalise="per_atom").calibrate(parts["valid"])
    scores = fitted.score(parts["pool"])
    assert np.allclose(scores.energy_sigma, 9 * fitted.calibration.energy.sigma(scores.variance))


def test_sketch_check_against_exact_scores(trained, parts, fitted):
    full = tuple(extract_features(trained, parts[name], NoSketch()) for name in ("train", "valid"))
    queries = fitted.sketch.apply(full[1])
    exact = fitted.check_sketch(queries, full).sketch_advice
    split = fitted.check_sketch(queries).sketch_advice
    assert exact.reference == "exact"
    assert 0 < exact.error < 0.5
    assert split.error == pytest.approx(exact.error, rel=1.0)


@pytest.mark.parametrize(("unit", "factor"), [("kcal/mol", 23.06), ("kJ/mol", 96.5), ("Hartree/Bohr", 1 / 51.42)])
def test_labels_in_other_units_are_noticed(trained, parts, unit, factor):
    """Against a model that predicts well: here its own forces."""
    wrong = []
    for atoms, forces in zip(parts["valid"], trained.predict(parts["valid"]).forces, strict=True):
        copy = atoms.copy()
        copy.arrays[FORCES] = forces * factor
        wrong.append(copy)
    with pytest.raises(InputError, match=f"look like {unit}"):
        NTKUncertainty.fit(trained, parts["train"]).calibrate(wrong)


def test_bad_sets_are_refused(trained, fitted, parts):
    with pytest.raises(InputError, match="training set is empty"):
        NTKUncertainty.fit(trained, [])
    with pytest.raises(InputError, match="also in the training set"):
        fitted.calibrate(parts["train"])
    for count in (1, 3, 9):
        with pytest.raises(InputError, match="at least 10 labelled structures"):
            fitted.calibrate(parts["valid"][:count])
    unlabelled = parts["valid"][0].copy()
    del unlabelled.info[ENERGY]
    with pytest.raises(InputError, match="validation set, frame 11: no REF_energy"):
        fitted.calibrate([*parts["valid"][1:12], unlabelled])
    with pytest.raises(InputError, match="no structures"):
        fitted.score([])
    with pytest.raises(InputError, match="does not know the element"):
        fitted.score([Atoms("Fe")])
