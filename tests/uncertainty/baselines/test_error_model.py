import numpy as np
import pytest

from adaptntk.uncertainty.baselines.error_model import COVARIATES
from adaptntk.uncertainty.file import load_fitted, save_fitted
from adaptntk.uncertainty.fit import fit


def test_the_energy_of_another_molecule_decides_nothing(fit_by_name):
    """Far out of the range of the validation set it counts no more than at its edge."""
    regression = fit_by_name("error_model").method.regression
    edge = np.tile(regression.means, (3, 1))
    edge[1, 2], edge[2, 2] = regression.highest[2], regression.highest[2] + 500.0
    scores = regression.predict(edge)
    assert scores[2] == scores[1] < 10 * scores[0]


def test_the_score_is_a_regression_on_four_numbers(fit_by_name, parts):
    method, frames = fit_by_name("error_model").method, parts["test"][:5]
    ntk, last_layer = (fit_by_name(name).score(frames).variance for name in ("ntk", "last_layer"))
    predicted = method.potential.predict(frames)
    force = [np.log(np.sqrt(np.mean(forces**2))) for forces in predicted.forces]
    covariates = np.column_stack([np.log(ntk), np.log(last_layer), predicted.energies / 9, force])
    assert covariates.shape[1] == len(COVARIATES)
    assert method.assess(frames).score == pytest.approx(method.regression.predict(covariates), rel=1e-3)


def test_a_committee_takes_the_place_of_the_last_layer(given, parts, tmp_path):
    fitted, frames = fit(given, "error_model", {"committee": 4}), parts["test"][:5]
    method = fitted.method
    joint = fit(given, "ntk", {"features": "joint", "committee": 4})
    assert method.last_layer is None
    predicted = method.potential.predict(frames)
    force = [np.log(np.sqrt(np.mean(forces**2))) for forces in predicted.forces]
    spread = joint.method.committee.spread(frames).mean_forces
    covariates = np.column_stack([np.log(joint.score(frames).variance), np.log(spread), predicted.energies / 9, force])
    assert method.assess(frames).score == pytest.approx(method.regression.predict(covariates), rel=2e-2)
    save_fitted(fitted, tmp_path / "model.uq")
    loaded = load_fitted(tmp_path / "model.uq", potential=fitted.potential)
    assert loaded.method.last_layer is None
    assert loaded.assess(frames).score == pytest.approx(fitted.assess(frames).score, rel=1e-4)
