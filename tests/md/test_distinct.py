"""How far structures are apart: the same measure for two atoms and for five hundred, blind to how they are written."""

import time

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, molecule

from adaptntk.data.structures import read_structures
from adaptntk.md.distinct import Distinct, structure_distance
from adaptntk.md.exploration import sift

STRUCTURES = {
    "N2": molecule("N2"),
    "water": molecule("H2O"),
    "ethanol": molecule("CH3CH2OH"),
    "C60": molecule("C60"),
    "silicon, 2": bulk("Si"),
    "silicon, 64": bulk("Si", cubic=True) * (2, 2, 2),
    "silicon, 512": bulk("Si", cubic=True) * (4, 4, 4),
    "copper, 108": bulk("Cu", cubic=True) * (3, 3, 3),
    "salt, 64": bulk("NaCl", "rocksalt", 5.64, cubic=True) * (2, 2, 2),
}


def moved(atoms: Atoms, amplitude: float, seed: int) -> Atoms:
    found = atoms.copy()
    found.positions += np.random.default_rng(seed).normal(scale=amplitude, size=(len(atoms), 3))
    return found


def disguised(atoms: Atoms, seed: int = 5) -> Atoms:
    """Turned, shifted, wrapped and renumbered."""
    rng = np.random.default_rng(seed)
    found = atoms[rng.permutation(len(atoms))]
    found.rotate(37, (1, 2, 0.3), rotate_cell=True)
    found.positions += [1.3, 0.2, 5.0]
    found.wrap()
    return found


@pytest.mark.parametrize("name", STRUCTURES)
def test_the_distance_is_how_far_atoms_moved_whatever_the_size(name):
    perfect = STRUCTURES[name]
    for start in (perfect, moved(perfect, 0.08, 1)):
        for amplitude in (0.01, 0.1):
            draws = range(60 if len(perfect) < 10 else 2)  # the move of two atoms is one number
            found = [structure_distance(start, moved(start, amplitude, 7 + seed)) for seed in draws]
            assert np.sqrt(np.mean(np.square(found))) == pytest.approx(amplitude, rel=0.3)


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_copy_is_a_copy_however_it_is_written(name):
    perfect = STRUCTURES[name]
    hot = moved(perfect, 0.08, 1)
    for atoms in (perfect, hot):
        assert structure_distance(atoms, disguised(atoms)) < 1e-3
        assert structure_distance(atoms, moved(disguised(atoms), 0.01, 3)) < 0.05
    if len(perfect) > 3:
        # Two moments of a hot crystal are none: sorted distances alone would say so.
        assert structure_distance(hot, moved(perfect, 0.08, 2)) > 0.05
        assert structure_distance(hot, disguised(moved(perfect, 0.08, 2))) > 0.05


def test_who_stands_where_and_strains_count():
    salt = STRUCTURES["salt, 64"]
    swapped = salt.copy()
    swapped.numbers[[0, 1]] = swapped.numbers[[1, 0]]
    assert structure_distance(salt, swapped) > 0.1
    strained = salt.copy()
    strained.set_cell(strained.cell * 1.005, scale_atoms=True)
    assert structure_distance(salt, strained) == pytest.approx(0.1, rel=0.05)
    assert structure_distance(salt, salt[:-1]) == np.inf
    assert structure_distance(Atoms("H"), Atoms("H", positions=[[1, 0, 0]])) == 0
    far, farther = (Atoms("ArAr", positions=[[0, 0, 0], [0, 0, z]]) for z in (8, 9))
    assert structure_distance(far, farther) > 0.5


def test_simulations_of_crystals_are_kept_and_copies_are_not(real_data):
    silicon_data = read_structures(real_data / "silicon" / "Si_training.xyz", unique=False)
    frames = [atoms for atoms in silicon_data if atoms.info["config_type"] in ("AIMD-NVT", "Vacancy")]
    copies = [moved(disguised(atoms), 0.002, 0) for atoms in frames[:10]]
    found = sift([*frames, *copies])
    assert len(found.taken) >= 0.97 * len(frames)
    assert found.dropped["too near to another (0.05 Å)"] == len(frames) + 10 - len(found.taken)
    assert not {id(atoms) for atoms in copies} & {id(atoms) for atoms in found.taken}
    # Strained crystals: those dropped are equal by symmetry, as their energies are.
    strained = [atoms for atoms in silicon_data if atoms.info["config_type"] == "Elastic"]
    kept = sift(strained).taken
    energies = {round(atoms.info["REF_energy"], 2) for atoms in kept}
    assert 10 < len(kept) < len(strained)
    assert all(min(abs(atoms.info["REF_energy"] - e) for e in energies) < 0.05 for atoms in strained)


@pytest.mark.long
def test_hundreds_of_large_frames_take_seconds():
    crystal, began = STRUCTURES["silicon, 512"], time.process_time()
    distinct = Distinct(0.05)
    assert all(distinct.add(moved(crystal, 0.05, seed)) for seed in range(100))
    assert time.process_time() - began < 60
