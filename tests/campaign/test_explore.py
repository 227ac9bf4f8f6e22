"""Which frames of an exploration become candidates."""

import numpy as np

from adaptntk.campaign.config import Explore
from adaptntk.campaign.steps.explore import least_lost, not_lost
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

    def kept(lost):
        return not_lost(frames, Explore(coverage=0.9, lost=lost, min_distance=0.0), CALIBRATION, set())

    assert [atoms.info["ntk_variance"] for atoms in kept(9.5).taken] == [score for score in scores if score <= 9]
    # However few there are: nothing beyond the ceiling tells the error of what a simulation meets.
    few = kept(3.5)
    assert [atoms.info["ntk_variance"] for atoms in few.taken] == [score for score in scores if score <= 3]
    assert str(few) == "20 frames: 4 taken, 16 lost (beyond 3.5 times the alarm)"
    # But something must be learnt: the least uncertain of the others as well.
    learnt = [atoms.info["ntk_variance"] for atoms in least_lost(few.taken, frames, set(), 0.0, 6)]
    assert learnt[:4] == [atoms.info["ntk_variance"] for atoms in few.taken]
    assert learnt[4:] == [4, 5]
