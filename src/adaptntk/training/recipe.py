"""How networks are trained: the paper's recipe, one for the CPU, and a toy."""

from dataclasses import dataclass, replace
from typing import Any

from adaptntk.errors import InputError
from adaptntk.models.family import Architecture
from adaptntk.models.registry import DEFAULT_FAMILY, find_family


@dataclass(frozen=True)
class Recipe:
    """How a network is trained, by AdamW.

    Args:
        cosine: let the learning rate fall to zero along a cosine; constant otherwise (paper).
        energy_weight, forces_weight: of the two mean squared errors.
        per_atom_energy: energy error per atom (as MACE does) rather than of the total.
        element_energies: subtract a least-squares energy per element before scale and shift, needed when compositions
            differ; otherwise only the mean energy per atom (paper).
        force_scale: scale the output by the root mean square force (as MACE does) rather than by the standard
            deviation of the energy per atom (paper).
        centre_energies: after the training, move the constant of the energy so that the mean error per atom over
            the training set is zero. With so small an energy weight the optimiser leaves it wrong for long;
            forces and gradient features do not depend on it. Off in the paper's recipe.
        gradient_clip: largest norm of a step's gradient; 0 for none (paper).
        dropout: rate of dropout in the last readout while training; 0 for none.
    """

    architecture: Architecture
    epochs: int
    batch_size: int
    learning_rate: float
    cosine: bool
    energy_weight: float = 0.01
    forces_weight: float = 0.99
    per_atom_energy: bool = True
    element_energies: bool = True
    force_scale: bool = True
    centre_energies: bool = True
    gradient_clip: float = 10.0
    weight_decay: float = 0.01
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "learning_rate"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name.replace('_', ' ')} must be positive, not {getattr(self, name)}")


_SIZES = find_family(DEFAULT_FAMILY).architectures
_OF_THE_PAPER: Any = {"element_energies": False, "force_scale": False, "centre_energies": False, "gradient_clip": 0.0}
PRESETS = {
    "paper": Recipe(_SIZES["paper"], epochs=500, batch_size=16, learning_rate=1e-4, cosine=False, **_OF_THE_PAPER),
    "small": Recipe(_SIZES["small"], epochs=80, batch_size=8, learning_rate=1e-2, cosine=True),
    # A toy: seconds, to try things out.
    "tiny": Recipe(_SIZES["tiny"], epochs=30, batch_size=5, learning_rate=3e-2, cosine=True),
}


def find_preset(name: str, epochs: int | None = None) -> Recipe:
    """The recipe of that name, with another length if wanted; ``family:name`` for networks of another family."""
    family, _, preset = name.rpartition(":")
    if preset not in PRESETS:
        raise InputError(f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}")
    recipe = PRESETS[preset]
    if family:
        sizes = find_family(family).architectures
        if preset not in sizes:
            raise InputError(f"the family {family!r} has no preset {preset!r}: it has {', '.join(sizes) or 'none'}")
        recipe = replace(recipe, architecture=sizes[preset])
    return recipe if epochs is None else replace(recipe, epochs=epochs)
