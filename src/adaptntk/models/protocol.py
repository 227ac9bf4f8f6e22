"""What a potential must offer, whatever network is inside."""

import copy
import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import torch
from ase import Atoms
from ase.data import chemical_symbols
from numpy.typing import NDArray
from torch import Tensor

from adaptntk.data.structures import structure_species
from adaptntk.errors import InputError, ModelError
from adaptntk.progress import Progress, silent
from adaptntk.representation import short_repr

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Capabilities:
    """What a potential can do beyond energies, forces and gradients one by one.

    Args:
        batched_gradients: of many structures at once, rather than by a loop.
        single_pass: energy, forces and gradient of a structure from one pass through the network.
        stress: of structures that are periodic in all directions, in `SinglePoint`.
        node_features: invariant features of every atom, in `Predictions`.
        atom_energies: the energy of every atom, in `Predictions`.
        dropout: it can be sampled by dropout (``with_dropout``).
        trainable: it is a `Trainable`: `adaptntk.train` can go on from it.
    """

    batched_gradients: bool = False
    single_pass: bool = False
    stress: bool = False
    node_features: bool = False
    atom_energies: bool = False
    dropout: bool = False
    trainable: bool = False


@short_repr
@dataclass(frozen=True)
class Predictions:
    """What the potential says of a list of structures; eV and Å.

    Args:
        atom_energies: where the capabilities say so.
        node_features: too; atoms x features, those that do not turn with the structure.
        stress: where it was asked for: 3 x 3, eV/Å^3; None for a structure that is not periodic in all directions.
    """

    energies: Array
    forces: list[Array]
    atom_energies: list[Array] | None = None
    node_features: list[Array] | None = None
    stress: list[Array | None] | None = None


@short_repr
@dataclass(frozen=True)
class SinglePoint:
    """What the potential says of one structure; eV and Å.

    Args:
        stress: 3 x 3, eV/Å^3, where the structure is periodic in all directions and the network can.
        gradient: ``dE/dtheta`` (1 x P), where it was asked for.
    """

    energy: float
    forces: Array
    stress: Array | None = None
    gradient: Tensor | None = None


