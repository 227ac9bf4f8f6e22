"""Data sets by name: published ones, and those that are made on the spot and kept in a folder."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path

from ase import Atoms

from adaptntk.data.published import data_directory, data_file, load_rmd17
from adaptntk.data.structures import read_structures, write_structures
from adaptntk.data.xtb_md import build_molecule, sample_md
from adaptntk.errors import InputError
from adaptntk.files import make_folder
from benchmarks.reactions.paths import make_reactions
from benchmarks.reactions.recipes import REACTIONS
from benchmarks.reactions.transition1x import find_reactions, sample_frames, write_transition1x

SILICON = "the silicon set of 'mlearn' by Zuo et al., github.com/materialsvirtuallab/mlearn, as extxyz"
# Frames of the dynamics of ethanol, and of the reactions.
MADE = 1200


def hot_ethanol(frames: int = MADE) -> list[Atoms]:
    """Dynamics with GFN2-xTB at 800 K."""
    return sample_md(build_molecule("ethanol"), frames, 800.0, interval=20, timestep=0.5, seed=0)


def acetylacetone() -> tuple[list[Atoms], list[Atoms]]:
    """At 300 K: what is published to train on, and to test on."""
    folder = data_directory() / "acac"
    train, test = (
        read_structures(folder / f"{name}_300K.xyz", "energy", "forces", labelled=True) for name in ("train", "test_MD")
    )
    return train, test


def silicon() -> tuple[list[Atoms], list[Atoms]]:
    """Bulk, vacancies, surfaces and strained cells: what is published to train on, and to test on."""
    train, test = (
        read_structures(data_file(f"silicon/Si_{part}.xyz", SILICON), labelled=True) for part in ("training", "test")
    )
    return train, test


def _ethanol(made: Path) -> list[Atoms]:
    path = made / "ethanol.xyz"
    if not path.exists():
        write_structures(path, hot_ethanol())
    return read_structures(path, labelled=True)


def _reactions(made: Path) -> list[Atoms]:
    """Frames of all reactions, small molecules of many compositions."""
    path = made / "reactions.h5"
    if not path.exists():
        write_transition1x(path, make_reactions(REACTIONS, workers=1)[0])
    return sample_frames(find_reactions(path), MADE, seed=0)


SETS: dict[str, Callable[[Path], list[Atoms]]] = {
    "ethanol": _ethanol,
    "naphthalene": lambda made: load_rmd17("naphthalene"),
    "acetylacetone": lambda made: [*chain(*acetylacetone())],
    "aspirin": lambda made: load_rmd17("aspirin"),
    "silicon": lambda made: [*chain(*silicon())],
    "reactions": _reactions,
}


def load_set(name: str, made: Path) -> list[Atoms]:
    """All structures of a data set; what has to be made is kept in the folder."""
    if name not in SETS:
        raise InputError(f"unknown data set {name!r}: choose one of {', '.join(SETS)}")
    return SETS[name](make_folder(made))
