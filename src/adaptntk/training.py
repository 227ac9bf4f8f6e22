"""The paper's recipe for training a MACE network: resumable, and its result is a stock ``.model`` file."""

import hashlib
import json
import logging
import math
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms
from torch import Tensor

from adaptntk.data.splits import check_disjoint
from adaptntk.data.structures import (
    check_force_unit,
    has_labels,
    reference_energies,
    reference_forces,
    structure_hash,
)
from adaptntk.errors import InputError
from adaptntk.files import check_writable, write_atomically
from adaptntk.models.mace import DTYPES, MACEGraph, MACEPotential, load_mace, mean_neighbours, save_mace
from adaptntk.models.mace_network import PAPER, SMALL, Architecture, EnergyReference, build_network
from adaptntk.models.protocol import choose_device

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
        gradient_clip: largest norm of a step's gradient; 0 for none (paper).
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
    gradient_clip: float = 10.0
    weight_decay: float = 0.01


PRESETS = {
    "paper": Recipe(PAPER, 500, 16, 1e-4, cosine=False, force_scale=False, gradient_clip=0.0),
    "small": Recipe(SMALL, 80, 8, 1e-2, cosine=True),
}


@dataclass(frozen=True)
class EpochReport:
    """What an epoch achieved: errors on the validation set in eV (per atom) and eV/Å."""

    epoch: int
    epochs: int
    train_loss: float
    valid_loss: float
    energy_rmse_per_atom: float
    force_rmse: float
    best: bool
    seconds: float


