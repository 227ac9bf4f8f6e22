"""Labelled crystals for tests: metals under strain, by the effective medium theory that comes with ase."""

import ase.build
import numpy as np
from ase import Atoms
from ase.calculators.emt import EMT

from adaptntk.data.labels import ENERGY, FORCES, STRESS


def labelled_by_emt(atoms: Atoms, stress: bool = True) -> Atoms:
    """The structure with energy, forces and stress."""
    atoms.calc = EMT()
    atoms.info[ENERGY], atoms.arrays[FORCES] = atoms.get_potential_energy(), atoms.get_forces()
    if stress:
        atoms.info[STRESS] = atoms.get_stress(voigt=False)
    atoms.calc = None
    return atoms


def strained_metals(count: int, metals=("Cu",), strain=0.03, sizes=(1,), seed=0, stress=True) -> list[Atoms]:
    """Cubic cells, repeated, with atoms drawn from these metals, under random strain and displacement."""
    frames, rng = [], np.random.default_rng(seed)
    for number in range(count):
        atoms = ase.build.bulk("Cu", cubic=True).repeat((sizes[number % len(sizes)], 1, 1))
        atoms.symbols = rng.choice(list(metals), len(atoms))
        atoms.set_cell(atoms.cell @ (np.eye(3) + rng.normal(0, strain, (3, 3))), scale_atoms=True)
        atoms.rattle(0.05, rng=rng)
        frames.append(labelled_by_emt(atoms, stress))
    return frames
