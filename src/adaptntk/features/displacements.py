"""How the gradient of the energy changes when atoms are moved: the rows that forces and stress teach.

With ``F = -dE/dR`` and a direction v of all atoms, ``d(v.F)/dtheta`` is the change of ``-dE/dtheta`` along v: by a
central difference, ``-[g(R + h v) - g(R - h v)] / 2h`` with ``g = dE/dtheta``. In the same way the change along a
strain e of the cell is ``d(e:V)/dtheta``, of the virial ``V = -dE/de``.
"""

from collections.abc import Iterator

import numpy as np
import torch
from ase import Atoms
from numpy.typing import NDArray

from adaptntk.data.structures import structure_hash

# Å. The error of a row grows as h^2, and as 1/h by the rounding of the gradients. Measured against double backward
# passes through stock MACE networks (620 to 53,488 parameters, trained or not; ethanol, silicon in cells of 8 and 64
# atoms; medians over four directions, relative to the length of the row):
# float64  h = 1e-6: 1e-10 .. 5e-9   1e-5: 3e-9 .. 1e-8   1e-4: 3e-7 .. 1e-6   1e-3: 3e-5 .. 1e-4
# float32  h = 1e-4: 6e-4 .. 8e-3    1e-3: 8e-5 .. 8e-4   2e-3: 1e-4 .. 7e-4   1e-2: 3e-3 .. 1e-2
# Scores by a trained network in float32 were within 7e-4 of those in float64 (ethanol, 30 labels, K = 8, h = 1e-3,
# alpha = 1e-10 .. 1e-4); with h = 1e-2 within 5e-2.
_STEPS = {torch.float64: 1e-5}
_STEP = 1e-3  # float32, and what is not known
# A strain moves neighbours at this distance (Å) by the step.
_LEVER = 2.5


def step(dtype: torch.dtype) -> float:
    """h, for a network of this precision."""
    return _STEPS.get(dtype, _STEP)


def directions(atoms: Atoms, count: int) -> NDArray[np.float64]:
    """Standard normal numbers (count, atoms, 3) that depend on the structure alone; more begin with the same ones."""
    seed = int(structure_hash(atoms), 16)
    return np.random.Generator(np.random.PCG64(seed)).standard_normal((count, len(atoms), 3))


def displaced(atoms: Atoms, count: int, dtype: torch.dtype) -> Iterator[tuple[Atoms, Atoms]]:
    """The structure moved against and along each of its directions, by the step."""
    for direction in step(dtype) * directions(atoms, count):
        moved = [atoms.copy(), atoms.copy()]
        for copy, way in zip(moved, (-direction, direction), strict=True):
            copy.positions += way
        yield moved[0], moved[1]


def strain_step(dtype: torch.dtype) -> float:
    """The same for strains."""
    return step(dtype) / _LEVER


def strains(atoms: Atoms, count: int) -> NDArray[np.float64]:
    """Random symmetric tensors (count, 3, 3) of the structure; the square of ``e:V`` is on average that of all of V.

    Numbers on the diagonal have the variance 1, and each pair of others together that of one number of V counted twice.
    """
    seed = int(structure_hash(atoms), 16)
    numbers = np.random.Generator(np.random.PCG64([seed, 1])).standard_normal((count, 3, 3))
    return np.asarray(np.triu(numbers) + np.triu(numbers, 1).transpose(0, 2, 1)) * np.where(np.eye(3), 1, 0.5**0.5)


def strained(atoms: Atoms, count: int, dtype: torch.dtype) -> Iterator[tuple[Atoms, Atoms]]:
    """The structure strained against and along each of its strains, by the step."""
    for strain in strain_step(dtype) * strains(atoms, count):
        moved = [atoms.copy(), atoms.copy()]
        for copy, way in zip(moved, (-strain, strain), strict=True):
            copy.set_cell(copy.cell.array @ (np.eye(3) + way), scale_atoms=True)
        yield moved[0], moved[1]
