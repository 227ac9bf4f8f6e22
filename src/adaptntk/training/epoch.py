"""One epoch: steps over the training set, errors on the validation set."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from adaptntk.models.family import Trainable
from adaptntk.training.labelled import LabelledSet
from adaptntk.training.recipe import Recipe


@dataclass(frozen=True)
class ValidationErrors:
    """Errors on the validation set: the loss, and root mean square errors in eV per atom and eV/Å."""

    loss: float
    energy_rmse_per_atom: float
    force_rmse: float


def run_epoch(
    potential: Trainable, optimiser: torch.optim.Optimizer, data: LabelledSet, recipe: Recipe, epoch: int, seed: int
) -> float:
    """Take all steps of an epoch; the mean loss."""
    # The order is a function of seed and epoch alone, so that a resumed training repeats it; so are the masks.
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(data))
    if recipe.dropout:
        torch.manual_seed(int(rng.integers(2**62)))
    batches = data.batches(recipe.batch_size, order)
    potential.module.train()
    total = torch.zeros((), dtype=torch.float64, device=potential.device)
    for step, indices in enumerate(batches):
        if recipe.cosine:
            done = (epoch + step / len(batches)) / recipe.epochs
            (group,) = optimiser.param_groups
            group["lr"] = recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
        optimiser.zero_grad(set_to_none=True)
        energy_error, force_error = data.errors(potential, indices, training=True)
        energy_loss = (energy_error / (data.sizes[indices] if recipe.per_atom_energy else 1)).square().mean()
        loss = recipe.energy_weight * energy_loss + recipe.forces_weight * force_error.square().mean()
        loss.backward()
        if recipe.gradient_clip:
            torch.nn.utils.clip_grad_norm_(potential.module.parameters(), recipe.gradient_clip)
        optimiser.step()
        total += loss.detach() * len(indices)
    return float(total) / len(data)


def validate(potential: Trainable, data: LabelledSet, recipe: Recipe, centred: bool = False) -> ValidationErrors:
    """Errors on a set; ``centred`` leaves the constant out of the energy error, as it will be set in the end."""
    potential.module.eval()
    energy_sum = force_sum = force_count = 0.0
    per_atom: list[float] = []
    for indices in data.batches(recipe.batch_size):
        errors = data.errors(potential, indices, training=False)
        energy_error, force_error = (error.detach().double() for error in errors)
        sizes = data.sizes[indices].double()
        energy_sum += float((energy_error / (sizes if recipe.per_atom_energy else 1)).square().sum())
        per_atom += (energy_error / sizes).tolist()
        force_sum += float(force_error.square().sum())
        force_count += force_error.numel()
    force_mse = force_sum / force_count
    loss = recipe.energy_weight * energy_sum / len(data) + recipe.forces_weight * force_mse
    offset = float(np.mean(per_atom)) if centred else 0.0
    return ValidationErrors(loss, float(np.sqrt(np.mean((np.array(per_atom) - offset) ** 2))), math.sqrt(force_mse))


def centre_energies(potential: Trainable, data: LabelledSet, recipe: Recipe) -> None:
    """Move the network's constant per atom so that the mean error per atom over ``data`` is zero."""
    total = 0.0
    for indices in data.batches(recipe.batch_size):
        with torch.no_grad():
            energies = potential.interaction_energies([data.graphs[i] for i in indices])
        total += float(((energies - data.energies[indices]) / data.sizes[indices]).double().sum())
    potential.shift_energies(-total / len(data))
