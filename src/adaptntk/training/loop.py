"""The paper's recipe for training a MACE network: resumable, and its result is a stock ``.model`` file."""

import copy
import hashlib
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms
from safetensors.torch import load_file, save_file
from torch import Tensor

from adaptntk.data.splits import check_disjoint
from adaptntk.data.structures import (
    NO_LABELS,
    check_force_unit,
    has_labels,
    reference_energies,
    reference_forces,
    structure_hash,
)
from adaptntk.errors import InputError
from adaptntk.files import check_writable, write_atomically
from adaptntk.models.mace.dropout import insert_dropout, remove_dropout
from adaptntk.models.mace.network import PAPER, SMALL, TINY, Architecture, EnergyReference, build_network
from adaptntk.models.mace.potential import DTYPES, MACEGraph, MACEPotential, load_mace, mean_neighbours, save_mace
from adaptntk.models.protocol import check_species, choose_device

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    Args:
        architecture: the network.
        epochs, batch_size, learning_rate: of AdamW.
        cosine: let the learning rate fall to zero along a cosine; constant otherwise (paper).
        energy_weight, forces_weight: of the two mean squared errors.
        per_atom_energy: energy error per atom (as MACE does) rather than of the total.
        element_energies: subtract a least-squares energy per element before scale and shift, needed when
            compositions differ; otherwise only the mean energy per atom (paper).
        force_scale: scale the output by the root mean square force (as MACE does) rather than by the
            standard deviation of the energy per atom (paper).
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


PRESETS = {
    "paper": Recipe(
        PAPER,
        epochs=500,
        batch_size=16,
        learning_rate=1e-4,
        cosine=False,
        element_energies=False,
        force_scale=False,
        centre_energies=False,
        gradient_clip=0.0,
    ),
    "small": Recipe(SMALL, epochs=80, batch_size=8, learning_rate=1e-2, cosine=True),
    # A toy: seconds, to try things out.
    "tiny": Recipe(TINY, epochs=30, batch_size=5, learning_rate=3e-2, cosine=True),
}


def find_preset(name: str, epochs: int | None = None) -> Recipe:
    """The recipe of that name, with another length if wanted."""
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}")
    return PRESETS[name] if epochs is None else replace(PRESETS[name], epochs=epochs)


@dataclass(frozen=True)
class ValidationErrors:
    """Errors on the validation set: the loss, and root mean square errors in eV per atom and eV/Å."""

    loss: float
    energy_rmse_per_atom: float
    force_rmse: float


@dataclass(frozen=True)
class EpochReport:
    """What an epoch achieved."""

    epoch: int
    epochs: int
    train_loss: float
    validation: ValidationErrors
    improved: bool
    seconds: float


@dataclass(frozen=True)
class _Labelled:
    """Graphs and labels of one set; energies are counted from the isolated atoms."""

    graphs: list[MACEGraph]
    energies: Tensor
    forces: list[Tensor]
    sizes: Tensor

    def __len__(self) -> int:
        return len(self.graphs)


@dataclass(frozen=True)
class Trained:
    """A finished training: the network of the best epoch (None if not known) and its errors on the validation set."""

    potential: MACEPotential
    best_epoch: int | None
    energy_rmse_per_atom: float
    force_rmse: float


