"""How networks are trained: recipes by purpose, the paper's, and the one of before."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from adaptntk.data.labels import parse_energies
from adaptntk.errors import InputError
from adaptntk.models.family import Architecture
from adaptntk.models.registry import DEFAULT_FAMILY, find_family

SCHEDULES = ("settle", "cosine", "constant")
DEFAULT_PRESET = "standard"


@dataclass(frozen=True)
class Recipe:
    """How a network is trained, by AdamW.

    Args:
        steps, epochs: the length, as one of the two. With the schedule ``settle`` a training may end earlier.
        schedule: of the learning rate. ``settle``: constant until the validation error is flat, or until what is left
            is just enough for the end, then (where it is flat, from where it became so) down to zero (see
            ``schedule.py``). ``cosine``: down to zero along a
            cosine. ``constant`` (paper).
        batch_size: structures in a batch; None for as many as have about ``batch_atoms`` atoms together: forces teach,
            and a large structure has many.
        warm_up: steps over which the learning rate rises at the beginning.
        slows_after: steps after which it falls with one over the root of the steps, before ``settle`` brings it to
            zero: a high rate learns fast, a low one generalises better where labels are few. 0 for a constant rate.
        anneal: share of all steps in which ``settle`` brings the rate to zero.
        patience: steps before which ``settle`` does not ask whether the validation error is flat: a few odd structures
            in a small validation set may rest while all others are still learnt.
        extensions: how often ``settle`` doubles the steps when they are used up while the validation error still falls.
        average: the weights that are validated and saved are a moving average over about this share of the steps so
            far; 0 for the weights themselves.
        energy_weight, forces_weight: of the two mean squared errors.
        stress_weight: of the mean squared error of the virial per atom (stress x volume / atoms), where the stress is
            labelled; 0 to learn nothing from it (paper).
        last_energy_weight: that of the energies while ``settle`` brings the rate to zero: a second stage as MACE
            has it. Forces teach a network its shape; once that stands, energies cost them little.
        per_atom_energy: energy error per atom (as MACE does) rather than of the total.
        element_energies: subtract an energy per element before scale and shift, needed when compositions differ;
            otherwise only the mean energy per atom (paper).
        e0s: which energies: of isolated atoms, by element (``{"H": -13.6, ...}``, eV). None for those of the isolated
            atoms in the training set or, where it has none, for least squares around the mean; () for least squares
            always.
        force_scale: scale the output by the root mean square force (as MACE does) rather than by the standard
            deviation of the energy per atom (paper).
        centre_energies: after the training, move the constant of the energy so that the mean error per atom over
            the training set is zero. With so small an energy weight the optimiser leaves it wrong for long;
            forces and gradient features do not depend on it. Off in the paper's recipe.
        gradient_clip: largest norm of a step's gradient; 0 for none (paper).
        weight_decay: of all parameters, or of those that the family chooses if ``chosen_decay`` (as MACE does).
        memory: decay of AdamW's mean of squared gradients. With few labels 0.999 remembers longer than it should.
        dropout: rate of dropout in the last readout while training; 0 for none.
    """

    architecture: Architecture
    learning_rate: float
    schedule: str = "settle"
    steps: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    batch_atoms: int = 48
    warm_up: int = 0
    slows_after: int = 0
    anneal: float = 0.4
    patience: int = 0
    extensions: int = 0
    average: float = 0.0
    energy_weight: float = 0.01
    forces_weight: float = 0.99
    stress_weight: float = 0.0
    last_energy_weight: float | None = None
    per_atom_energy: bool = True
    element_energies: bool = True
    e0s: Mapping[Any, float] | Sequence[tuple[int, float]] | None = None
    force_scale: bool = True
    centre_energies: bool = True
    gradient_clip: float = 10.0
    weight_decay: float = 0.01
    chosen_decay: bool = False
    memory: float = 0.999
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.e0s:  # kept in an order, and so that nobody can change them
            object.__setattr__(self, "e0s", tuple(sorted(parse_energies(dict(self.e0s), "e0s").items())))
        for name in ("steps", "epochs", "batch_size", "batch_atoms", "learning_rate"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name.replace('_', ' ')} must be positive, not {value}")
        if (self.steps is None) == (self.epochs is None):
            raise InputError("a training needs a number of steps or of epochs, and not both")
        if self.schedule not in SCHEDULES:
            raise InputError(f"unknown schedule {self.schedule!r}: choose one of {', '.join(SCHEDULES)}")

    def lasting(self, steps: int | None = None, epochs: int | None = None) -> "Recipe":
        """The same with another length, if one is given."""
        return self if steps is None and epochs is None else replace(self, steps=steps, epochs=epochs)

    def restarted(self, lower: bool = True, shorter: bool = True) -> "Recipe":
        """For a network that was trained before: a lower rate and fewer steps, if the schedule is one that settles.

        At the full rate it forgets more than it learns (``python -m benchmarks starts``).
        """
        if self.schedule != "settle":
            return self
        found = replace(self, learning_rate=_RESTART_RATE * self.learning_rate) if lower else self
        lengths = {name: getattr(self, name) for name in ("steps", "epochs")}
        changed = {name: max(1, round(_RESTART_LENGTH * count)) for name, count in lengths.items() if count}
        return replace(found, **changed) if shorter else found

    def settings(self) -> dict[str, Any]:
        """All of it, as plain values. What is as it was before it could be chosen is left out."""
        chosen = asdict(self)
        defaults = {
            "steps": None,
            "batch_atoms": 48,
            "warm_up": 0,
            "slows_after": 0,
            "patience": 0,
            "anneal": 0.4,
            "extensions": 0,
            "average": 0.0,
        }
        defaults |= {
            "e0s": None,
            "stress_weight": 0.0,
            "last_energy_weight": None,
            "chosen_decay": False,
            "memory": 0.999,
        }
        if self.schedule != "settle":
            chosen["cosine"] = chosen.pop("schedule") == "cosine"
        return {name: value for name, value in chosen.items() if name not in defaults or value != defaults[name]}


# What suits a network that was trained before, of a recipe's rate and of its length.
_RESTART_RATE, _RESTART_LENGTH = 0.3, 0.25
_SIZES: Mapping[str, Architecture] = find_family(DEFAULT_FAMILY).architectures
_OF_THE_PAPER: Any = {"element_energies": False, "force_scale": False, "centre_energies": False, "gradient_clip": 0.0}
# Chosen by time to accuracy: ``python -m benchmarks training``.
_STANDARD = Recipe(
    _SIZES["standard"],
    learning_rate=3e-2,
    steps=20_000,
    warm_up=20,
    slows_after=300,
    patience=5_000,
    average=0.05,
    energy_weight=0.1,
    stress_weight=0.1,
    last_energy_weight=3.0,
    weight_decay=5e-7,
    chosen_decay=True,
    memory=0.99,
)
PRESETS = {
    # A minute of one core for a small molecule.
    "fast": replace(_STANDARD, architecture=_SIZES["fast"], steps=3_000),
    # For 50 to 500 labels: until they are used up.
    "standard": _STANDARD,
    "paper": Recipe(_SIZES["paper"], 1e-4, "constant", epochs=500, batch_size=16, **_OF_THE_PAPER),
    # The recipe of before, to compare with.
    "small": Recipe(_SIZES["small"], 1e-2, "cosine", epochs=80, batch_size=8),
    # A toy: seconds, to try things out.
    "tiny": Recipe(_SIZES["tiny"], 3e-2, "cosine", epochs=30, batch_size=5),
}


def find_preset(name: str, epochs: int | None = None, steps: int | None = None) -> Recipe:
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
    return recipe.lasting(steps, epochs)
