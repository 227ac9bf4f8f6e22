import numpy as np

from adaptntk.uncertainty.baselines.random_numbers import RandomNumbers


def test_seed_and_structure_decide(tiny, ethanol_frames):
    frames = ethanol_frames[:100]
    scores = RandomNumbers(tiny, 0).assess(frames).score
    assert ((scores >= 0) & (scores < 1)).all()
    assert abs(scores.mean() - 0.5) < 0.1
    assert np.array_equal(RandomNumbers(tiny, 0).assess(frames[50:60]).score, scores[50:60])
    assert not np.array_equal(RandomNumbers(tiny, 1).assess(frames[50:60]).score, scores[50:60])
