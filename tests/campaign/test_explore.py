"""Which frames of an exploration become candidates."""

import numpy as np

from adaptntk.campaign.config import Explore
from adaptntk.campaign.steps.explore import not_lost
from adaptntk.core.calibration import Calibration, VarianceCalibration

# The conformal threshold at a coverage of 0.9 is 1.
CALIBRATION = Calibration(
    VarianceCalibration(1.0, 0.1), VarianceCalibration(1.0, 0.1), np.linspace(0.5, 1.5, 99), np.arange(1, 100) / 90
)


def test_candidates_of_a_model_that_is_lost(ethanol_frames):
    frames = [atoms.copy() for atoms in ethanol_frames[:20]]
    scores = np.random.default_rng(0).permutation(20)
    for atoms, score in zip(frames, scores, strict=True):
        atoms.info["ntk_variance"] = float(score)

    def kept(lost, wanted):
        config = Explore(coverage=0.9, lost=lost, min_distance=0.0)
        return [atoms.info["ntk_variance"] for atoms in not_lost(frames, config, CALIBRATION, set(), wanted)]

    assert kept(9.5, wanted=10) == [score for score in scores if score <= 9]
    # Too few to label: the least uncertain of the others as well.
    assert kept(3.5, wanted=6) == [0, 1, 2, 3, 4, 5]
    assert kept(1.0, wanted=30) == list(range(20))
