import numpy as np
import pytest
from tblite.ase import TBLite

from adaptntk.data.structures import ENERGY, FORCES, read_structures, structure_hash
from adaptntk.data.xtb_md import build_molecule, sample_md
from adaptntk.errors import InputError
from tests.data_files.make import FOLDER, TRAJECTORIES, make


def test_the_same_seed_gives_the_same_trajectory():
    runs = [sample_md(build_molecule("water"), frames=4, temperature=300, interval=3, seed=s) for s in (5, 5, 6)]
    ids = [[structure_hash(atoms) for atoms in run] for run in runs]
    assert ids[0] == ids[1]
    assert ids[0] != ids[2]
    assert len(set(ids[0])) == 4


@pytest.mark.parametrize("name", TRAJECTORIES)
def test_the_committed_frames_are_what_is_made_today(name):
    """Dynamics amplify the rounding of another machine, but not within so short a time."""
    committed = read_structures(FOLDER / f"{name}.xyz", labelled=True)
    assert len(committed) == TRAJECTORIES[name][0]
    for made, kept in zip(make(name, frames=3), committed, strict=False):
        assert np.abs(made.positions - kept.positions).max() < 0.01
        assert made.info[ENERGY] == pytest.approx(kept.info[ENERGY], abs=0.05)


def test_labels_are_those_of_xtb(ethanol_frames):
    atoms = ethanol_frames[7].copy()
    atoms.calc = TBLite(method="GFN2-xTB", verbosity=0)
    assert atoms.get_potential_energy() == pytest.approx(ethanol_frames[7].info[ENERGY], abs=1e-5)
    assert np.allclose(atoms.get_forces(), ethanol_frames[7].arrays[FORCES], atol=1e-4)


def test_the_temperature_is_about_right(ethanol_frames):
    """Equipartition: the potential energy above the minimum is about 3N - 6 halves of kT."""
    from ase import units
    from ase.optimize import BFGS

    atoms = build_molecule("ethanol")
    atoms.calc = TBLite(method="GFN2-xTB", verbosity=0)
    BFGS(atoms, logfile=None).run(fmax=0.01)
    excess = np.mean([a.info[ENERGY] for a in ethanol_frames]) - atoms.get_potential_energy()
    expected = 0.5 * (3 * 9 - 6) * units.kB * 500
    assert 0.6 * expected < excess < 1.5 * expected


def test_dynamics_that_cannot_run():
    with pytest.raises(InputError, match="must be positive"):
        sample_md(build_molecule("water"), frames=2, temperature=-100)
    with pytest.raises(InputError, match="interval of the dynamics must be positive and at most 1,000,000"):
        sample_md(build_molecule("water"), frames=2, interval=10**20)
    with pytest.raises(InputError, match="interval of the dynamics must be positive"):
        sample_md(build_molecule("water"), frames=2, interval=0)
    with pytest.raises(InputError, match="lower the temperature"):
        sample_md(build_molecule("water"), frames=2, temperature=1e6)


def test_spin_is_kept():
    frames = sample_md(build_molecule("O2"), frames=1, temperature=10, interval=1)
    assert frames[0].info[ENERGY] < -215.08  # the triplet; the singlet lies 0.07 eV higher


def test_unknown_molecule():
    with pytest.raises(InputError, match="unknown molecule 'unobtainium'"):
        build_molecule("unobtainium")
