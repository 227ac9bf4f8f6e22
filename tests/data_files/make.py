"""Make the committed frames anew: ``python -m tests.data_files.make``. tests/data/test_xtb_md.py compares."""

from pathlib import Path

from ase import Atoms

from adaptntk.data.structures import write_structures
from adaptntk.data.xtb_md import build_molecule, sample_md

FOLDER = Path(__file__).parent
# Name of the file -> number of frames, temperature in K, seed.
TRAJECTORIES = {"ethanol": (140, 500.0, 1), "ethanol_hot": (20, 900.0, 2)}


def make(name: str, frames: int | None = None) -> list[Atoms]:
    """The first ``frames`` frames of a trajectory, all where none are asked for."""
    length, temperature, seed = TRAJECTORIES[name]
    return sample_md(build_molecule("ethanol"), frames or length, temperature=temperature, interval=5, seed=seed)


if __name__ == "__main__":
    for name in TRAJECTORIES:
        write_structures(FOLDER / f"{name}.xyz", make(name))
