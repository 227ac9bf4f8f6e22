"""What a structure is told about its uncertainty, under the names that every file and calculator uses."""

import numpy as np

from adaptntk.uncertainty.load import Fitted
from adaptntk.uncertainty.ntk import Scores

CALIBRATED_KEYS = ("forces_uncertainty", "energy_uncertainty", "forces_error_bound")


def variance_key(uncertainty: Fitted) -> str:
    """The name of the raw score."""
    return f"{uncertainty.name}_variance"


def uncertainty_entries(uncertainty: Fitted, scores: Scores, index: int, coverage: float) -> dict[str, float]:
    """The raw score U of one structure and, once calibrated, what it means in eV and eV/Å."""
    entries = {variance_key(uncertainty): float(scores.variance[index])}
    if scores.sigma is None or scores.energy_sigma is None or uncertainty.calibration is None:
        return entries
    entries["forces_uncertainty"] = float(scores.sigma[index])
    entries["energy_uncertainty"] = float(scores.energy_sigma[index])
    bound = float(uncertainty.calibration.error_bound(scores.variance[index : index + 1], coverage)[0])
    if np.isfinite(bound):  # a small calibration set bounds nothing at a high coverage
        entries["forces_error_bound"] = bound
    return entries
