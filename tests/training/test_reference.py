"""Energies of elements from energies of structures."""

import dataclasses
import logging

import numpy as np
import pytest
from ase import Atoms

from adaptntk.data.structures import ENERGY, FORCES, write_structures
from adaptntk.errors import InputError
from adaptntk.training.recipe import PRESETS
from adaptntk.training.reference import counting_from, energy_reference, fit_compositions, prepare
from tests.conftest import TINY_RECIPE

TRUE = np.array([-13.6, -1029.3, -2041.0])


def spread(counts, rng, noise):
    """Energies of structures: those of their atoms, and so much per atom that composition does not explain."""
    return counts @ TRUE[: counts.shape[1]] + counts.sum(axis=1) * rng.normal(0, noise, len(counts))


def test_compositions_that_differ_give_the_true_energies():
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 9, (40, 3)).astype(float)
    exact = fit_compositions(counts, counts @ TRUE)
    assert exact.known
    assert np.allclose(exact.energies, TRUE, atol=1e-8)
    noisy = fit_compositions(counts, spread(counts, rng, 0.02))
    assert np.allclose(noisy.energies, TRUE, atol=0.1)
    assert noisy.spread == pytest.approx(0.02, rel=0.3)


def test_one_composition_gives_all_elements_the_same():
    rng = np.random.default_rng(0)
    counts = np.tile([6.0, 2.0, 1.0], (30, 1))
    energies = spread(counts, rng, 0.02)
    found = fit_compositions(counts, energies)
    assert not found.known
    assert np.allclose(found.energies, (energies / 9).mean())
    assert fit_compositions(counts[:1], energies[:1]).spread == 0.0


def test_elements_that_always_come_together_are_not_told_apart():
    rng = np.random.default_rng(0)
    groups, oxygen = rng.integers(1, 5, 30), rng.integers(0, 4, 30)
    counts = np.stack([2 * groups, groups, oxygen], axis=1).astype(float)
    found = fit_compositions(counts, counts @ TRUE)
    assert not found.known
    assert np.allclose(counts @ found.energies, counts @ TRUE)
    assert found.energies[2] == pytest.approx(TRUE[2])
    assert (found.energies < 0).all()


@pytest.mark.parametrize("noise", [1e-3, 1e-2, 1e-1])
def test_nearly_the_same_compositions_give_nothing_absurd(noise):
    """512 atoms of which one or another is missing: plain least squares finds hundreds of eV in the noise."""
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 2, (2, 50))
    counts = np.stack([256.0 - one, 256.0 - other], axis=1)
    energies = counts @ np.array([-5.0, -4.0]) + 512 * rng.normal(0, noise, 50)
    found = fit_compositions(counts, energies).energies
    assert np.abs(found + 4.5).max() < 2.0
    plain = np.linalg.lstsq(counts, energies, rcond=None)[0]
    assert np.abs(plain + 4.5).max() > 2.0 or noise < 0.1


def test_a_rare_dopant_counts():
    rng = np.random.default_rng(0)
    dopant = (np.arange(50) % 10 == 0).astype(float)
    counts = np.stack([dopant, 64 - dopant], axis=1)
    energies = counts @ np.array([-13.6, -5.4]) + 64 * rng.normal(0, 0.003, 50)
    found = fit_compositions(counts, energies)
    assert found.known
    assert np.allclose(found.energies, [-13.6, -5.4], atol=1.0)


def labelled(symbols, energy):
    atoms = Atoms(symbols, positions=3.0 * np.arange(3 * len(Atoms(symbols))).reshape(-1, 3))
    atoms.info[ENERGY], atoms.arrays[FORCES] = energy, np.ones((len(atoms), 3))
    return atoms


def test_it_is_said_when_elements_cannot_be_told_apart(caplog):
    caplog.set_level(logging.INFO)
    water = [labelled("OH2", -12.5), labelled("OH2", -12.4)]
    assert energy_reference(water, TINY_RECIPE).isolated_energies == pytest.approx([-4.15, -4.15])
    assert not caplog.text  # one composition: who has it knows
    energy_reference([labelled("COH4", -22.5), labelled("C2OH6", -33.4)], TINY_RECIPE)
    assert "energies of other compositions mean nothing" in caplog.text
    caplog.clear()
    energy_reference([*water, labelled("H2", -2.0), labelled("O2", -21.0)], TINY_RECIPE)
    energy_reference([labelled("H2", -2.0)], TINY_RECIPE)
    energy_reference(water, dataclasses.replace(TINY_RECIPE, element_energies=False))
    assert not caplog.text


