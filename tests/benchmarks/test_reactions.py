"""Reaction paths with xTB, and the layout of Transition-1X."""

import dataclasses
from pathlib import Path

import h5py
import numpy as np
import pytest
from ase import Atoms
from benchmarks.reactions.paths import Failure, bonds_of, build_ends, make_path, make_reactions
from benchmarks.reactions.recipes import REACTIONS, Recipe
from benchmarks.reactions.transition1x import (
    ENERGIES_KEY,
    Reaction,
    find_reactions,
    level_of_theory,
    sample_frames,
    split_reactions,
    transition_states,
    write_transition1x,
)
from tblite.ase import TBLite

from adaptntk.data.structures import reference_energies, reference_forces
from adaptntk.errors import InputError
from tests.benchmarks.conftest import succeed
from tests.data_files.make import thinned

NITROUS = next(recipe for recipe in REACTIONS if recipe.name.startswith("nitrous"))


@pytest.fixture(scope="module")
def path():
    """Four atoms, made on the spot."""
    return make_path((NITROUS, 0))


@pytest.fixture(scope="module")
def file(reactions_file):
    return reactions_file


def test_there_are_enough_and_all_balance():
    """Every recipe gives two ends of the same atoms that differ in just the bonds it names."""
    assert len(REACTIONS) >= 60
    assert len({recipe.name for recipe in REACTIONS}) == len(REACTIONS)
    for recipe in REACTIONS:
        reactant, product = build_ends(recipe)
        assert (reactant.numbers == product.numbers).all()
        assert sum(reactant.numbers) % 2 == 0
        changed = set(reactant.info["bonds"]) ^ set(product.info["bonds"])
        broken = sum(order == 0 for order in recipe.bonds.values())
        assert len(changed) >= broken >= 1, recipe.name


def test_a_path_is_what_it_says(path):
    assert path.energies[path.transition_state] > max(path.energies[path.reactant], path.energies[path.product])
    assert len(path.positions) == len(path.energies) == len(path.forces) > 50
    # The labels are of the image itself, not of the band.
    atoms = Atoms(path.numbers, path.positions[path.transition_state], calculator=TBLite(verbosity=0))
    assert atoms.get_potential_energy() == pytest.approx(path.energies[path.transition_state], abs=1e-5)
    assert np.allclose(atoms.get_forces(), path.forces[path.transition_state], atol=1e-3)
    # A saddle point, as far as the band converged: forces are small there and at the ends.
    for index in (path.reactant, path.product, path.transition_state):
        assert np.linalg.norm(path.forces[index], axis=1).max() < 0.5
    assert np.abs(path.forces).max() > 1


def test_the_committed_file_is_what_is_made(path, reactions_file):
    """And a path is the same when it is made again."""
    committed = next(r for r in find_reactions(reactions_file) if r.group.startswith("/data/HNO2/"))
    again = thinned(path)
    assert committed.frames == len(again.energies)
    frames = committed.read(range(committed.frames))
    assert np.allclose(reference_energies(frames), again.energies, atol=1e-3)
    assert np.allclose([atoms.positions for atoms in frames], again.positions, atol=1e-2)


def test_failures_are_told_apart():
    """Two protons on one oxygen of formic acid: the product falls back, and that is said."""
    nonsense = Recipe(
        "both protons on one oxygen", "[H:1][O:2][C:3]([H:4])=[O:5]", {(3, 4): 0, (2, 4): 1}, {2: 1, 3: -1}
    )
    found, failures = make_reactions([nonsense])
    assert not found
    assert failures == [Failure(nonsense.name, "an end did not keep its bonds when it was relaxed")]


def test_bonds():
    reactant, _ = build_ends(next(r for r in REACTIONS if r.name.startswith("cyclobutene")))
    assert bonds_of(reactant) == reactant.info["bonds"]


