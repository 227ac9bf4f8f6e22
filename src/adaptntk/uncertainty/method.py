"""What every uncertainty method offers, so that all are fitted, scored and compared in the same way."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from adaptntk.core.metrics import Array
from adaptntk.core.question import AUTO
from adaptntk.data.structures import Structures
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.models.protocol import Potential, Predictions
from adaptntk.progress import Progress, silent
from adaptntk.representation import short_repr
from adaptntk.uncertainty.stored import Stored

if TYPE_CHECKING:
    from adaptntk.uncertainty.committee import Committee
    from adaptntk.uncertainty.feature_model import FeatureModel
    from adaptntk.uncertainty.workbench import Workbench

CALIBRATED_KEYS = (
    "forces_uncertainty", "energy_uncertainty", "forces_error_bound", "energy_error_bound", "beyond_calibration",
)  # fmt: skip
LONE_ATOMS = "lone_atoms"
OF_ATOMS = "forces_uncertainty_per_atom"
ENERGIES_OF_ATOMS = "energies_uncertainty"
ATOM_KEYS = (OF_ATOMS, ENERGIES_OF_ATOMS)
Kind = Literal["variance", "std"]
Flags = NDArray[np.bool_]


@short_repr
@dataclass(frozen=True)
class Assessment:
    """Scores of structures, and what the model says that the method is defined on.

    Args:
        score: one number per structure, larger where the error is expected to be larger.
        kind: whether the score is meant as a variance or as a standard deviation.
        energies, forces: predictions of the method's own model (the mean of a committee, for example).
    """

    score: Array
    kind: Kind
    energies: Array
    forces: list[Array]

    @property
    def variance(self) -> Array:
        """The score as a variance, which ``sigma^2 = a u + b^2`` needs."""
        return self.score**2 if self.kind == "std" else self.score

    @classmethod
    def of_committee(cls, predictions: Sequence[Predictions]) -> "Assessment":
        """Of members or draws: the standard deviation of the force components, averaged; and the mean of all."""
        stacked = [np.stack(forces) for forces in zip(*(each.forces for each in predictions), strict=True)]
        spread = np.array([forces.std(axis=0, ddof=1).mean() for forces in stacked])
        energies = np.mean([each.energies for each in predictions], axis=0)
        return cls(spread, "std", energies, [forces.mean(axis=0) for forces in stacked])


@short_repr
@dataclass(frozen=True)
class Scores:
    """One number per structure. Sigmas are standard deviations, present once calibrated with such labels.

    Args:
        variance: the raw score U.
        sigma: expected root mean square force error, eV/Å; NaN for structures of lone atoms only.
        energy_sigma: expected error of the total energy without the offset that all energies share, eV; likewise.
        beyond: whether U is larger than any that was calibrated, or some atoms are alone and in the calibration none
            were: sigma is then an extrapolation.
        lone_atoms: how many atoms have no neighbour within the cutoff of the model.
        lone: whether all of them: the model sees separate atoms, and its score (about 0) says nothing.
        force_score: the score that speaks of forces, where it is not U (see ``core/question.py``) and was asked for.
        atoms: of single atoms, where that was asked for.
    """

    variance: Array
    sigma: Array | None = None
    energy_sigma: Array | None = None
    beyond: Flags | None = None
    lone_atoms: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    lone: Flags = field(default_factory=lambda: np.zeros(0, bool))
    force_score: Array | None = None
    atoms: "AtomScores | None" = None

    @property
    def of_forces(self) -> Array:
        """The score that speaks of forces."""
        return self.variance if self.force_score is None else self.force_score


@short_repr
@dataclass(frozen=True)
class AtomScores:
    """Of each structure one number per atom.

    Args:
        variance: of a force component, averaged over the three of them, as the committee has it.
        sigma: expected root mean square error of a force component of the atom, eV/Å; None if not calibrated. Its
            square, averaged over the atoms, is what the squared force error of the structure is expected to be.
        energy_sigma: how far the atom's part of the energy differs between members, eV, in the scale of the energies of
            structures: no label tells an atom's energy. None where the model has no such parts.
    """

    variance: list[Array]
    sigma: list[Array] | None = None
    energy_sigma: list[Array] | None = None


@short_repr
@dataclass(frozen=True)
class MethodState:
    """What a fitted method is made of: all that a file must hold to bring it back.

    Args:
        networks: the trained networks it asks, the model itself first; of these the file holds path and SHA-256.
        tensors: arrays by name.
        settings: numbers and strings by name.
        memory_budget: bytes that the method may use, on this machine; not written down.
    """

    networks: tuple[Potential, ...]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    memory_budget: int = DEFAULT_BUDGET


@dataclass(frozen=True)
class NoOptions:
    """Of methods that leave nothing to choose."""


class Method(Protocol):
    """An uncertainty method. `fit` and `restore` make one."""

    name: str
    Options: Any
    """A frozen dataclass: what may be chosen when it is fitted, each with a default."""
    uses_training_labels: bool
    """Whether `fit` needs the labels of the training structures, or trains networks with them."""
    stored: Stored
    """What its `state` holds: types, ranges and shapes that a file is checked against."""

    @property
    def potential(self) -> Potential:
        """The model itself."""

    @property
    def features(self) -> "FeatureModel | None":
        """The features behind the scores, with which every rule can select; None where there are only scores."""

    @property
    def committee(self) -> "Committee | None":
        """Directions drawn from the posterior over the parameters, which tell of single atoms; None without them."""

    @property
    def question(self) -> str:
        """Which score is to speak of forces where there is a committee: a name of `QUESTIONS`, or ``auto``."""

    @property
    def energy_power(self) -> float:
        """Energy errors are calibrated over the number of atoms to this power."""

    @classmethod
    def fit(cls, bench: "Workbench", rng: np.random.Generator, options: Any) -> Self:
        """Make one from training and validation structures; ``rng`` for what is random and not a network."""

    def assess(self, structures: Structures, batch_size: int = 16, progress: Progress = silent) -> Assessment:
        """Scores and predictions."""

    def state(self) -> MethodState:
        """What it is made of."""

    @classmethod
    def restore(cls, state: MethodState) -> Self:
        """The method with that state."""


class ScoresOnly:
    """A method without features, as a frozen dataclass: inherit from it.

    Its fields are its state: potentials, tensors, and numbers or strings. Where scores follow from one prediction of
    its ``potential``, it writes `score` and says of which ``kind`` they are; else `assess`.
    """

    Options: Any = NoOptions
    uses_training_labels = True
    stored = Stored()
    energy_power = 1.0
    features = None
    committee = None
    question = AUTO
    kind: Kind = "variance"

    def score(self, structures: Structures, predicted: Predictions) -> Array:
        """One number per structure."""
        raise NotImplementedError

    def assess(self, structures: Structures, batch_size: int = 16, progress: Progress = silent) -> Assessment:
        """Scores and predictions."""
        predicted = self.potential.predict(structures, batch_size, progress)  # type: ignore[attr-defined]
        return Assessment(self.score(structures, predicted), self.kind, predicted.energies, predicted.forces)

    def state(self) -> MethodState:
        """The fields, by what they are."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        settings = {name: value for name, value in values.items() if isinstance(value, int | float | str)}
        networks = [value for name, value in values.items() if name not in tensors and name not in settings]
        return MethodState(tuple(networks), tensors, settings)

    @classmethod
    def restore(cls, state: MethodState) -> Self:
        """From the fields."""
        known = state.tensors | state.settings
        networks = iter(state.networks)
        names = [item.name for item in fields(cls)]  # type: ignore[arg-type]
        return cls(**{name: known[name] if name in known else next(networks) for name in names})
