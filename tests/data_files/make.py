"""Make the committed frames anew: ``python -m tests.data_files.make``.

tests/data/test_xtb_md.py and tests/benchmarks/test_reactions.py compare.
"""

import dataclasses
from pathlib import Path

from ase import Atoms
from benchmarks.reactions.paths import ReactionPath, make_reactions
from benchmarks.reactions.recipes import REACTIONS
from benchmarks.reactions.transition1x import write_transition1x

from adaptntk.data.structures import write_structures
from adaptntk.data.xtb_md import build_molecule, sample_md

FOLDER = Path(__file__).parent
# Name of the file -> number of frames, temperature in K, seed.
TRAJECTORIES = {"ethanol": (140, 500.0, 1), "ethanol_hot": (20, 900.0, 2)}


def make(name: str, frames: int | None = None) -> list[Atoms]:
    """The first ``frames`` frames of a trajectory, all where none are asked for."""
    length, temperature, seed = TRAJECTORIES[name]
    return sample_md(build_molecule("ethanol"), frames or length, temperature=temperature, interval=5, seed=seed)


def make_paths(word: str = "proton transfer") -> list[ReactionPath]:
    """Reactions with that in their names, every third frame."""
    paths, _ = make_reactions([recipe for recipe in REACTIONS if word in recipe.name])
    return [thinned(path) for path in paths]


def thinned(path: ReactionPath) -> ReactionPath:
    ends = {path.reactant, path.product, path.transition_state}
    kept = sorted(ends | set(range(0, len(path.energies), 3)))
    arrays = {name: getattr(path, name)[kept] for name in ("positions", "energies", "forces")}
    places = {name: kept.index(getattr(path, name)) for name in ("reactant", "product", "transition_state")}
    return dataclasses.replace(path, **arrays, **places)


if __name__ == "__main__":
    write_transition1x(FOLDER / "reactions.h5", make_paths())
    for name in TRAJECTORIES:
        write_structures(FOLDER / f"{name}.xyz", make(name))