def test_the_layout(path, tmp_path):
    others = [dataclasses.replace(path, name=f"copy {number}") for number in range(2)]
    file = tmp_path / "written.h5"
    write_transition1x(file, [path, *others])
    with h5py.File(file) as content:
        assert content.attrs["level_of_theory"] == "GFN2-xTB"
        assert {"data", "train", "val", "test"} <= set(content)
        reaction = content["data/HNO2/rxn0000"]
        frames, n = len(path.energies), len(path.numbers)
        assert len(reaction["atomic_numbers"]) == n
        assert len(reaction[ENERGIES_KEY]) == frames
        assert reaction["positions"].shape == reaction["wB97x_6-31G(d).forces"].shape == (frames, n, 3)
        for part in ("reactant", "product", "transition_state"):
            assert reaction[part]["positions"].shape == (1, n, 3)
        linked = [f"{f}/{r}" for part in ("train", "val", "test") for f in content[part] for r in content[part][f]]
        assert sorted(linked) == sorted(f"{f}/{r}" for f in content["data"] for r in content["data"][f])
    assert level_of_theory(file) == "GFN2-xTB"
    reactions = find_reactions(file)
    assert len(reactions) == 3
    read = reactions[0].read([0, 3, 2])
    assert read[0].info["reaction"] == path.name
    assert reference_energies(read) == pytest.approx(path.energies[[0, 2, 3]])
    assert np.allclose(reference_forces(read)[1], path.forces[2])
    top = reactions[0].transition_state()
    assert top.info["REF_energy"] == pytest.approx(path.energies[path.transition_state])


@pytest.mark.parametrize("seed", range(20))
def test_no_element_is_tested_that_was_never_seen(seed):
    formulas = ["C2H6O", "C2H5F", "CH4N2", "C2H4S", "C3H4S", "C3H8O", "CH2O", "HNO2"]
    reactions = [Reaction(Path("none.h5"), f"/data/{f}/rxn{n:04d}", 5) for n, f in enumerate(formulas)]
    learnt, tested = split_reactions(reactions, 0.5, seed)
    assert len(tested) == 4
    assert {e for r in tested for e in r.elements} <= {e for r in learnt for e in r.elements}
    assert any("F" in r.elements for r in learnt)


def test_reactions_by_elements_and_size():
    found = Reaction(Path("none.h5"), "/data/C2H5ClO/rxn0001", 5)
    assert found.composition == {"C": 2, "H": 5, "Cl": 1, "O": 1}
    assert found.within(None, None)
    assert found.within("CHOClN", 9)
    assert not found.within("CHO", 9)
    assert not found.within(None, 8)


def test_splits_are_by_reaction(file):
    reactions = find_reactions(file)
    learnt, tested = split_reactions(reactions, 0.25, seed=1)
    assert len(tested) == round(0.25 * len(reactions))
    assert not {r.group for r in learnt} & {r.group for r in tested}
    assert split_reactions(reactions, 0.25, seed=1) == (learnt, tested)
    frames = sample_frames(learnt, 40, seed=2)
    counts = np.unique([atoms.info["reaction"] for atoms in frames], return_counts=True)[1]
    assert len(frames) == 40
    assert counts.max() - counts.min() <= 1
    assert [a.info["REF_energy"] for a in sample_frames(learnt, 40, seed=2)] == [a.info["REF_energy"] for a in frames]
    tops = transition_states(tested)
    assert len(tops) == len(tested)
    assert [a.info["reaction"] for a in tops] == [r.read([0])[0].info["reaction"] for r in tested]
    assert transition_states(tested, without=tops[:1]) == tops[1:]
    assert len(transition_states(learnt, most=2, seed=3)) == 2
    # Fewer frames than reactions: of reactions that are drawn, not of the first ones.
    drawn = {tuple(sorted(a.info["reaction"] for a in sample_frames(learnt, 2, seed))) for seed in range(20)}
    assert len(drawn) > 2
    with pytest.raises(InputError, match=r"only .* that are new"):
        sample_frames(learnt, 10**6, seed=0)


def test_bad_files(tmp_path, file):
    with pytest.raises(InputError, match="no such file"):
        find_reactions(tmp_path / "none.h5")
    (tmp_path / "text.h5").write_text("not HDF5")
    with pytest.raises(InputError, match="cannot be read as HDF5"):
        find_reactions(tmp_path / "text.h5")
    with h5py.File(tmp_path / "other.h5", "w") as content:
        content.create_group("elsewhere")
    with pytest.raises(InputError, match="not in the layout"):
        find_reactions(tmp_path / "other.h5")
    (tmp_path / "half.h5").write_bytes(file.read_bytes()[:2000])
    with pytest.raises(InputError, match="cannot be read as HDF5"):
        find_reactions(tmp_path / "half.h5")


@pytest.mark.long
def test_the_command(tmp_path):
    output = tmp_path / "few.h5"
    assert "wrote" in succeed("reactions", "--only", "proton transfer", "--jobs", "2", "-o", output)
    assert len(find_reactions(output)) == 5