def train(
    train: Sequence[Atoms],
    valid: Sequence[Atoms],
    output: str | Path,
    recipe: Recipe = PRESETS["small"],
    seed: int = 0,
    device: str = "auto",
    dtype: str = "float32",
    resume: bool = False,
    on_epoch: Callable[[EpochReport], None] = lambda report: None,
    snapshots: float = 0.0,
    start: MACEPotential | None = None,
) -> Trained:
    """Train a network and write the best one, by validation loss, to ``output``.

    The training begins with random weights, or from the network ``start``, whatever its architecture. With
    ``snapshots``, a share of the epochs, the weights of up to 20 of them, evenly spaced over that share at the end, are
    written to ``output.snapshots`` as well, for `read_snapshots`. Each epoch ends with a checkpoint beside the output;
    with ``resume`` an interrupted training goes on from there and ends with the same weights as if it had not been
    interrupted. The checkpoint is removed when the training is complete; to resume a complete training changes
    nothing.
    """
    output = Path(output)
    check_writable(output)
    if dtype not in DTYPES:
        raise InputError(f"unknown dtype {dtype!r}: choose float32 or float64")
    _check_sets(train, valid)
    identity = training_identity(train, valid, recipe, seed, dtype, start)
    if start is None:
        module = build_network(recipe.architecture, energy_reference(train, recipe), DTYPES[dtype], seed)
    else:
        # A copy, for a network is more than its weights: cutoff, energies of atoms, mean number of neighbours.
        check_species(start, [*train, *valid], "training or validation set")
        module = copy.deepcopy(start.module).to(DTYPES[dtype])
    module = module.to(choose_device(device))
    if recipe.dropout:
        insert_dropout(module, recipe.dropout)
    potential = MACEPotential(module, fingerprint=identity)
    train_set, valid_set = (_labelled(potential, frames) for frames in (train, valid))
    optimiser = torch.optim.AdamW(
        module.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
    )
    checkpoint = _Checkpoint(checkpoint_file(output), identity)
    best = _Best(0, math.inf, _copy_weights(module))
    first = 0
    taken: dict[str, Tensor] = {}
    if resume and output.exists() and not checkpoint.path.exists():
        log.info("%s is complete: nothing to resume", output)
        return _finished(output, device, valid, recipe, best_epoch=None)
    if resume and (loaded := checkpoint.load(module, optimiser)) is not None:
        first, best, taken = loaded
    for epoch in range(first, recipe.epochs):
        began = time.perf_counter()
        with torch.random.fork_rng(enabled=recipe.dropout > 0):
            train_loss = _run_epoch(potential, optimiser, train_set, recipe, epoch, seed)
        errors = _validate(potential, valid_set, recipe, centred=recipe.centre_energies)
        if not math.isfinite(errors.loss):
            raise InputError(
                f"the training diverged in epoch {epoch + 1}: check the units of the labels, or lower the learning rate"
            )
        improved = errors.loss < best.loss
        if improved:
            best = _Best(epoch + 1, errors.loss, _copy_weights(module))
        if snapshots and epoch in snapshot_epochs(recipe.epochs, snapshots):
            taken |= {f"{epoch}/{name}": tensor.detach().clone() for name, tensor in module.named_parameters()}
        checkpoint.save(epoch + 1, module, optimiser, best, taken)
        seconds = time.perf_counter() - began
        on_epoch(EpochReport(epoch + 1, recipe.epochs, train_loss, errors, improved, seconds))
    module.load_state_dict(best.weights)
    if recipe.centre_energies:
        _centre_energies(potential, train_set, recipe)
    remove_dropout(module)
    if taken:
        contents = {name: tensor.cpu().contiguous() for name, tensor in taken.items()}
        write_atomically(snapshot_file(output), lambda temporary: save_file(contents, temporary))
    save_mace(module.cpu(), output)
    checkpoint.remove()
    return _finished(output, device, valid, recipe, best.epoch)


def snapshot_epochs(epochs: int, share: float = 0.25) -> list[int]:
    """Up to 20 epochs (counted from 0), evenly spaced over the last share of them; always the last."""
    first = epochs - max(1, int(epochs * share))
    return sorted({int(epoch) for epoch in np.linspace(first, epochs - 1, min(20, epochs - first)).round()})


def checkpoint_file(model: str | Path) -> Path:
    """Where the state of an unfinished training is."""
    return Path(model).with_name(Path(model).name + ".checkpoint")


def snapshot_file(model: str | Path) -> Path:
    """Where the snapshots of a model's training are."""
    return Path(model).with_name(Path(model).name + ".snapshots")


def read_snapshots(model: str | Path) -> list[dict[str, Tensor]]:
    """The weights that `train` kept, in the order of the epochs."""
    path = snapshot_file(model)
    if not path.exists():
        raise InputError(f"{path}: no such file; train the model with snapshots")
    found: dict[int, dict[str, Tensor]] = {}
    for key, tensor in load_file(path).items():
        epoch, name = key.split("/", 1)
        found.setdefault(int(epoch), {})[name] = tensor
    return [found[epoch] for epoch in sorted(found)]


def _finished(output: Path, device: str, valid: Sequence[Atoms], recipe: Recipe, best_epoch: int | None) -> Trained:
    """The network as it was written, with its errors."""
    potential = load_mace(output, device)
    errors = _validate(potential, _labelled(potential, valid), recipe)
    return Trained(potential, best_epoch, errors.energy_rmse_per_atom, errors.force_rmse)


