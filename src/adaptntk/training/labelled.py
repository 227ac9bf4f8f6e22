"""Labelled structures as a network is trained on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from ase import Atoms
from torch import Tensor

from adaptntk.data.labels import check_stress_unit, reference_stresses
from adaptntk.data.splits import check_disjoint
from adaptntk.data.structures import (
    check_force_unit,
    check_labelled,
    reference_energies,
    reference_forces,
    structure_species,
)
from adaptntk.errors import InputError
from adaptntk.models.family import Outputs, Trainable
from adaptntk.models.registry import find_family
from adaptntk.training.recipe import Recipe
from adaptntk.training.reference import energy_reference


class Errors(NamedTuple):
    """Errors of a batch: of total energies (eV), of force components (eV/Å), and of the stress where it is labelled.

    Those of the stress are of the virial per atom, stress x volume / atoms (eV), 3 x 3 for each structure that has
    the label; None where none has.
    """

    energies: Tensor
    forces: Tensor
    stress: Tensor | None


@dataclass(frozen=True)
class LabelledSet:
    """Graphs and labels of one set; energies are counted from the isolated atoms.

    ``virials`` per atom are None for what has no label of the stress, ``volumes`` per atom are 1 there.
    """

    graphs: list[Any]
    energies: Tensor
    forces: list[Tensor]
    sizes: Tensor
    virials: list[Tensor | None]
    volumes: Tensor

    @classmethod
    def make(cls, potential: Trainable, frames: Sequence[Atoms], recipe: Recipe | None = None) -> "LabelledSet":
        """The set as that network sees it; stress is looked at if the recipe gives it a weight."""
        # Counted from the isolated energies as the network stores them, and subtracted in float64.
        isolated = potential.isolated_energies
        offsets = np.array([sum(isolated[int(z)] for z in atoms.numbers) for atoms in frames])
        to_tensor = partial(torch.tensor, dtype=potential.dtype, device=potential.device)
        known = recipe is not None and recipe.stress_weight > 0 and potential.capabilities.stress
        stresses = reference_stresses(frames) if known else [None] * len(frames)
        volumes = [1.0 if s is None else a.get_volume() / len(a) for a, s in zip(frames, stresses, strict=True)]
        return cls(
            [potential.graph(atoms) for atoms in frames],
            to_tensor(reference_energies(frames) - offsets),
            [to_tensor(forces) for forces in reference_forces(frames)],
            to_tensor([len(atoms) for atoms in frames]),
            [None if s is None else to_tensor(s * volume) for s, volume in zip(stresses, volumes, strict=True)],
            to_tensor(volumes),
        )

    def __len__(self) -> int:
        return len(self.graphs)

    def batch_size(self, recipe: Recipe) -> int:
        """Structures in a batch: what the recipe says, or as many as have its number of atoms together."""
        # Two at least: a structure has one energy, whatever its size.
        return recipe.batch_size or max(2, round(recipe.batch_atoms / float(self.sizes.mean())))

    def batches(self, batch_size: int, order: np.ndarray | None = None) -> list[list[int]]:
        """Indices in groups, in the given order."""
        indices = (np.arange(len(self)) if order is None else order).tolist()
        return [indices[start : start + batch_size] for start in range(0, len(self), batch_size)]

    @property
    def stressed(self) -> bool:
        """Whether any structure has a label of the stress."""
        return any(virial is not None for virial in self.virials)

    def errors(self, potential: Trainable, indices: list[int], training: bool) -> Errors:
        """Errors of one batch."""
        graphs = [self.graphs[i] for i in indices]
        virials = {place: virial for place, i in enumerate(indices) if (virial := self.virials[i]) is not None}
        # Asked for only where it is needed: it takes longer, and not every network knows the word.
        found = Outputs(*potential.training_outputs(graphs, training, **({"stress": True} if virials else {})))
        energies = found.energies - self.energies[indices]
        forces = found.forces - torch.cat([self.forces[i] for i in indices])
        if not virials or found.stress is None:
            return Errors(energies, forces, None)
        places = list(virials)
        volumes = self.volumes[[indices[place] for place in places]]
        predicted = found.stress[places] * volumes.view(-1, 1, 1)
        return Errors(energies, forces, predicted - torch.stack([virials[place] for place in places]))


def check_sets(train: Sequence[Atoms], valid: Sequence[Atoms]) -> None:
    """Refuse sets that cannot be trained on."""
    for name, frames in (("training set", train), ("validation set", valid)):
        if not frames:
            raise InputError(f"the {name} is empty")
        check_labelled(frames, name)
        check_force_unit(frames, name)
        check_stress_unit(frames, name)
    check_disjoint({"the training set": train, "the validation set": valid})
    unknown = structure_species(valid) - structure_species(train)
    if unknown:
        raise InputError(f"the validation set holds elements that the training set lacks: {sorted(unknown)}")


def untrained_network(frames: Sequence[Atoms], recipe: Recipe, dtype: torch.dtype, seed: int) -> Trainable:
    """A network of the recipe's architecture with random weights, made for these structures."""
    family = find_family(recipe.architecture.family)
    return family.build(recipe.architecture, energy_reference(frames, recipe), frames, dtype, seed)
