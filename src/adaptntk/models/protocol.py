"""What a potential must offer, whatever network is inside."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from ase import Atoms
from ase.data import chemical_symbols
from numpy.typing import NDArray
from torch import Tensor

from adaptntk.errors import InputError
from adaptntk.progress import Progress, silent

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Predictions:
    """What the potential says of a list of structures; eV and Å.

    ``atom_energies`` and ``node_features`` are None when the network has no such thing.
    """

    energies: Array
    forces: list[Array]
    atom_energies: list[Array] | None = None
    node_features: list[Array] | None = None


@dataclass(frozen=True)
class SinglePoint:
    """What the potential says of one structure; eV and Å.

    Args:
        stress: 3 x 3, eV/Å^3; None where the structure is not periodic in all directions, or the network has none.
        gradient: ``dE/dtheta`` (1 x P), where it was asked for.
    """

    energy: float
    forces: Array
    stress: Array | None = None
    gradient: Tensor | None = None


class Potential(Protocol):
    """A trained network that maps a structure to an energy.

    Adapters are thin, and `adaptntk.testing.check_potential` tells whether one keeps this contract.
    """

    description: str
    fingerprint: str
    """SHA-256 of the model file, or of the weights of a model that never was a file."""
    source: str | None
    """Path of the model file, where there is one."""

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def species(self) -> frozenset[int] | None:
        """Atomic numbers the network knows, or None when it takes any."""

    def parameters(self) -> list[tuple[str, Tensor]]:
        """Names and tensors of all trainable parameters, in the order of the gradient's columns."""

    def graph(self, atoms: Atoms) -> Any:
        """Everything about one structure that is worth computing once (its neighbour list)."""

    def energies(self, graphs: Sequence[Any]) -> Tensor:
        """Total energies (one per graph) as a differentiable function of the parameters."""

    def predict(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Predictions:
        """Energies and forces, detached."""


def parameter_count(potential: Potential) -> int:
    """P, the length of the full gradient."""
    return sum(tensor.numel() for _, tensor in potential.parameters())


def parameters_hash(potential: Potential) -> str:
    """SHA-256 of the names and shapes of the parameters: the meaning of the gradient's columns."""
    listing = [f"{name} {tuple(tensor.shape)}" for name, tensor in potential.parameters()]
    return hashlib.sha256("\n".join(listing).encode()).hexdigest()


def energy_gradients(potential: Potential, graphs: Sequence[Any]) -> Tensor:
    """Rows ``dE(x)/dtheta`` (b x P), all at once if the potential knows how, else one by one.

    A potential knows if it has a method ``energy_gradients(graphs)``, which may return None for "not this network".
    """
    batched = getattr(potential, "energy_gradients", None)
    rows = batched(graphs) if batched is not None else None
    return rows if rows is not None else energy_gradients_one_by_one(potential, graphs)


def energy_gradients_one_by_one(potential: Potential, graphs: Sequence[Any]) -> Tensor:
    """Rows ``dE(x)/dtheta`` (b x P), one backward pass per structure.

    A parameter that an energy does not depend on (the readout of another head) gets zeros.
    """
    parameters = [tensor for _, tensor in potential.parameters()]
    rows = torch.zeros(len(graphs), sum(p.numel() for p in parameters), dtype=potential.dtype, device=potential.device)
    for row, graph in zip(rows, graphs, strict=True):
        energy = potential.energies([graph])[0]
        gradients = torch.autograd.grad(energy, parameters, allow_unused=True)
        start = 0
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                row[start : start + parameter.numel()] = gradient.reshape(-1)
            start += parameter.numel()
    return rows


def single_point(potential: Potential, atoms: Atoms, gradient: bool = False) -> SinglePoint:
    """Energy and forces of one structure, with the gradient over the parameters if it is wanted.

    A potential that can do both in one pass has a method ``single_point(atoms, gradient)``.
    """
    own = getattr(potential, "single_point", None)
    if own is not None:
        return own(atoms, gradient)
    predicted = potential.predict([atoms])
    row = energy_gradients(potential, [potential.graph(atoms)]) if gradient else None
    return SinglePoint(float(predicted.energies[0]), predicted.forces[0], gradient=row)


def check_species(potential: Potential, structures: Sequence[Atoms], name: str) -> None:
    """Refuse structures with elements the network was not built for."""
    if potential.species is None:
        return
    # A file that was read once knows its elements: no need to read it again to find that all are known.
    elements = getattr(structures, "species", None)
    if elements is not None and elements <= potential.species:
        return
    for index, atoms in enumerate(structures):
        unknown = set(atoms.numbers.tolist()) - potential.species
        if unknown:
            symbols = ", ".join(chemical_symbols[number] for number in sorted(unknown))
            known = ", ".join(chemical_symbols[number] for number in sorted(potential.species))
            raise InputError(
                f"{name}, frame {index}: the model does not know the element {symbols} (it knows {known}); "
                "remove the frame or use another model"
            )


def choose_device(name: str = "auto") -> torch.device:
    """The device of that name; ``auto`` is a CUDA device if there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from None
    if device.type == "mps":
        raise InputError("device 'mps' cannot be used: it has no float64, which the scores need; use cpu")
    return device
