"""What `adaptntk score` and `select` write into structures."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from adaptntk.data.structures import Structures
from adaptntk.progress import Progress, silent
from adaptntk.uncertainty.fitted import Fitted
from adaptntk.uncertainty.method import ATOM_KEYS, CALIBRATED_KEYS

PREDICTED_ENERGY, PREDICTED_FORCES = "predicted_energy", "predicted_forces"
PICK_KEYS = ("pick", "pick_score", "pick_criterion", "pool_index")
# Of a structure that was scored before: what is not written anew must not stand beside what is.
_OURS = (PREDICTED_ENERGY, *PICK_KEYS, *CALIBRATED_KEYS, "beyond_calibration", "lone_atoms")
# Structures whose energies and forces are predicted, and held, together.
_TOGETHER = 256

Predicted = tuple[float, NDArray[np.float64]]


def predictions(fitted: Fitted, structures: Structures, progress: Progress = silent) -> Iterator[Predicted]:
    """Energy (eV) and forces (eV/Å) of each structure, of that which the uncertainty speaks of: a committee's mean."""
    parts = range(0, len(structures), _TOGETHER)
    for start in progress(parts, "energies and forces", len(parts)):
        frames = structures[start : start + _TOGETHER]
        said = fitted.assess(frames) if fitted.features is None else fitted.potential.predict(frames)
        yield from zip(said.energies, said.forces, strict=True)


def marked(
    atoms: Atoms,
    entries: Mapping[str, Any],
    predicted: Predicted,
    of_atoms: Mapping[str, NDArray[np.float64]] | None = None,
) -> Atoms:
    """A copy with these entries, and with what the model predicts beside its labels."""
    energy, forces = predicted
    found = atoms.copy()
    found.info = {key: value for key, value in atoms.info.items() if key not in _OURS} | dict(entries)
    found.info[PREDICTED_ENERGY] = float(energy)
    found.arrays[PREDICTED_FORCES] = np.asarray(forces, dtype=float)
    for key in ATOM_KEYS:
        found.arrays.pop(key, None)
    for key, values in (of_atoms or {}).items():
        found.arrays[key] = np.asarray(values, dtype=float)
    return found
