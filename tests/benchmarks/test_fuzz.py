"""``python -m benchmarks fuzz``: the same cases from the same seed, and a few hundred of them."""

import pytest
from benchmarks.fuzz.run import KINDS, describe, fuzz


@pytest.mark.long
def test_nothing_breaks_it():
    found = fuzz(seed=2026, numbers=range(300))
    assert not any(result.failures for result in found), describe(found, 2026, 0.0)
    assert {result.kind for result in found} == set(KINDS)