def energy_reference(frames: Sequence[Atoms], recipe: Recipe) -> EnergyReference:
    """Isolated energies, scale and shift from the training labels."""
    numbers = sorted({int(z) for atoms in frames for z in atoms.numbers})
    counts = np.array([[np.count_nonzero(atoms.numbers == z) for z in numbers] for atoms in frames], dtype=float)
    sizes = counts.sum(axis=1)
    energies = reference_energies(frames)
    # With one composition only, the least-squares solution of smallest norm shares the energy out.
    isolated = np.zeros(len(numbers))
    if recipe.element_energies:
        isolated = np.linalg.lstsq(counts, energies, rcond=None)[0]
    per_atom = (energies - counts @ isolated) / sizes
    forces = np.concatenate([f.ravel() for f in reference_forces(frames)])
    scale = float(np.sqrt(np.mean(forces**2))) if recipe.force_scale else float(per_atom.std())
    neighbours = mean_neighbours(frames, recipe.architecture.cutoff)
    return EnergyReference(tuple(numbers), tuple(isolated.tolist()), scale or 1.0, float(per_atom.mean()), neighbours)


def _check_sets(train: Sequence[Atoms], valid: Sequence[Atoms]) -> None:
    for name, frames in (("training set", train), ("validation set", valid)):
        if not frames:
            raise InputError(f"the {name} is empty")
        for index, atoms in enumerate(frames):
            if not has_labels(atoms):
                raise InputError(f"{name}, frame {index}: {NO_LABELS}")
        check_force_unit(frames, name)
    check_disjoint({"the training set": train, "the validation set": valid})
    unknown = {int(z) for a in valid for z in a.numbers} - {int(z) for a in train for z in a.numbers}
    if unknown:
        raise InputError(f"the validation set holds elements that the training set lacks: {sorted(unknown)}")


def _labelled(potential: MACEPotential, frames: Sequence[Atoms]) -> _Labelled:
    # Counted from the isolated energies as the network stores them, and subtracted in float64: in float32 the
    # total energy of a molecule is too large for the differences that are to be learnt.
    stored = potential.module.atomic_energies_fn.atomic_energies.double().cpu().numpy().ravel()  # type: ignore
    isolated = dict(zip(potential.atomic_numbers, stored, strict=True))
    offsets = np.array([sum(isolated[int(z)] for z in atoms.numbers) for atoms in frames])
    place = partial(torch.tensor, dtype=potential.dtype, device=potential.device)
    return _Labelled(
        [potential.graph(atoms) for atoms in frames],
        place(reference_energies(frames) - offsets),
        [place(forces) for forces in reference_forces(frames)],
        place([len(atoms) for atoms in frames]),
    )


def _batches(size: int, batch_size: int, order: np.ndarray) -> list[list[int]]:
    return [order[start : start + batch_size].tolist() for start in range(0, size, batch_size)]


def _errors(potential: MACEPotential, data: _Labelled, indices: list[int], training: bool) -> tuple[Tensor, Tensor]:
    """Errors of the total energies and of the force components of one batch."""
    output = potential.outputs([data.graphs[i] for i in indices], training=training)
    energy_error = output["interaction_energy"] - data.energies[indices]
    return energy_error, output["forces"] - torch.cat([data.forces[i] for i in indices])


def _weighted(energy_error: Tensor, sizes: Tensor, recipe: Recipe) -> Tensor:
    """The energy errors that enter the loss."""
    return energy_error / sizes if recipe.per_atom_energy else energy_error


def _run_epoch(
    potential: MACEPotential,
    optimiser: torch.optim.Optimizer,
    data: _Labelled,
    recipe: Recipe,
    epoch: int,
    seed: int,
) -> float:
    # The order is a function of seed and epoch alone, so that a resumed training repeats it; so are the masks.
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(data))
    if recipe.dropout:
        torch.manual_seed(int(rng.integers(2**62)))
    batches = _batches(len(data), recipe.batch_size, order)
    potential.module.train()
    total = torch.zeros((), dtype=torch.float64, device=potential.device)
    for step, indices in enumerate(batches):
        if recipe.cosine:
            done = (epoch + step / len(batches)) / recipe.epochs
            for group in optimiser.param_groups:
                group["lr"] = recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
        optimiser.zero_grad(set_to_none=True)
        energy_error, force_error = _errors(potential, data, indices, training=True)
        energy_loss = _weighted(energy_error, data.sizes[indices], recipe).square().mean()
        loss = recipe.energy_weight * energy_loss + recipe.forces_weight * force_error.square().mean()
        loss.backward()
        if recipe.gradient_clip:
            torch.nn.utils.clip_grad_norm_(potential.module.parameters(), recipe.gradient_clip)
        optimiser.step()
        total += loss.detach() * len(indices)
    return float(total) / len(data)


