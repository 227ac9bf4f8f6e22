"""Labelled molecular-dynamics frames made on the spot with GFN2-xTB, so that nothing need be downloaded."""

import ase.build
import numpy as np
from ase import Atoms, units
from ase.calculators.calculator import CalculationFailed
from ase.md.langevin import Langevin
from threadpoolctl import threadpool_limits

from adaptntk.data.structures import ENERGY, FORCES, check_structure
from adaptntk.errors import InputError
from adaptntk.progress import Progress, silent

# Everyday names for molecules of ASE's G2 collection, which is indexed by formula.
COMMON_NAMES = {
    "ethanol": "CH3CH2OH", "methanol": "CH3OH", "water": "H2O", "ammonia": "NH3", "methane": "CH4", "ethane": "C2H6",
    "propane": "C3H8", "benzene": "C6H6", "acetaldehyde": "CH3CHO", "acetic acid": "CH3COOH",
    "acetone": "CH3COCH3", "dimethyl ether": "CH3OCH3", "butadiene": "butadiene",
}  # fmt: skip
EQUILIBRATION_STEPS = 400
LARGEST = {"frames": 10**7, "temperature": 10**6, "interval": 10**6, "timestep": 100}


def build_molecule(name: str) -> Atoms:
    """A molecule by everyday name or by its name in ASE's G2 collection."""
    try:
        return ase.build.molecule(COMMON_NAMES.get(name.lower(), name))
    except (KeyError, NotImplementedError):
        known = ", ".join(COMMON_NAMES)
        raise InputError(f"unknown molecule {name!r}: use a name of ASE's G2 collection, or one of {known}") from None


def sample_md(
    molecule: Atoms,
    frames: int,
    temperature: float = 500.0,
    interval: int = 10,
    timestep: float = 0.5,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Atoms]:
    """Langevin MD with GFN2-xTB from ``molecule``; every ``interval``-th step becomes a labelled frame.

    The molecule is not changed; the first 400 steps, of equilibration, are left out. Temperature in K, timestep in fs;
    the seed fixes velocities and noise, and so the whole trajectory.
    """
    given = {"frames": frames, "temperature": temperature, "interval": interval, "timestep": timestep}
    for name, value in given.items():
        if not 0 < value <= LARGEST[name]:
            most = f"{LARGEST[name]:,}"
            raise InputError(f"the {name} of the dynamics must be positive and at most {most}, not {value}")
    from tblite.ase import TBLite  # loads a native library that nothing else needs

    rng = np.random.default_rng(seed)
    atoms = Atoms(numbers=molecule.numbers, positions=molecule.positions)
    atoms.set_initial_magnetic_moments(molecule.get_initial_magnetic_moments())
    # Twice the target, because the start is a minimum: half of the kinetic energy becomes potential energy.
    masses = atoms.get_masses()[:, None]
    velocities = rng.standard_normal((len(atoms), 3)) * np.sqrt(2 * units.kB * temperature / masses)
    velocities -= (masses * velocities).sum(axis=0) / masses.sum()
    atoms.set_velocities(velocities)
    thermostat = {"temperature_K": temperature, "friction": 0.02 / units.fs, "rng": rng, "fixcm": False}
    sampled: list[Atoms] = []
    # One thread: several only slow a small molecule down, and their sums would differ from run to run.
    with threadpool_limits(1, user_api="openmp"):
        atoms.calc = TBLite(method="GFN2-xTB", verbosity=0)
        dynamics = Langevin(atoms, timestep * units.fs, **thermostat)
        try:
            dynamics.run(EQUILIBRATION_STEPS)
            for index in progress(range(frames), f"xTB MD at {temperature:.0f} K", frames):
                dynamics.run(interval)
                frame = Atoms(numbers=atoms.numbers, positions=atoms.positions, info={"frame": index})
                frame.info[ENERGY] = float(atoms.get_potential_energy())
                frame.arrays[FORCES] = np.array(atoms.get_forces())
                check_structure(frame, f"MD frame {index}")
                sampled.append(frame)
        except CalculationFailed as error:
            raise InputError(
                f"xTB failed after {len(sampled)} frames at {temperature:.0f} K ({' '.join(str(error).split())}): "
                "the molecule may have fallen apart; lower the temperature or the timestep"
            ) from None
    return sampled
