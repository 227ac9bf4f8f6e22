"""Sizes of MACE networks: the paper's, a small one for the CPU, and a toy."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class MACEArchitecture:
    """Size of a ScaleShiftMACE network; all others of its settings are the paper's."""

    family: ClassVar[str] = "mace"
    hidden_irreps: str
    max_ell: int
    correlation: int
    cutoff: float
    radial_mlp: tuple[int, ...]
    readout_irreps: str = "16x0e"
    interactions: int = 2
    bessel_functions: int = 8
    polynomial_cutoff: int = 5


PAPER = MACEArchitecture("128x0e + 128x1o", max_ell=3, correlation=3, cutoff=6.0, radial_mlp=(64, 64, 64))
TINY = MACEArchitecture("4x0e + 4x1o", max_ell=1, correlation=2, cutoff=4.0, radial_mlp=(8,), readout_irreps="4x0e")
SMALL = MACEArchitecture("16x0e + 16x1o", max_ell=2, correlation=2, cutoff=5.0, radial_mlp=(32, 32))
