import dataclasses

import numpy as np
import pytest
from ase import Atoms

from adaptntk.data.structures import ENERGY, FORCES
from adaptntk.errors import InputError
from adaptntk.training.labelled import energy_reference
from adaptntk.training.loop import TrainingOptions, train
from tests.conftest import TINY_RECIPE

SHORT = dataclasses.replace(TINY_RECIPE, epochs=4)


def mixed_sizes():
    rng = np.random.default_rng(0)
    frames = []
    for symbols, energy in (("H2", -2.0), ("OH2", -12.5), ("O2", -21.0)) * 2:
        atoms = Atoms(symbols, positions=rng.uniform(0, 3, (len(Atoms(symbols)), 3)))
        atoms.info[ENERGY], atoms.arrays[FORCES] = energy, rng.standard_normal((len(atoms), 3))
        frames.append(atoms)
    return frames


def test_energy_reference_by_element():
    reference = energy_reference(mixed_sizes(), SHORT)
    assert reference.atomic_numbers == (1, 8)
    counts = np.array([[2, 0], [2, 1], [0, 2]])
    expected = np.linalg.lstsq(counts, np.array([-2.0, -12.5, -21.0]), rcond=None)[0]
    assert np.allclose(reference.isolated_energies, expected)


def test_energy_reference_of_the_paper():
    recipe = dataclasses.replace(SHORT, element_energies=False, force_scale=False)
    reference = energy_reference(mixed_sizes(), recipe)
    per_atom = np.array([-1.0, -12.5 / 3, -10.5] * 2)
    assert reference.isolated_energies == (0.0, 0.0)
    assert reference.shift == pytest.approx(per_atom.mean())
    assert reference.scale == pytest.approx(per_atom.std())


def test_bad_sets(parts, tmp_path):
    output = tmp_path / "a.model"
    with pytest.raises(InputError, match="must not overlap"):
        train(parts["train"], parts["train"][:3], output, SHORT)
    with pytest.raises(InputError, match="validation set is empty"):
        train(parts["train"], [], output, SHORT)
    with pytest.raises(InputError, match="does not exist"):
        train(parts["train"], parts["valid"], tmp_path / "no" / "a.model", SHORT)
    with pytest.raises(InputError, match="unknown dtype"):
        train(parts["train"], parts["valid"], output, SHORT, options=TrainingOptions("float8"))
    assert not output.exists()
