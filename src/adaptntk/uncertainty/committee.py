"""A committee drawn from the posterior: by how much forces change when the parameters move in likely directions.

A direction ``d ~ N(0, lam (F + lam I)^-1)`` changes the forces by ``dF = [F(theta + h d) - F(theta)] / h``: one more
force call for each direction, whatever the number of atoms. Directions have mean zero, so the mean of ``dF^2`` over
them is the variance of each force component, in units of the prior as the score U is. The change of the energy needs
no difference: it is ``phi . d`` with the gradient ``phi = dE/dtheta``, exact even where float32 cannot resolve a step.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from adaptntk.core.metrics import Array
from adaptntk.data.structures import Structures
from adaptntk.errors import InputError
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.models.protocol import Potential, Predictions, SinglePoint, parameter_count
from adaptntk.progress import Progress, silent
from adaptntk.representation import short_repr
from adaptntk.uncertainty.feature_model import FeatureModel

log = logging.getLogger(__name__)

# Steps that are tried, as the change of the weights in units of their size.
_STEPS = 4.0 ** -np.arange(2, 16)
# By which fraction of force changes a step may be wrong at most, and which is nothing beside the noise of draws: the
# smaller the step, the more rounding makes copies of a structure differ (silicon in float64: at a hundredth by 4e-7 of
# the variance, at a thousandth by 2e-6).
_TOLERATED, _ENOUGH = 0.1, 1e-2
# So many directions and structures are enough to try a step.
_DIRECTIONS, _STRUCTURES = 4, 8


@short_repr
@dataclass(frozen=True)
class Changes:
    """What M directions do to the predictions for one structure; eV and Å, per unit of the prior.

    Args:
        point: what the potential itself says.
        energies: M; None where they were not asked for.
        forces: M x atoms x 3.
        stress: M x 3 x 3, where it was asked for and the structure is periodic in all directions.
        atom_energies: M x atoms, where the potential has such parts.
    """

    point: SinglePoint
    energies: Array | None
    forces: Array
    stress: Array | None = None
    atom_energies: Array | None = None

    @property
    def force_variance(self) -> Array:
        """Of every component: atoms x 3."""
        return np.asarray(np.mean(self.forces**2, axis=0))

    @property
    def stress_variance(self) -> Array | None:
        return None if self.stress is None else np.asarray(np.mean(self.stress**2, axis=0))


@short_repr
@dataclass(frozen=True)
class Spread:
    """Variances over a committee; eV and Å, per unit of the prior.

    Args:
        forces: atoms x 3 of each structure.
        atom_energies: one per atom of each structure, where the potential has such parts.
    """

    forces: list[Array]
    atom_energies: list[Array] | None = None

    @property
    def of_atoms(self) -> list[Array]:
        """Over the components of each atom."""
        return [variance.mean(axis=1) for variance in self.forces]

    @property
    def mean_forces(self) -> Array:
        """Over the components of each structure: what its mean squared force error is compared with."""
        return np.array([variance.mean() for variance in self.forces])


@short_repr
@dataclass(frozen=True)
class Members:
    """Predictions of M members: energies (structures x M, eV), and of each structure forces (M x atoms x 3, eV/Å)."""

    energies: Array
    forces: list[Array]


@short_repr
@dataclass(frozen=True)
class Committee:
    """Directions in the space of all parameters of a potential, which itself is never changed.

    Args:
        potential: as it is when the committee is asked first.
        directions: M x P.
        step: h, see `choose_step`.
        precision: in which members compute; that of the potential if None.
    """

    potential: Potential
    directions: Tensor
    step: float
    precision: torch.dtype | None = None

    def __post_init__(self) -> None:
        parameters = parameter_count(self.potential)
        if self.directions.ndim != 2 or self.directions.shape[1] != parameters or not len(self.directions):
            shape = " x ".join(map(str, self.directions.shape))
            raise InputError(f"the directions of a committee must be M x {parameters} (parameters), not {shape}")
        if not (np.isfinite(self.step) and self.step > 0):
            raise InputError(f"the step of a committee must be positive, not {self.step}")

    def __len__(self) -> int:
        return len(self.directions)

    def changes(
        self,
        structures: Structures,
        batch_size: int = 16,
        stress: bool = False,
        progress: Progress = silent,
        energies: bool = True,
    ) -> Iterator[Changes]:
        """Of one structure after the other: nothing is kept but the batch that is at work.

        M + 1 force calls, and a gradient of the energy where ``energies`` are wanted.
        """
        if stress and not self.potential.capabilities.stress:
            raise InputError(f"{self.potential.description} has no stress, and so no change of it")
        starts = range(0, len(structures), batch_size)
        for start in progress(starts, "force changes of the committee", len(starts)):
            yield from self._of_batch(structures[start : start + batch_size], stress, energies)

    def spread(self, structures: Structures, batch_size: int = 16, progress: Progress = silent) -> Spread:
        """The changes of all structures, reduced to their variances."""
        forces, of_atoms = [], []
        for each in self.changes(structures, batch_size, progress=progress, energies=False):
            forces.append(each.force_variance)
            if each.atom_energies is not None:
                of_atoms.append(np.mean(each.atom_energies**2, axis=0))
        return Spread(forces, of_atoms or None)

    def linearity(self, structures: Structures, step: float | None = None, batch_size: int = 16) -> Array:
        """By which fraction the force changes of each structure differ between the step, or another, and half of it.

        That is half of what curvature makes wrong, and about twice what rounding does. Zero where forces do not change.
        """
        found = self._differences(structures, step or self.step, batch_size)
        return np.array([difference / size if size else 0.0 for difference, size in found])

    def _differences(self, structures: Structures, step: float, batch_size: int = 16) -> list[tuple[float, float]]:
        """Of each structure: how far force changes by the step and by half of it are apart, and their size."""
        found: list[tuple[float, float]] = []
        for start in range(0, len(structures), batch_size):
            batch = structures[start : start + batch_size]
            base, *moved = (_all_forces(said) for said in self._predictions(batch, (step, step / 2)))
            whole = (np.stack(moved[: len(self)]) - base) / step
            half = (np.stack(moved[len(self) :]) - base) / (step / 2)
            for one, other in zip(_by_structure(whole, batch), _by_structure(half, batch), strict=True):
                found.append((float(np.linalg.norm(one - other)), float(np.linalg.norm(other))))
        return found

    @cached_property
    def _network(self) -> Potential:
        """A copy, which takes other weights."""
        return self.potential.in_precision(self.precision or self.potential.dtype)

    @cached_property
    def _weights(self) -> Tensor:
        return self.potential.weights()

    def _predictions(self, batch: Structures, steps: tuple[float, ...], stress: bool = False) -> Iterator[Predictions]:
        """Of the potential itself, then with a step in each direction; if there are several steps, with the next."""
        moved = (self._weights + step * direction.double().cpu() for step in steps for direction in self.directions)
        return self._network.predict_in_turn(batch, chain([self._weights], moved), stress)

    def _of_batch(self, batch: Structures, stress: bool, energies: bool) -> Iterator[Changes]:
        base, *moved = self._predictions(batch, (self.step,), stress)
        forces = (np.stack([_all_forces(said) for said in moved]) - _all_forces(base)) / self.step
        of_energies = self._energies(batch) if energies else [None] * len(batch)
        parts = [np.concatenate(said.atom_energies) for said in (base, *moved) if said.atom_energies is not None]
        of_atoms = _by_structure((np.stack(parts[1:]) - parts[0]) / self.step, batch) if parts else [None] * len(batch)
        for index, of_structure in enumerate(_by_structure(forces, batch)):
            asked = (said.stress[index] for said in (base, *moved) if said.stress is not None)
            tensors = [tensor for tensor in asked if tensor is not None]
            change = (np.stack(tensors[1:]) - tensors[0]) / self.step if tensors else None
            point = SinglePoint(float(base.energies[index]), base.forces[index], tensors[0] if tensors else None)
            yield Changes(point, of_energies[index], of_structure, change, of_atoms[index])

    def _energies(self, batch: Structures) -> Array:
        """Structures x M."""
        gradients = self.potential.energy_gradients([self.potential.graph(atoms) for atoms in batch])
        return (gradients.double() @ self.directions.to(gradients.device, torch.float64).T).cpu().numpy()


def choose_step(
    potential: Potential, directions: Tensor, structures: Structures, precision: torch.dtype | None = None
) -> float:
    """The step at which differences of forces are closest to their limit, for some of the structures and directions.

    Curvature makes them wrong by ``c h``, rounding by ``n / h``. Steps are tried from large to small, each against half
    of it: that differs by ``c h / 2`` and about ``2 n / h``, least at twice the best step. So half is taken of the step
    where it is least, or small enough.
    """
    sample = [structures[i] for i in np.linspace(0, len(structures) - 1, min(len(structures), _STRUCTURES)).astype(int)]
    tried = directions[:_DIRECTIONS]
    size = float(tried.double().square().mean().sqrt())
    if not 0 < size < np.inf:
        raise InputError("the directions of a committee must be finite, and not zero")
    committee = Committee(potential, tried, float(potential.weights().square().mean().sqrt()) / size, precision)
    best, step = np.inf, np.nan
    for trial in (committee.step * _STEPS).tolist():
        # All together: where forces vanish by symmetry, as in a perfect crystal, their changes are rounding alone.
        apart, size = np.linalg.norm(committee._differences(sample, trial), axis=0)
        difference = float(apart / size) if apart and size else np.inf
        if difference < best:
            best, step = difference, trial
        if best < _ENOUGH or (best < _TOLERATED and not difference < 4 * best):
            break
    if not best < _TOLERATED:
        found = f"at best {best:.0%}" if best < np.inf else "they do not change at all"
        what = f"no step gives force changes of a committee that are right to {_TOLERATED:.0%} ({found})"
        raise InputError(f"{what}: use other structures, or a model in float64")
    return step / 2


def _all_forces(predicted: Predictions) -> Array:
    """Of all atoms of the batch, one below the other."""
    return np.concatenate(predicted.forces)


def _by_structure(forces: Array, batch: Structures) -> list[Array]:
    """(M, all atoms, 3) to (M, atoms, 3) of each structure."""
    return np.split(forces, np.cumsum([len(atoms) for atoms in batch])[:-1], axis=1)


@dataclass(frozen=True)
class Drawn:
    """All that must be known to draw a committee from a posterior again: few numbers instead of M x P.

    ``precision`` is the name of that in which its members compute, if it is not the model's.
    """

    members: int
    seed: int
    step: float
    precision: str | None = None

    @classmethod
    def choose(
        cls, members: int, seed: int, potential: Potential, features: FeatureModel, structures: Structures
    ) -> "Drawn":
        """With the step that suits the network on structures like these.

        Where much is known, directions of single precision change forces by little more than their rounding: such a
        committee computes in double precision, which takes half as long again.
        """
        directions = _directions(members, seed, potential, features)
        try:
            return cls(members, seed, choose_step(potential, directions, structures))
        except InputError as error:
            if potential.dtype == torch.float64:
                raise
            log.info("the committee computes in float64: %s", str(error).split(":")[0])
        return cls(members, seed, choose_step(potential, directions, structures, torch.float64), "float64")

    def committee(self, potential: Potential, features: FeatureModel) -> Committee:
        """The committee itself."""
        precision = None if self.precision is None else getattr(torch, self.precision)
        return Committee(potential, _directions(self.members, self.seed, potential, features), self.step, precision)


def _directions(members: int, seed: int, potential: Potential, features: FeatureModel) -> Tensor:
    """``S^T w`` of rows ``w ~ N(0, lam C^-1)`` in the space of the features."""
    feature_map = features.feature_map
    if not isinstance(feature_map, EnergyGradients):
        raise InputError(f"a committee moves the parameters of a model: features {feature_map.name} are of others")
    return feature_map.sketch.transpose(features.posterior.draw(members, seed), parameter_count(potential))