@dataclass(frozen=True)
class _Labelled:
    """Graphs and labels of one set; energies are counted from the isolated atoms."""

    graphs: list[MACEGraph]
    energies: Tensor
    forces: list[Tensor]

    def __len__(self) -> int:
        return len(self.graphs)


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
) -> MACEPotential:
    """Train a network and write the best one, by validation loss, to ``output``.

    Each epoch ends with a checkpoint beside the output; with ``resume`` an interrupted training goes on
    from there and ends with the same weights as if it had not been interrupted. The checkpoint is removed
    when the training is complete.

    Returns:
        The best network, loaded from ``output``.
    """
    output = Path(output)
    check_writable(output)
    _check_sets(train, valid)
    identity = _identity(train, valid, recipe, seed, dtype)
    reference = energy_reference(train, recipe)
    module = build_network(recipe.architecture, reference, DTYPES[dtype], seed).to(choose_device(device))
    potential = MACEPotential(module, fingerprint=identity)
    sets = [_labelled(potential, frames, reference) for frames in (train, valid)]
    optimiser = torch.optim.AdamW(module.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    checkpoint = output.with_name(output.name + ".checkpoint")
    state = _load_checkpoint(checkpoint, identity) if resume else None
    first, best_loss, best_weights = 0, math.inf, _copy_weights(module)
    if state is not None:
        module.load_state_dict(state["weights"])
        optimiser.load_state_dict(state["optimiser"])
        first, best_loss, best_weights = state["epoch"] + 1, state["best_loss"], state["best_weights"]
        log.info("resuming after epoch %d", first)
    for epoch in range(first, recipe.epochs):
        began = time.perf_counter()
        train_loss = _run_epoch(potential, optimiser, sets[0], recipe, epoch, seed)
        valid_loss, energy_rmse, force_rmse = _validate(potential, sets[1], recipe)
        if not math.isfinite(valid_loss):
            raise InputError(
                f"the training diverged in epoch {epoch + 1}: check the units of the labels, or lower the learning rate"
            )
        best = valid_loss < best_loss
        if best:
            best_loss, best_weights = valid_loss, _copy_weights(module)
        _save_checkpoint(checkpoint, identity, epoch, module, optimiser, best_loss, best_weights)
        seconds = time.perf_counter() - began
        on_epoch(EpochReport(epoch + 1, recipe.epochs, train_loss, valid_loss, energy_rmse, force_rmse, best, seconds))
    module.load_state_dict(best_weights)
    save_mace(module.cpu(), output)
    checkpoint.unlink(missing_ok=True)
    return load_mace(output, device=device)


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
                raise InputError(f"{name}, frame {index}: no REF_energy and REF_forces")
        check_force_unit(frames, name)
    check_disjoint({"the training set": train, "the validation set": valid})
    unknown = {int(z) for a in valid for z in a.numbers} - {int(z) for a in train for z in a.numbers}
    if unknown:
        raise InputError(f"the validation set holds elements that the training set lacks: {sorted(unknown)}")


def _labelled(potential: MACEPotential, frames: Sequence[Atoms], reference: EnergyReference) -> _Labelled:
    # Counted from the isolated energies as the network stores them, and subtracted in float64: in float32 the
    # total energy of a molecule is too large for the differences that are to be learnt.
    stored = potential.module.atomic_energies_fn.atomic_energies.double().cpu().numpy().ravel()  # type: ignore
    isolated = dict(zip(reference.atomic_numbers, stored, strict=True))
    offsets = np.array([sum(isolated[int(z)] for z in atoms.numbers) for atoms in frames])
    place = partial(torch.tensor, dtype=potential.dtype, device=potential.device)
    return _Labelled(
        [potential.graph(atoms) for atoms in frames],
        place(reference_energies(frames) - offsets),
        [place(forces) for forces in reference_forces(frames)],
    )


def _batches(size: int, batch_size: int, order: np.ndarray) -> list[list[int]]:
    return [order[start : start + batch_size].tolist() for start in range(0, size, batch_size)]


def _errors(
    potential: MACEPotential, data: _Labelled, indices: list[int], recipe: Recipe, training: bool
) -> tuple[Tensor, Tensor]:
    """Energy errors (per structure) and force errors (per component) of one batch."""
    graphs = [data.graphs[i] for i in indices]
    output = potential.outputs(graphs, training=training)
    energy_error = output["interaction_energy"] - data.energies[indices]
    if recipe.per_atom_energy:
        energy_error = energy_error / torch.tensor([len(g.positions) for g in graphs], device=potential.device)
    return energy_error, output["forces"] - torch.cat([data.forces[i] for i in indices])


def _run_epoch(
    potential: MACEPotential,
    optimiser: torch.optim.Optimizer,
    data: _Labelled,
    recipe: Recipe,
    epoch: int,
    seed: int,
) -> float:
    # The order is a function of seed and epoch alone, so that a resumed training repeats it.
    order = np.random.default_rng([seed, epoch]).permutation(len(data))
    batches = _batches(len(data), recipe.batch_size, order)
    total = 0.0
    for step, indices in enumerate(batches):
        if recipe.cosine:
            done = (epoch + step / len(batches)) / recipe.epochs
            for group in optimiser.param_groups:
                group["lr"] = recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
        optimiser.zero_grad(set_to_none=True)
        energy_error, force_error = _errors(potential, data, indices, recipe, training=True)
        loss = recipe.energy_weight * energy_error.square().mean() + recipe.forces_weight * force_error.square().mean()
        loss.backward()
        if recipe.gradient_clip:
            torch.nn.utils.clip_grad_norm_(potential.module.parameters(), recipe.gradient_clip)
        optimiser.step()
        total += float(loss.detach()) * len(indices)
    return total / len(data)


def _validate(potential: MACEPotential, data: _Labelled, recipe: Recipe) -> tuple[float, float, float]:
    energy_sum = force_sum = force_count = 0.0
    for indices in _batches(len(data), recipe.batch_size, np.arange(len(data))):
        energy_error, force_error = _errors(potential, data, indices, recipe, training=False)
        energy_sum += float(energy_error.detach().double().square().sum())
        force_sum += float(force_error.detach().double().square().sum())
        force_count += force_error.numel()
    energy_mse, force_mse = energy_sum / len(data), force_sum / force_count
    loss = recipe.energy_weight * energy_mse + recipe.forces_weight * force_mse
    return loss, math.sqrt(energy_mse), math.sqrt(force_mse)


def _identity(train: Sequence[Atoms], valid: Sequence[Atoms], recipe: Recipe, seed: int, dtype: str) -> str:
    """A hash of all that determines the result: a checkpoint of anything else must not be resumed."""
    content = {
        "recipe": asdict(recipe),
        "seed": seed,
        "dtype": dtype,
        "structures": [[structure_hash(a), float(a.info["REF_energy"])] for a in (*train, *valid)],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _copy_weights(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def _save_checkpoint(
    path: Path,
    identity: str,
    epoch: int,
    module: torch.nn.Module,
    optimiser: torch.optim.Optimizer,
    best_loss: float,
    best_weights: dict[str, Tensor],
) -> None:
    state = {
        "identity": identity,
        "epoch": epoch,
        "weights": module.state_dict(),
        "optimiser": optimiser.state_dict(),
        "best_loss": best_loss,
        "best_weights": best_weights,
    }
    write_atomically(path, lambda temporary: torch.save(state, temporary))


def _load_checkpoint(path: Path, identity: str) -> dict[str, Any] | None:
    if not path.exists():
        log.info("no checkpoint at %s: starting from the beginning", path)
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise InputError(f"{path}: not a training checkpoint ({str(error).splitlines()[0]}); remove it") from None
    if state.get("identity") != identity:
        raise InputError(
            f"{path}: belongs to a training with other data, seed or settings; remove it, or train without --resume"
        )
    return state
