"""What is trained, validated and tested on: one split of each data set, for all entrants and seeds."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ase import Atoms

from adaptntk.data.published import load_rmd17
from adaptntk.data.structures import read_structures, write_structures
from adaptntk.errors import InputError
from adaptntk.files import make_folder
from benchmarks.data.sets import hot_ethanol, silicon

PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class DataSet:
    """How many structures there are of each kind, and how long is trained.

    Args:
        train, valid, test: counts. Test structures begin at ``tested_from`` of the shuffled frames.
        seconds: of one processor, for each entrant of the race.
        choice: those for each recipe, where recipes are compared; None to leave this data set out there.
        made: frames of the dynamics, where those are made.
        beside: further entrants of the race.
    """

    train: int
    valid: int
    test: int
    tested_from: int
    seconds: float
    choice: float | None = None
    made: int = 1200
    beside: tuple[str, ...] = ()

    def split(self, frames: list[Atoms]) -> dict[str, list[Atoms]]:
        """The parts, of frames in their order."""
        ends = self.train, self.train + self.valid
        needed = self.tested_from + self.test
        if len(frames) < needed:
            raise InputError(f"{needed} structures are needed, but there are only {len(frames)}")
        parts = frames[: ends[0]], frames[ends[0] : ends[1]], frames[self.tested_from : needed]
        return dict(zip(PARTS, parts, strict=True))


def prepare(name: str, data: DataSet, folder: Path) -> None:
    """Write the files that are not there: published structures, or dynamics with GFN2-xTB."""
    if not all((folder / f"{part}.xyz").exists() for part in PARTS):
        parts = data.split(LOADERS[name](data))
        make_folder(folder)
        for part, frames in parts.items():
            write_structures(folder / f"{part}.xyz", frames)


def load(folder: Path) -> dict[str, list[Atoms]]:
    """All parts, as every entrant reads them."""
    return {part: read_structures(folder / f"{part}.xyz", labelled=True) for part in PARTS}


def _shuffled(frames: list[Atoms]) -> list[Atoms]:
    return [frames[i] for i in np.random.default_rng(0).permutation(len(frames))]


def _silicon(data: DataSet) -> list[Atoms]:
    """The published test structures come last."""
    train, test = silicon()
    return [*_shuffled(train), *test]


LOADERS: dict[str, Callable[[DataSet], list[Atoms]]] = {
    "ethanol": lambda data: _shuffled(hot_ethanol(data.made)),
    "naphthalene": lambda data: _shuffled(load_rmd17("naphthalene")),
    "aspirin": lambda data: _shuffled(load_rmd17("aspirin")),
    "silicon": _silicon,
}
