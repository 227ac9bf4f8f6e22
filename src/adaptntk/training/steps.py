"""The steps of a lap over the training set, and errors on the validation set."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from adaptntk.models.family import Outputs, Step, Trainable
from adaptntk.training.labelled import Errors, LabelledSet
from adaptntk.training.recipe import Recipe
from adaptntk.training.schedule import Laps, Plan, lap_lengths
from adaptntk.training.weights import Weights

# Half as many pay for what it takes to record a step, which is then repeated a third faster.
_STEPS_TO_CAPTURE = 1000


@dataclass(frozen=True)
class ValidationErrors:
    """Errors on a set: the loss, and root mean squares in eV per atom, eV/Å and (where it is learnt) eV/Å^3."""

    loss: float
    energy_rmse_per_atom: float
    force_rmse: float
    stress_rmse: float | None = None


@dataclass(frozen=True)
class Stepper:
    """Takes the steps of a training: a network, its optimiser, and what it learns from."""

    potential: Trainable
    weights: Weights
    data: LabelledSet
    recipe: Recipe
    seed: int

    @cached_property
    def batch_size(self) -> int:
        """Structures in a batch; the last of an epoch may have fewer."""
        return self.data.batch_size(self.recipe)

    @property
    def batches(self) -> int:
        """In an epoch."""
        return math.ceil(len(self.data) / self.batch_size)

    def laps(self, validated: int) -> Laps:
        """Steps from one validation, of so many structures, to the next."""
        return lap_lengths(self.recipe, self.batches, self.batch_size, validated)

    def run(self, plan: Plan, first: int, stop: int) -> float:
        """Take the steps from ``first`` up to ``stop``; their mean loss."""
        self.potential.module.train()
        total, count = torch.zeros((), dtype=torch.float64, device=self.potential.device), 0
        energy_weight = plan.energy_weight(self.recipe)
        batches: list[list[int]] = []
        weight = torch.tensor(energy_weight, dtype=self.potential.dtype, device=self.potential.device)
        for step in range(first, stop):
            epoch, place = divmod(step, self.batches)
            if step == first or place == 0:
                batches = self._begin(epoch, place)
            indices = batches[place]
            rate = plan.rate(self.recipe, step)
            if self._captured is not None and len(indices) == self.batch_size:
                loss, gradient = self._captured(torch.tensor(indices), weight)
                self.weights.step_along(gradient, step, rate)
            else:
                loss = self._loss(indices, energy_weight)
                self.weights.step(loss, step, rate)
            total += loss.detach() * len(indices)
            count += len(indices)
        return float(total) / count

    @cached_property
    def _captured(self) -> Step | None:
        """The faster way to take a step, where there is one and a training is long enough to make it."""
        recipe, data, size = self.recipe, self.data, self.batch_size
        steps, sizes = Plan.first(recipe, self.batches).steps, {len(forces) for forces in data.forces}
        if steps < _STEPS_TO_CAPTURE or len(data) < size or len(sizes) > 1 or recipe.dropout or data.stressed:
            return None
        forces = torch.stack(data.forces)

        def loss(found: Outputs, chosen: Tensor, energy_weight: Tensor) -> Tensor:
            energies = found.energies - data.energies.index_select(0, chosen)
            errors = Errors(energies, found.forces - forces.index_select(0, chosen).flatten(0, 1), None)
            return self._weighted(errors, data.sizes.index_select(0, chosen), energy_weight)

        return self.potential.captured_step(data.graphs, size, loss)

    def _begin(self, epoch: int, place: int) -> list[list[int]]:
        # The order is a function of seed and epoch alone, so that a resumed training repeats it; so are the masks,
        # which are drawn anew where a lap begins within an epoch.
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(len(self.data))
        if self.recipe.dropout:
            rng = np.random.default_rng([self.seed, epoch, place]) if place else rng
            torch.manual_seed(int(rng.integers(2**62)))
        return self.data.batches(self.batch_size, order)

    def _loss(self, indices: list[int], energy_weight: float) -> Tensor:
        errors = self.data.errors(self.potential, indices, training=True)
        return self._weighted(errors, self.data.sizes[indices], energy_weight)

    def _weighted(self, errors: Errors, sizes: Tensor, energy_weight: float | Tensor) -> Tensor:
        recipe = self.recipe
        energy_loss = (errors.energies / (sizes if recipe.per_atom_energy else 1)).square().mean()
        loss = energy_weight * energy_loss + recipe.forces_weight * errors.forces.square().mean()
        if errors.stress is None:
            return loss
        return loss + recipe.stress_weight * errors.stress.square().sum() / (9 * len(sizes))


def validate(
    potential: Trainable, data: LabelledSet, recipe: Recipe, energy_weight: float | None = None, centred: bool = False
) -> ValidationErrors:
    """Errors on a set; ``centred`` leaves the constant out of the energy error, as it will be set in the end."""
    # Without a graph for the optimiser, larger batches fit and cost less.
    size = 4 * data.batch_size(recipe)
    potential.module.eval()
    energy_sum = force_sum = force_count = virial_sum = 0.0
    per_atom: list[float] = []
    stresses: list[float] = []
    for indices in data.batches(size):
        errors = data.errors(potential, indices, training=False)
        energy_error, force_error = errors.energies.detach().double(), errors.forces.detach().double()
        sizes = data.sizes[indices].double()
        energy_sum += float((energy_error / (sizes if recipe.per_atom_energy else 1)).square().sum())
        per_atom += (energy_error / sizes).tolist()
        force_sum += float(force_error.square().sum())
        force_count += force_error.numel()
        if errors.stress is not None:
            virials = errors.stress.detach().double().square().mean(dim=(1, 2))
            volumes = data.volumes[[i for i in indices if data.virials[i] is not None]].double()
            virial_sum += float(virials.sum())
            stresses += (virials / volumes.square()).tolist()
    force_mse = force_sum / force_count
    weight = recipe.energy_weight if energy_weight is None else energy_weight
    loss = weight * energy_sum / len(data) + recipe.forces_weight * force_mse
    loss += recipe.stress_weight * virial_sum / len(data)
    offset = float(np.mean(per_atom)) if centred else 0.0
    energy_rmse = float(np.sqrt(np.mean((np.array(per_atom) - offset) ** 2)))
    return ValidationErrors(loss, energy_rmse, math.sqrt(force_mse), math.sqrt(np.mean(stresses)) if stresses else None)


def centre_energies(potential: Trainable, data: LabelledSet, recipe: Recipe) -> None:
    """Move the network's constant per atom so that the mean error per atom over ``data`` is zero."""
    total = 0.0
    for indices in data.batches(data.batch_size(recipe)):
        with torch.no_grad():
            energies = potential.interaction_energies([data.graphs[i] for i in indices])
        total += float(((energies - data.energies[indices]) / data.sizes[indices]).double().sum())
    potential.shift_energies(-total / len(data))
