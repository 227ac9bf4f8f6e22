import numpy as np
import pytest

from adaptntk.core.error_model import LogErrorRegression
from adaptntk.errors import InputError


def test_the_error_model_is_monotone_and_leaves_noise_alone():
    rng = np.random.default_rng(0)
    covariates = rng.normal(size=(100, 4))
    signal = 0.5 * covariates[:, 0] - 0.4 * covariates[:, 1] - 0.3 * covariates[:, 3]
    errors = np.exp(signal + 0.2 * rng.normal(size=100) - 3)
    monotone = [True, True, True, False]
    fitted = LogErrorRegression.fit(covariates, errors, monotone, monotone, rng)
    assert fitted.weights[0] == pytest.approx(0.5, abs=0.1)
    assert fitted.weights[1] == 0  # the data want less error with more of a score: refused
    assert fitted.weights[3] == pytest.approx(-0.3, abs=0.1)
    more = covariates + np.array([1.0, 0.0, 0.0, 0.0])
    assert (fitted.predict(more) > fitted.predict(covariates)).all()
    # Far outside, a score still counts, and what may count either way does not.
    far = np.tile(covariates.mean(axis=0), (3, 1))
    far[1, 0], far[2, 3] = 100.0, 100.0
    edge = far.copy()
    edge[2, 3] = covariates[:, 3].max()
    assert fitted.predict(far)[1] > 1e3 * fitted.predict(far)[0]
    assert fitted.predict(far)[2] == fitted.predict(edge)[2]
    # Unregularised and unconstrained it is ordinary least squares.
    loose = LogErrorRegression.solve(covariates, np.log(errors), (np.zeros(4, dtype=bool),) * 2, ridge=1e-12)
    design = np.column_stack([np.ones(100), covariates])
    expected = np.exp(design @ np.linalg.lstsq(design, np.log(errors), rcond=None)[0])
    assert np.allclose(loose.predict(covariates), expected)
    with pytest.raises(InputError, match="at least 10"):
        LogErrorRegression.fit(covariates[:5], errors[:5], monotone, monotone, rng)
