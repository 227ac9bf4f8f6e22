import time

import pytest

from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch
from adaptntk.errors import InputError
from adaptntk.features import streaming
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.features.estimate import Estimate
from adaptntk.memory import DEFAULT_BUDGET


def test_it_is_about_right(tiny, ethanol_frames):
    feature_map = EnergyGradients(GaussianSketch(64))

    def right() -> bool:
        began = time.perf_counter()
        feature_map.extract(tiny, ethanol_frames)
        taken = time.perf_counter() - began
        estimate = feature_map.estimate(tiny, ethanol_frames, DEFAULT_BUDGET)
        return taken / 10 < estimate.seconds < taken * 10

    estimate = feature_map.estimate(tiny, ethanol_frames, DEFAULT_BUDGET)
    assert estimate.structures == 140
    assert any(right() for _ in range(5))  # other work on the machine may disturb one of them
    assert "140 structures x 788 parameters" in str(estimate)


def test_force_rows_are_counted(tiny, ethanol_frames):
    """2 K + 1 gradients of a training structure, and K more rows to keep."""
    feature_map, taught = EnergyGradients(GaussianSketch(64), force_rows=8), ethanol_frames[:100]
    estimates = [feature_map.estimate(tiny, ethanol_frames, DEFAULT_BUDGET, taught=some) for some in ((), taught)]
    assert [estimate.further for estimate in estimates] == [0, 800]
    assert estimates[1].memory - estimates[0].memory == 800 * 64 * 8 + (256 - 140) * 788 * 8
    assert "140 structures x 788 parameters, with 800 force rows: about" in str(estimates[1])

    def dearer() -> bool:
        none, some = (feature_map.estimate(tiny, ethanol_frames, DEFAULT_BUDGET, taught=t) for t in ((), taught))
        return 4 < some.seconds / none.seconds < 36  # (140 + 2 * 8 * 100) / 140 = 12.4, without the projection

    assert any(dearer() for _ in range(5))
    with pytest.raises(InputError, match="learn fewer force rows"):
        feature_map.estimate(tiny, ethanol_frames, 2**20, taught=ethanol_frames * 5).check(2**20)


def test_exact_features_that_do_not_fit_are_refused(tiny, ethanol_frames):
    estimate = EnergyGradients(NoSketch()).estimate(tiny, ethanol_frames, 10_000)
    with pytest.raises(InputError, match="raise --memory, or use --sketch gaussian"):
        estimate.check(10_000)


def test_sketched_features_that_do_not_fit_belong_into_a_store(tiny, ethanol_frames):
    feature_map, many = EnergyGradients(GaussianSketch(64)), ethanol_frames * 20
    budget = 2**20
    with pytest.raises(InputError, match="keep the features on disk with --store"):
        feature_map.estimate(tiny, many, budget).check(budget)
    feature_map.estimate(tiny, many, budget, kept=False).check(budget)


@pytest.mark.parametrize("gibibytes", [1, 4, 16])
@pytest.mark.parametrize("parameters", [10**4, 724_240, 4_700_000, 9_000_000])
def test_any_sketched_model_fits_the_budget(tiny, ethanol_frames, monkeypatch, parameters, gibibytes):
    """Foundation-size models must not be refused: the sketch is then drawn again instead of kept."""
    monkeypatch.setattr(streaming, "parameter_count", lambda potential: parameters)
    budget = gibibytes * 2**30
    feature_map = EnergyGradients(GaussianSketch(512, memory_budget=budget // 2))
    estimate = feature_map.estimate(tiny, ethanol_frames * 10, budget)
    estimate.check(budget)
    assert estimate.memory <= 1.1 * budget
    assert (estimate.remark is None) == feature_map.sketch.fits(parameters)


def test_in_words():
    assert str(Estimate(1000, 10**6, 125.0, 2**30, "")) == (
        "1,000 structures x 1,000,000 parameters: about 2 min 5 s, 1.00 GiB"
    )
    assert str(Estimate(9, 788, 0.037, 2**20, "")).endswith("about 37 ms, less than 0.01 GiB")