def _validate(potential: MACEPotential, data: _Labelled, recipe: Recipe, centred: bool = False) -> ValidationErrors:
    """Errors on a set; ``centred`` leaves the constant out of the energy error, as it will be set in the end."""
    potential.module.eval()
    energy_sum = force_sum = force_count = 0.0
    per_atom: list[float] = []
    for indices in _batches(len(data), recipe.batch_size, np.arange(len(data))):
        energy_error, force_error = _errors(potential, data, indices, training=False)
        energy_error, force_error = energy_error.detach().double(), force_error.detach().double()
        sizes = data.sizes[indices].double()
        energy_sum += float((_weighted(energy_error, sizes, recipe)).square().sum())
        per_atom += (energy_error / sizes).tolist()
        force_sum += float(force_error.square().sum())
        force_count += force_error.numel()
    force_mse = force_sum / force_count
    loss = recipe.energy_weight * energy_sum / len(data) + recipe.forces_weight * force_mse
    offset = float(np.mean(per_atom)) if centred else 0.0
    return ValidationErrors(loss, float(np.sqrt(np.mean((np.array(per_atom) - offset) ** 2))), math.sqrt(force_mse))


def _centre_energies(potential: MACEPotential, data: _Labelled, recipe: Recipe) -> None:
    """Move the network's constant per atom so that the mean error per atom over ``data`` is zero."""
    total = 0.0
    for indices in _batches(len(data), recipe.batch_size, np.arange(len(data))):
        with torch.no_grad():
            output = potential.module(potential.batch([data.graphs[i] for i in indices]), compute_force=False)
        errors = (output["interaction_energy"] - data.energies[indices]) / data.sizes[indices]
        total += float(errors.double().sum())
    with torch.no_grad():
        potential.module.scale_shift.shift -= total / len(data)  # type: ignore[union-attr, operator]


def training_identity(
    train: Sequence[Atoms],
    valid: Sequence[Atoms],
    recipe: Recipe,
    seed: int,
    dtype: str,
    start: MACEPotential | None = None,
) -> str:
    """A hash of all that determines the result: a checkpoint of anything else must not be resumed."""
    first = None if start is None else start.fingerprint
    settings = json.dumps({"recipe": asdict(recipe), "seed": seed, "dtype": dtype, "start": first}, sort_keys=True)
    digest = hashlib.sha256(settings.encode())
    for atoms in (*train, *valid):
        digest.update(structure_hash(atoms).encode())
    digest.update(reference_energies([*train, *valid]).tobytes())
    for forces in reference_forces([*train, *valid]):
        digest.update(forces.tobytes())
    return digest.hexdigest()


def _copy_weights(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


@dataclass(frozen=True)
class _Best:
    """The best epoch so far."""

    epoch: int
    loss: float
    weights: dict[str, Tensor]


@dataclass(frozen=True)
class _Checkpoint:
    """The state of a training on disk, after each epoch."""

    path: Path
    identity: str

    def save(
        self,
        epochs: int,
        module: torch.nn.Module,
        optimiser: torch.optim.Optimizer,
        best: _Best,
        snapshots: dict[str, Tensor],
    ) -> None:
        state = {
            "identity": self.identity,
            "epochs": epochs,
            "weights": module.state_dict(),
            "optimiser": optimiser.state_dict(),
            "best": vars(best),
            "snapshots": snapshots,
        }
        write_atomically(self.path, lambda temporary: torch.save(state, temporary))

    def load(
        self, module: torch.nn.Module, optimiser: torch.optim.Optimizer
    ) -> tuple[int, _Best, dict[str, Tensor]] | None:
        """Put module and optimiser back to where they were; epochs done, the best of them, and snapshots."""
        if not self.path.exists():
            log.info("no checkpoint at %s: starting from the beginning", self.path)
            return None
        try:
            state: dict[str, Any] = torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception:  # torch raises whatever the bytes lead it to
            raise InputError(f"{self.path}: not a training checkpoint, or truncated; remove it") from None
        if state.get("identity") != self.identity:
            raise InputError(
                f"{self.path}: belongs to a training with other data, seed or settings; remove it, or train "
                "without --resume"
            )
        module.load_state_dict(state["weights"])
        optimiser.load_state_dict(state["optimiser"])
        log.info("resuming after epoch %d", state["epochs"])
        return state["epochs"], _Best(**state["best"]), state["snapshots"]

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
