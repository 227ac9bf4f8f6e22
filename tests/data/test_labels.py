import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.stress import full_3x3_to_voigt_6_stress

from adaptntk.data.labels import (
    ENERGY,
    FORCES,
    STRESS,
    check_stress_unit,
    is_isolated,
    parse_energies,
    reference_stresses,
    split_isolated,
)
from adaptntk.data.structures import check_labelled, open_structures, read_structures, write_structures
from adaptntk.errors import InputError
from tests.crystals import strained_metals


def isolated(symbol, energy=-10.0, kind="IsolatedAtom", **more):
    return Atoms(symbol, positions=[[0, 0, 0]], info={ENERGY: energy, "config_type": kind}, **more)


def test_isolated_atoms_are_known_by_their_mark():
    assert is_isolated(isolated("H"))
    assert is_isolated(isolated("H", kind="isolated_atom"))
    assert not is_isolated(isolated("H", kind="300K_MD"))
    assert not is_isolated(Atoms("H"))
    assert not is_isolated(Atoms("H2", positions=[[0, 0, 0], [0, 0, 1]], info={"config_type": "IsolatedAtom"}))


def test_isolated_atoms_are_no_structures():
    frames = strained_metals(2)
    mixed = [isolated("Cu", -3.0), frames[0], isolated("H", -13.6), frames[1]]
    found, energies = split_isolated(mixed, "a.xyz")
    assert found == frames
    assert energies == {29: -3.0, 1: -13.6}
    assert split_isolated(frames, "a.xyz") == (frames, {})
    check_labelled(mixed, "a.xyz")


def test_isolated_atoms_that_are_none():
    crystal = isolated("Cu", cell=np.eye(3) * 2.5, pbc=True)
    in_a_box = isolated("Cu", cell=np.eye(3) * 12.0, pbc=True)
    assert split_isolated([in_a_box], "a")[1] == {29: -10.0}
    with pytest.raises(InputError, match="frame 0: is marked IsolatedAtom, but its own images"):
        split_isolated([crystal], "a.xyz")
    with pytest.raises(InputError, match="frame 1: another energy of an isolated H"):
        split_isolated([isolated("H", -13.6), isolated("H", -13.5)], "a.xyz")
    bare = isolated("H")
    del bare.info[ENERGY]
    with pytest.raises(InputError, match="frame 0: an isolated atom without REF_energy"):
        split_isolated([bare], "a.xyz")


def test_files_with_isolated_atoms_that_have_no_forces(tmp_path):
    path = tmp_path / "a.xyz"
    write_structures(path, [isolated("H", -13.6), *strained_metals(2)])
    frames = read_structures(path, labelled=True)
    assert [is_isolated(atoms) for atoms in frames] == [True, False, False]
    assert len(open_structures(path, labelled="partly")) == 3
    unlabelled = isolated("O")
    del unlabelled.info[ENERGY]
    write_structures(path, [unlabelled])
    for labelled in (True, "partly"):
        with pytest.raises(InputError, match="frame 0: no label 'REF_energy'"):
            read_structures(path, labelled=labelled)


@pytest.mark.parametrize(
    "text", ["H=-13.6 C=-1029.3", "H: -13.6, c: -1029.3", "{1: -13.6, 6: -1029.3}", '{"H": -13.6, "C": -1029.3}']
)
def test_energies_of_elements_are_written_in_many_ways(text):
    assert parse_energies(text, "--e0s") == {1: -13.6, 6: -1029.3}
    assert parse_energies({"H": -13.6, 6: "-1029.3"}, "--e0s") == {1: -13.6, 6: -1029.3}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Xx=-3", "'Xx' is no chemical element"),
        ("H=abc", "the energy of H must be a number in eV, not 'abc'"),
        ("H=nan", "must be a number"),
        ("H=-1 1=-2", "has two energies of H"),
        ("H", "'H' is no energy of an element"),
        ("", "no energies in it"),
        ("0=-1", "'0' is no chemical element"),
    ],
)
def test_energies_that_cannot_be_understood(text, why):
    with pytest.raises(InputError, match=f"--e0s: .*{why}"):
        parse_energies(text, "--e0s")


def test_stress_is_read_in_every_form(tmp_path):
    frames = strained_metals(3)
    expected = [atoms.info[STRESS] for atoms in frames]
    for form in (lambda s: s, lambda s: s.ravel(), full_3x3_to_voigt_6_stress):
        written = [atoms.copy() for atoms in frames]
        for atoms, stress in zip(written, expected, strict=True):
            atoms.info[STRESS] = form(stress)
        write_structures(tmp_path / "a.xyz", written)
        found = read_structures(tmp_path / "a.xyz", labelled=True)
        assert all(np.allclose(a.info[STRESS], s, atol=1e-8) for a, s in zip(found, expected, strict=True))
        assert np.allclose(reference_stresses(written), expected)


@pytest.mark.parametrize("name", ["a.xyz", "a.traj"])
def test_stress_of_a_calculator(tmp_path, name):
    frames = strained_metals(3)
    for atoms in frames:
        stress = full_3x3_to_voigt_6_stress(atoms.info.pop(STRESS))
        energy, forces = atoms.info.pop(ENERGY), atoms.arrays.pop(FORCES)
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces, stress=stress)
    ase.io.write(tmp_path / name, frames)
    found = read_structures(tmp_path / name, "energy", "forces", labelled=True, stress_key="stress")
    stresses = zip(reference_stresses(found), frames, strict=True)
    assert all(np.allclose(stress, atoms.get_stress(voigt=False), atol=1e-8) for stress, atoms in stresses)
    assert all(STRESS not in a.info for a in read_structures(tmp_path / name, "energy", "forces", labelled=True))


def test_structures_may_lack_stress(tmp_path):
    molecule = isolated("Cu", kind="dimer")
    molecule.arrays[FORCES], molecule.info[STRESS] = np.zeros((1, 3)), np.zeros((3, 3))
    write_structures(tmp_path / "a.xyz", [*strained_metals(2), *strained_metals(3, stress=False)[2:], molecule])
    found = reference_stresses(read_structures(tmp_path / "a.xyz", labelled=True))
    assert [stress is None for stress in found] == [False, False, True, True]
    for read in (read_structures, open_structures):
        with pytest.raises(InputError, match="no frame has a label 'dft_stress'"):
            read(tmp_path / "a.xyz", labelled=True, stress_key="dft_stress")


@pytest.mark.parametrize(
    ("stress", "why"),
    [
        (np.full((3, 3), np.nan), "is NaN or infinite"),
        (np.arange(9.0).reshape(3, 3), "is not symmetric"),
        (np.zeros(4), "must be 3 x 3 or 6 numbers"),
        ("none", "must be 3 x 3 or 6 numbers"),
    ],
)
def test_stress_that_is_none(tmp_path, stress, why):
    frames = strained_metals(2)
    frames[1].info[STRESS] = stress
    write_structures(tmp_path / "a.xyz", frames)
    with pytest.raises(InputError, match=f"frame 1: REF_stress {why}"):
        read_structures(tmp_path / "a.xyz", labelled=True)
    read_structures(tmp_path / "a.xyz")  # where it is not asked for


def test_stress_in_gpa_is_noticed():
    frames = strained_metals(3)
    check_stress_unit(frames, "training set")
    check_stress_unit([], "training set")
    for atoms in frames:
        atoms.info[STRESS] = atoms.info[STRESS] * 1602.18
    with pytest.raises(InputError, match="look like GPa or kbar"):
        check_stress_unit(frames, "training set")