class Potential(Protocol):
    """A trained network that maps a structure to an energy.

    Adapters are thin. A subclass inherits a slow answer, or a refusal, to all that it does not write itself: only the
    abstract members must be there. `adaptntk.testing.check_potential` tells whether an adapter keeps this contract.
    """

    description: str
    source: str | None = None  # path of the model file, where there is one
    family: str | None = None  # whose file it is; whoever loads it by its family sets it
    head: str | None = None  # which of several heads answers; None for a network without heads
    heads: Sequence[str] = ()  # all that it has
    cutoff: float | None = None  # Å, beyond which atoms do not see each other; None where it is not known

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 of the model file, or of the weights of a model that never was a file."""

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype: ...

    @abstractmethod
    def parameters(self) -> list[tuple[str, Tensor]]:
        """Names and tensors of all trainable parameters, in the order of the gradient's columns."""

    @abstractmethod
    def graph(self, atoms: Atoms) -> Any:
        """Everything about one structure that is worth computing once (its neighbour list)."""

    @abstractmethod
    def energies(self, graphs: Sequence[Any]) -> Tensor:
        """Total energies (one per graph) as a differentiable function of the parameters."""

    @abstractmethod
    def predict(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Predictions:
        """Energies and forces, detached."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do, as it is now."""
        return Capabilities()

    @property
    def species(self) -> frozenset[int] | None:
        """Atomic numbers the network knows, or None when it takes any."""
        return None

    def energy_gradients(self, graphs: Sequence[Any]) -> Tensor:
        """Rows ``dE(x)/dtheta`` (b x P)."""
        return energy_gradients_one_by_one(self, graphs)

    def gradients_and_predictions(self, graphs: Sequence[Any]) -> tuple[Tensor, Predictions | None]:
        """The same rows, with energies and forces where one pass gives both; else None."""
        return self.energy_gradients(graphs), None

    def gradient_memory(self, graph: Any) -> int:
        """Bytes that a structure takes while its gradient is computed in a batch, about."""
        return 0

    def single_point(self, atoms: Atoms, gradient: bool = False) -> SinglePoint:
        """Energy and forces of one structure, with the gradient over the parameters if it is wanted."""
        predicted = self.predict([atoms])
        row = self.energy_gradients([self.graph(atoms)]) if gradient else None
        return SinglePoint(float(predicted.energies[0]), predicted.forces[0], gradient=row)

    def predict_in_turn(
        self, structures: Sequence[Atoms], weights: Iterable[Tensor], stress: bool = False
    ) -> Iterator[Predictions]:
        """Predictions for one batch of structures with each of these weights; the last ones stay in the network.

        An adapter that can does once what does not depend on the weights, as neighbour lists.
        """
        for chosen in weights:
            self.set_weights(chosen)
            if not stress:
                yield self.predict(structures, len(structures))
                continue
            points = [self.single_point(atoms) for atoms in structures]
            energies, forces = np.array([point.energy for point in points]), [point.forces for point in points]
            yield Predictions(energies, forces, stress=[point.stress for point in points])

    def weights(self) -> Tensor:
        """A copy of all trainable parameters, in float64 on the CPU, in the order of the gradient's columns."""
        return torch.cat([tensor.detach().double().cpu().flatten() for _, tensor in self.parameters()])

    def set_weights(self, weights: Tensor) -> None:
        """Put such numbers into the network."""
        parameters = [tensor for _, tensor in self.parameters()]
        with torch.no_grad():
            for tensor, part in zip(parameters, weights.split([p.numel() for p in parameters]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def copy(self) -> Self:
        """A network of its own with the same weights."""
        return copy.deepcopy(self)

    def in_precision(self, dtype: torch.dtype) -> Self:
        """A copy that computes in this precision, with the same weights."""
        if dtype != self.dtype:
            raise ModelError(f"{self.description} has one precision, {str(self.dtype).removeprefix('torch.')}")
        return self.copy()

    def built_like(self, other: "Potential") -> bool:
        """Whether both are networks of one architecture, so that only the weights differ."""
        return parameters_hash(self) == parameters_hash(other)

    def with_dropout(self, rate: float) -> Self:
        """A copy in which features drop out at random within `dropout_enabled`."""
        raise ModelError(f"dropout needs a model that can be sampled by it, which {self.description} cannot")

    def dropout_enabled(self) -> AbstractContextManager[None]:
        """While it lasts, every call draws another mask from torch's global generator."""
        raise ModelError(f"dropout needs a model that can be sampled by it, which {self.description} cannot")


class ModulePotential(Potential, Protocol):
    """A potential whose parameters are those of a torch module that require gradients."""

    module: torch.nn.Module
    _fingerprint: str | None = None
    _species: frozenset[int] | None = None

    @property
    def fingerprint(self) -> str:
        return self._fingerprint or weights_hash(self.module)

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.module.parameters()).dtype

    @property
    def species(self) -> frozenset[int] | None:
        return self._species

    def in_precision(self, dtype: torch.dtype) -> Self:
        found = self.copy()
        found.module.to(dtype)
        return found

    def parameters(self) -> list[tuple[str, Tensor]]:
        return [(name, tensor) for name, tensor in self.module.named_parameters() if tensor.requires_grad]


def parameter_count(potential: Potential) -> int:
    """P, the length of the full gradient."""
    return sum(tensor.numel() for _, tensor in potential.parameters())


def parameters_hash(potential: Potential) -> str:
    """SHA-256 of the names and shapes of the parameters: the meaning of the gradient's columns."""
    listing = [f"{name} {tuple(tensor.shape)}" for name, tensor in potential.parameters()]
    return hashlib.sha256("\n".join(listing).encode()).hexdigest()


def weights_hash(module: torch.nn.Module) -> str:
    """SHA-256 of all weights and buffers: the fingerprint of a network that never was a file."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def energy_gradients_one_by_one(potential: Potential, graphs: Sequence[Any]) -> Tensor:
    """Rows ``dE(x)/dtheta`` (b x P), one backward pass each; zeros for what an energy does not depend on."""
    parameters = [tensor for _, tensor in potential.parameters()]
    rows = torch.empty(len(graphs), parameter_count(potential), dtype=potential.dtype, device=potential.device)
    for row, graph in zip(rows, graphs, strict=True):
        gradients = torch.autograd.grad(potential.energies([graph])[0], parameters, materialize_grads=True)
        row[:] = torch.cat([gradient.reshape(-1) for gradient in gradients])
    return rows


def check_dropout_rate(rate: float) -> None:
    """Refuse what is no probability."""
    if not 0 < rate < 1:
        raise InputError(f"the dropout rate must lie between 0 and 1, not {rate}")


def check_species(potential: Potential, structures: Sequence[Atoms], name: str) -> None:
    """Refuse structures with elements the network was not built for."""
    known = potential.species
    if known is None or structure_species(structures) <= known:
        return
    index, unknown = next((i, new) for i, atoms in enumerate(structures) if (new := {*atoms.numbers.tolist()} - known))
    of_frame, of_model = (", ".join(chemical_symbols[z] for z in sorted(numbers)) for numbers in (unknown, known))
    raise InputError(
        f"{name}, frame {index}: the model does not know the element {of_frame} (it knows {of_model}); "
        "remove the frame or use another model"
    )


def choose_device(name: str = "auto") -> torch.device:
    """The device of that name; ``auto`` is a CUDA device if there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # there, and able to compute
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name!r} cannot be used: {str(error).splitlines()[0][:120]}; use cpu") from None
    if device.type == "mps":
        raise InputError("device 'mps' cannot be used: it has no float64, which the scores need; use cpu")
    return device
