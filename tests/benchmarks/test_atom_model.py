import numpy as np
import pytest
from ase import Atoms
from benchmarks.uq.atom_model import SeenAtoms, expected_errors

from adaptntk.data.labels import FORCES

SCALES = {1: 0.5, 6: 1.0, 8: 3.0}


def seen(count, seed, symbols="C2OH6"):
    """Errors that follow from scores, the sizes of forces and the element, but for noise."""
    rng, variances, forces, structures = np.random.default_rng(seed), [], [], []
    for _ in range(count):
        atoms = Atoms(symbols, rng.normal(size=(9, 3)))
        v, predicted = np.exp(rng.normal(size=9)), rng.normal(size=(9, 3))
        size = v**0.4 * np.sqrt((predicted**2).mean(1)) ** 0.3 * [SCALES[z] for z in atoms.numbers]
        error = size * np.exp(0.05 * rng.normal(size=9))
        atoms.arrays[FORCES] = predicted - error[:, None]
        variances.append(v)
        forces.append(predicted)
        structures.append(atoms)
    return SeenAtoms.of(variances, forces, structures)


def test_what_errors_follow_from_is_found():
    known, asked = seen(30, 0), seen(20, 1)
    found, exact = np.concatenate(expected_errors(known, asked)), np.concatenate(asked.errors)
    assert [len(each) for each in expected_errors(known, asked)] == [9] * 20
    assert np.abs(np.log(found / exact)).mean() < 0.1
    ranks = asked.ranks("evaluation")
    assert ranks["evaluation_atoms_score_within"] < 0.9
    assert ranks["evaluation_atoms_force_size_within"] == pytest.approx(
        ranks["evaluation_atoms_force_size_over_all"], abs=0.3
    )


def test_unknown_elements_have_no_constant():
    found = expected_errors(seen(30, 0, "C3H6"), seen(5, 1))
    assert all(np.isfinite(each).all() for each in found)
