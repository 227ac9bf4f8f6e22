"""What a structure's uncertainty is, in numbers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CALIBRATED_KEYS = ("forces_uncertainty", "energy_uncertainty", "forces_error_bound")


@dataclass(frozen=True)
class Scores:
    """One number per structure. Sigmas are standard deviations, present once calibrated.

    Args:
        variance: the raw score U.
        sigma: expected root mean square force error, eV/Å.
        energy_sigma: expected error of the total energy, eV.
    """

    variance: Array
    sigma: Array | None = None
    energy_sigma: Array | None = None
