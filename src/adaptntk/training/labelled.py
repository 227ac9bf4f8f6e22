"""Labelled structures as a network is trained on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from ase import Atoms
from torch import Tensor

from adaptntk.data.splits import check_disjoint
from adaptntk.data.structures import (
    check_force_unit,
    check_labelled,
    reference_energies,
    reference_forces,
    structure_species,
)
from adaptntk.errors import InputError
from adaptntk.models.family import Trainable
from adaptntk.models.registry import find_family
from adaptntk.training.recipe import Recipe
from adaptntk.training.reference import energy_reference


@dataclass(frozen=True)
class LabelledSet:
    """Graphs and labels of one set; energies are counted from the isolated atoms."""

    graphs: list[Any]
    energies: Tensor
    forces: list[Tensor]
    sizes: Tensor

    @classmethod
    def make(cls, potential: Trainable, frames: Sequence[Atoms]) -> "LabelledSet":
        """The set as that network sees it."""
        # Counted from the isolated energies as the network stores them, and subtracted in float64.
        isolated = potential.isolated_energies
        offsets = np.array([sum(isolated[int(z)] for z in atoms.numbers) for atoms in frames])
        to_tensor = partial(torch.tensor, dtype=potential.dtype, device=potential.device)
        return cls(
            [potential.graph(atoms) for atoms in frames],
            to_tensor(reference_energies(frames) - offsets),
            [to_tensor(forces) for forces in reference_forces(frames)],
            to_tensor([len(atoms) for atoms in frames]),
        )

    def __len__(self) -> int:
        return len(self.graphs)

    def batch_size(self, recipe: Recipe) -> int:
        """Structures in a batch: what the recipe says, or as many as have its number of atoms together."""
        return recipe.batch_size or max(1, round(recipe.batch_atoms / float(self.sizes.mean())))

    def batches(self, batch_size: int, order: np.ndarray | None = None) -> list[list[int]]:
        """Indices in groups, in the given order."""
        indices = (np.arange(len(self)) if order is None else order).tolist()
        return [indices[start : start + batch_size] for start in range(0, len(self), batch_size)]

    def errors(self, potential: Trainable, indices: list[int], training: bool) -> tuple[Tensor, Tensor]:
        """Errors of the total energies and of the force components of one batch."""
        energies, forces, *_ = potential.training_outputs([self.graphs[i] for i in indices], training)
        return energies - self.energies[indices], forces - torch.cat([self.forces[i] for i in indices])


def check_sets(train: Sequence[Atoms], valid: Sequence[Atoms]) -> None:
    """Refuse sets that cannot be trained on."""
    for name, frames in (("training set", train), ("validation set", valid)):
        if not frames:
            raise InputError(f"the {name} is empty")
        check_labelled(frames, name)
        check_force_unit(frames, name)
    check_disjoint({"the training set": train, "the validation set": valid})
    unknown = structure_species(valid) - structure_species(train)
    if unknown:
        raise InputError(f"the validation set holds elements that the training set lacks: {sorted(unknown)}")


def untrained_network(frames: Sequence[Atoms], recipe: Recipe, dtype: torch.dtype, seed: int) -> Trainable:
    """A network of the recipe's architecture with random weights, made for these structures."""
    family = find_family(recipe.architecture.family)
    return family.build(recipe.architecture, energy_reference(frames, recipe), frames, dtype, seed)
