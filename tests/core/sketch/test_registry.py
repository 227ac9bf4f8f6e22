import pytest

from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch
from adaptntk.core.sketch.registry import SKETCHES, make_sketch
from adaptntk.errors import InputError


def test_sketches_by_name():
    for kind in SKETCHES:
        sketch = make_sketch(kind, 64, 3)
        assert sketch.kind == kind
        assert make_sketch(**sketch.spec(100)) == sketch
    assert make_sketch("srht", 64, 3) != make_sketch("sparse", 64, 3)
    assert make_sketch("srht", 64, 3) != make_sketch("srht", 64, 4)
    assert make_sketch("gaussian", 64, 3) == GaussianSketch(64, 3)
    assert make_sketch("none", 64) == NoSketch()


def test_an_unknown_sketch():
    with pytest.raises(InputError, match="unknown sketch"):
        make_sketch("fourier", 64)