def isolated(symbol, energy):
    return Atoms(symbol, info={ENERGY: energy, "config_type": "IsolatedAtom"})


WATER = [labelled("OH2", -12.5), labelled("OH2", -12.4)]
ATOMS = [isolated("H", -1.0), isolated("O", -9.0)]


def test_isolated_atoms_give_energies_and_are_left_out(caplog):
    caplog.set_level(logging.INFO)
    train, valid, recipe = prepare([*ATOMS, WATER[0]], [ATOMS[0], WATER[1]], TINY_RECIPE)
    assert (train, valid) == (WATER[:1], WATER[1:])
    assert recipe.e0s == ((1, -1.0), (8, -9.0))
    assert caplog.text.count("isolated atoms of H, O: are no training structures; energies count from theirs") == 1
    reference = energy_reference(train, recipe)
    assert reference.isolated_energies == (-1.0, -9.0)
    assert reference.shift == 0.0
    paper = dataclasses.replace(TINY_RECIPE, element_energies=False)
    assert prepare([*ATOMS, WATER[0]], WATER[1:], paper)[2] == paper
    assert energy_reference(train, paper).isolated_energies == (0.0, 0.0)
    assert "energies count from others" in caplog.text


def test_isolated_atoms_of_some_elements_are_not_enough():
    train, _, recipe = prepare([ATOMS[0], WATER[0]], WATER[1:], TINY_RECIPE)
    with pytest.raises(InputError, match="no energy is given of an isolated O"):
        energy_reference(train, recipe)


def test_what_energies_count_from(tmp_path):
    write_structures(tmp_path / "atoms.xyz", ATOMS)
    (tmp_path / "atoms.json").write_text('{"1": -1.0, "O": -9.0}')
    texts = ("H=-1 O=-9", "{1: -1.0, 8: -9}", str(tmp_path / "atoms.xyz"), str(tmp_path / "atoms.json"))
    for text in (*texts, {"H": -1.0, "O": -9.0}):
        assert counting_from(TINY_RECIPE, text, "--e0s").e0s == ((1, -1.0), (8, -9.0))
    given = dataclasses.replace(TINY_RECIPE, e0s={"O": -9.0, 1: -1})
    assert given.e0s == ((1, -1.0), (8, -9.0))
    assert energy_reference(WATER, given).isolated_energies == (-1.0, -9.0)
    assert prepare([*ATOMS, WATER[0]], WATER[1:], given)[2] == given
    for name in ("average", "elements"):
        average = counting_from(PRESETS["paper"], name, "--e0s")
        assert prepare([*ATOMS, WATER[0]], WATER[1:], average)[2].e0s == ()
        assert energy_reference(WATER, average).isolated_energies == pytest.approx([-4.15, -4.15])
    assert not counting_from(given, "mean", "--e0s").element_energies
    isolated_ones = counting_from(PRESETS["paper"], "isolated", "--e0s")
    assert prepare([*ATOMS, WATER[0]], WATER[1:], isolated_ones)[2].e0s == ((1, -1.0), (8, -9.0))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("none", "--e0s: 'none' is none of isolated, average, mean"),
        ("Q=1", "--e0s: 'Q' is no chemical element"),
        ("nothing.json", "nothing.json: no such file"),
        ("water.xyz", "holds structures of several atoms"),
        ("H=" + 5000 * "1", "must be a number in eV"),
    ],
)
def test_what_energies_cannot_count_from(tmp_path, monkeypatch, text, why):
    monkeypatch.chdir(tmp_path)
    write_structures("water.xyz", [*ATOMS, *WATER[:1]])
    with pytest.raises(InputError, match=why):
        counting_from(TINY_RECIPE, text, "--e0s")
