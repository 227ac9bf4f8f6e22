import json

import numpy as np
import pytest
from adaptntk.uncertainty.ntk import NTKUncertainty

from adaptntk.core import metrics
from adaptntk.core.metrics import force_rmse
from adaptntk.data.structures import reference_forces
from adaptntk.errors import InputError
from adaptntk.evaluation import evaluate


def test_numbers_are_those_of_the_metrics(fitted, parts):
    result = evaluate(fitted, parts["test"])
    u = fitted.score(parts["test"]).variance
    e = force_rmse(fitted.potential.predict(parts["test"]).forces, reference_forces(parts["test"]))
    assert result.metrics["spearman"] == pytest.approx(metrics.spearman(u, e), abs=1e-6)
    assert result.metrics["pearson_of_variance"] == pytest.approx(metrics.pearson(u, e), rel=1e-4)
    assert result.metrics["force_rmse"] == pytest.approx(np.sqrt(np.mean(e**2)), rel=1e-4)
    low, high = result.metrics["spearman_interval"]
    assert low < result.metrics["spearman"] < high
    observed = np.mean(e <= fitted.calibration.error_bound(u, 0.9))
    assert result.metrics["conformal"]["0.9"]["observed"] == pytest.approx(observed)
    assert len(result.columns["ntk_variance"]) == len(parts["test"])
    json.dumps(result.metrics, allow_nan=False)
    assert result.metrics["correlation_with_size"] is None


def test_coverage_out_of_reach_is_said_not_faked(trained, parts):
    small = NTKUncertainty.fit(trained, parts["train"]).calibrate(parts["valid"][:12])
    coverage = evaluate(small, parts["test"]).metrics["conformal"]["0.95"]
    assert coverage["observed"] is None


def test_unfit_requests(fitted, trained, parts):
    with pytest.raises(InputError, match="not calibrated"):
        evaluate(NTKUncertainty.fit(trained, parts["train"]), parts["test"])
    with pytest.raises(InputError, match="too few"):
        evaluate(fitted, parts["test"][:5])
    with pytest.raises(InputError, match="also in the training set"):
        evaluate(fitted, [*parts["test"], parts["train"][0]])
    with pytest.raises(InputError, match="used to calibrate"):
        evaluate(fitted, [*parts["test"], parts["valid"][0]])
