"""What a labeler is, and what is checked before and after each label."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from adaptntk.data.geometry import fused_atoms
from adaptntk.data.structures import check_structure
from adaptntk.errors import AdaptNTKError

Array = NDArray[np.float64]


class LabelError(AdaptNTKError):
    """A structure could not be labelled."""


class Labeler(Protocol):
    """Computes what a structure is learnt from."""

    def label(self, atoms: Atoms) -> tuple[float, Array]:
        """Energy in eV and forces in eV/Å. Whatever it raises is the story of the failure."""


@dataclass(frozen=True)
class LabelerSpec:
    """Which labeler, and how it is set up: plain values, so that a worker anywhere can build it.

    Args:
        kind: a name of `LABELERS`, or the dotted name of a class of yours.
        settings: its keyword arguments.
        time_limit: seconds after which a calculation is ended.
        attempts: how often a structure is tried that fails; one that exceeds the time limit is not tried again.
        closest: atoms nearer than this fraction of the sum of their covalent radii are not calculated.
        largest_force: a label with a larger force on an atom, eV/Å, is not believed.
        folder: where modules, and files that a command names, are looked for besides the current folder.
    """

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    time_limit: float = 3600.0
    attempts: int = 2
    closest: float = 0.5
    largest_force: float = 100.0
    folder: str | None = None


def check_geometry(atoms: Atoms, spec: LabelerSpec) -> None:
    """Refuse what no calculation should be spent on."""
    check_structure(atoms, "the structure")
    fused = fused_atoms(atoms, spec.closest)
    if fused is not None:
        raise LabelError(f"{fused}: fused atoms are not calculated")


def check_label(atoms: Atoms, energy: float, forces: Array, spec: LabelerSpec) -> None:
    """Refuse what no calculation should have returned."""
    if np.shape(forces) != (len(atoms), 3):
        raise LabelError(f"the forces have the shape {np.shape(forces)} instead of {(len(atoms), 3)}")
    if not np.isfinite(energy) or not np.isfinite(forces).all():
        raise LabelError("the energy or a force is NaN or infinite")
    largest = float(np.linalg.norm(forces, axis=1).max())
    if largest > spec.largest_force:
        raise LabelError(f"a force of {largest:.0f} eV/Å is larger than the {spec.largest_force:.0f} that are believed")
