import json

import numpy as np
import pytest

from adaptntk.core import metrics
from adaptntk.data.structures import FORCES
from adaptntk.errors import InputError
from adaptntk.evaluation import force_errors
from adaptntk.uncertainty.evaluate import evaluate
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.workbench import GivenModel


def test_numbers_are_those_of_the_metrics(fitted, parts):
    result = evaluate(fitted, parts["test"])
    u = fitted.score(parts["test"]).variance
    e = force_errors(fitted.potential.predict(parts["test"]).forces, parts["test"])
    assert result.metrics["spearman"] == pytest.approx(metrics.spearman(u, e), abs=1e-6)
    assert result.metrics["pearson_of_variance"] == pytest.approx(metrics.pearson(u, e), rel=1e-4)
    assert result.metrics["force_rmse"] == pytest.approx(np.sqrt(np.mean(e**2)), rel=1e-4)
    assert result.metrics["ence"] == pytest.approx(metrics.ence(fitted.score(parts["test"]).sigma, e), rel=1e-3)
    low, high = result.metrics["spearman_interval"]
    assert low < result.metrics["spearman"] < high
    observed = np.mean(e <= fitted.calibration.error_bound(u, 0.9))
    assert result.metrics["conformal"]["0.9"]["observed"] == pytest.approx(observed)
    assert len(result.columns["ntk_variance"]) == len(parts["test"])
    assert result.columns["force_error"] == pytest.approx(e.tolist(), rel=1e-4)
    json.dumps(result.metrics, allow_nan=False)
    assert result.metrics["correlation_with_size"] is None


def test_errors_are_those_of_what_the_method_predicts(fit_by_name, parts):
    """Of a committee: of its mean, not of its first member."""
    fitted = fit_by_name("ensemble")
    result = evaluate(fitted, parts["test"])
    mean = force_errors(fitted.assess(parts["test"]).forces, parts["test"])
    assert result.metrics["method"] == "ensemble"
    assert result.columns["force_error"] == pytest.approx(mean.tolist(), rel=1e-4)
    assert "ensemble_variance" in result.columns


def test_coverage_out_of_reach_is_said_not_faked(trained, parts):
    small = fit(GivenModel(parts["train"], parts["valid"][:12], potential=trained), "last_layer")
    coverage = evaluate(small, parts["test"]).metrics["conformal"]["0.95"]
    assert coverage["observed"] is None


def test_unfit_requests(fitted, trained, parts):
    with pytest.raises(InputError, match="not calibrated"):
        evaluate(fit(GivenModel(parts["train"], potential=trained), "last_layer"), parts["test"])
    with pytest.raises(InputError, match="too few"):
        evaluate(fitted, parts["test"][:5])
    strange = parts["test"][3].copy()
    strange.numbers[0] = 17
    with pytest.raises(InputError, match="frame 3: the model does not know the element Cl"):
        evaluate(fitted, [*parts["test"][:3], strange, *parts["test"][4:]])
    with pytest.raises(InputError, match="frame 3: the model does not know the element Cl"):
        fitted.assess([*parts["test"][:3], strange])
    with pytest.raises(InputError, match="no structures"):
        fitted.assess([])
    with pytest.raises(InputError, match="also in the training set"):
        evaluate(fitted, [*parts["test"], parts["train"][0]])
    with pytest.raises(InputError, match="used to calibrate"):
        evaluate(fitted, [*parts["test"], parts["valid"][0]])
    wrong = [atoms.copy() for atoms in parts["test"]]
    for atoms, forces in zip(wrong, trained.predict(parts["test"]).forces, strict=True):
        atoms.arrays[FORCES] = 23.06 * forces
    with pytest.raises(InputError, match="look like kcal/mol"):
        evaluate(fitted, wrong)
