"""The sketches by name."""

from collections.abc import Callable

from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch, Sketch
from adaptntk.core.sketch.structured import SparseSignSketch, SRHTSketch
from adaptntk.errors import InputError
from adaptntk.memory import DEFAULT_BUDGET

_SKETCHES: dict[str, Callable[[int, int, int], Sketch]] = {
    "gaussian": GaussianSketch,
    "srht": lambda dim, seed, memory_budget: SRHTSketch(dim, seed),
    "sparse": lambda dim, seed, memory_budget: SparseSignSketch(dim, seed),
    "none": lambda dim, seed, memory_budget: NoSketch(),
}
SKETCHES = tuple(_SKETCHES)


def make_sketch(kind: str, dim: int, seed: int = 0, memory_budget: int = DEFAULT_BUDGET) -> Sketch:
    """The sketch of that name: ``gaussian``, ``srht``, ``sparse``, or ``none`` for full, unprojected gradients."""
    if kind not in _SKETCHES:
        raise InputError(f"unknown sketch {kind!r}: choose one of {', '.join(SKETCHES)}")
    return _SKETCHES[kind](dim, seed, memory_budget)
