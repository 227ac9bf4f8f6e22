"""What a family of networks offers: how its files are known and read, and how new networks are built and trained."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, cast

import torch
from ase import Atoms
from torch import Tensor

from adaptntk.errors import InputError, ModelError
from adaptntk.models.protocol import ModulePotential, Potential


class Architecture(Protocol):
    """The size of a network: a frozen dataclass of numbers, strings and tuples that knows the name of its family."""

    family: ClassVar[str]


def resized(architecture: Architecture, sizes: Mapping[str, float]) -> Architecture:
    """The same network but for these sizes, by the names in ``sizes.py``, if its family knows how."""
    if not sizes:
        return architecture
    change = getattr(architecture, "resized", None)
    if change is None:
        raise InputError(f"sizes of networks of the family {architecture.family!r} cannot be chosen, only its presets")
    return cast(Architecture, change(**sizes))


@dataclass(frozen=True)
class EnergyReference:
    """Where a network's energy scale begins: ``E = sum E0 + sum (scale x output + shift)``, over the atoms."""

    atomic_numbers: tuple[int, ...]
    isolated_energies: tuple[float, ...]
    scale: float
    shift: float


class Outputs(NamedTuple):
    """What a network says of a batch while it is trained.

    Args:
        energies: interaction energies, one per graph, eV.
        forces: all atoms x 3, eV/Å.
        stress: graphs x 3 x 3, eV/Å^3, if it was asked for; it means nothing for graphs that are not periodic.
    """

    energies: Tensor
    forces: Tensor
    stress: Tensor | None = None


Loss = Callable[[Outputs, Tensor, Tensor], Tensor]
"""Of what a network says, which structures these are, and the weight of their energies."""
Step = Callable[[Tensor, Tensor], tuple[Tensor, list[Tensor | None]]]
"""From structures of a training set and the weight of their energies to the loss and its gradient over the weights."""


class Trainable(ModulePotential, Protocol):
    """A potential that `adaptntk.train` can train; its capabilities say ``trainable``.

    The parameters of its module are optimised, and the state of that is what a checkpoint holds.
    Energies count from those of the isolated atoms: in float32 the total energy of a molecule is too large for the
    differences that are to be learnt.
    """

    @property
    @abstractmethod
    def isolated_energies(self) -> Mapping[int, float]:
        """By atomic number, in eV, as the network stores them."""

    @property
    def training_remarks(self) -> Sequence[str]:
        """What whoever trains this very network should know before."""
        return ()

    @abstractmethod
    def training_outputs(self, graphs: Sequence[Any], training: bool, stress: bool = False) -> Outputs:
        """Energies and forces, differentiable if ``training``; the stress is asked for where capabilities have it."""

    def captured_step(self, graphs: Sequence[Any], count: int, loss: Loss) -> Step | None:
        """A faster way to the gradient of a loss, for batches of ``count`` of these graphs; None where there is none.

        To make one takes as long as hundreds of steps.
        """
        return None

    @abstractmethod
    def interaction_energies(self, graphs: Sequence[Any]) -> Tensor:
        """The energies alone."""

    @abstractmethod
    def shift_energies(self, per_atom: float) -> None:
        """Add a constant to the energy of every atom."""

    def decayed_parameters(self) -> list[torch.nn.Parameter]:
        """Those that weight decay should keep small: weights that multiply, and are not fixed by a normalisation."""
        return list(self.module.parameters())

    @abstractmethod
    def save(self, path: str | Path) -> None:
        """Write a file that the family loads, atomically, on whatever device the network is."""


class Family(ABC):
    """A kind of networks, under the name by which it is registered."""

    name: ClassVar[str]
    files: ClassVar[str]  # what its files are called, for messages
    architectures: ClassVar[Mapping[str, Architecture]] = {}  # by preset, as far as there are

    @abstractmethod
    def recognises(self, path: Path) -> bool:
        """Whether this is a file of the family, there or not; must be quick, and run nothing of the file."""

    @abstractmethod
    def load(self, path: Path, device: torch.device, dtype: torch.dtype | None, head: str | None) -> Potential:
        """The potential in a file, with ``dtype`` None as it is stored; must run nothing of the file."""

    def load_trusted(self, path: Path, device: torch.device, dtype: torch.dtype | None, head: str | None) -> Potential:
        """The same for a file that the user trusts: code that it brings may be run."""
        return self.load(path, device, dtype, head)

    def build(
        self, architecture: Any, reference: EnergyReference, structures: Sequence[Atoms], dtype: torch.dtype, seed: int
    ) -> Trainable:
        """An untrained network with weights drawn from ``seed``; the global generator is left as it was."""
        raise ModelError(f"networks of the family {self.name!r} cannot be trained here")


def as_trainable(potential: Potential) -> Trainable:
    """The same potential, if it can be trained."""
    if not potential.capabilities.trainable:
        name = potential.source or potential.description
        raise ModelError(f"{name}: this model cannot be trained here, only used as it is")
    return cast(Trainable, potential)
