"""What active learning is tried on: a pool, a fixed validation set, and test sets that never change."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ase import Atoms

from adaptntk.data.published import data_directory, data_file
from adaptntk.data.splits import check_disjoint
from adaptntk.data.structures import reference_energies
from adaptntk.errors import InputError
from adaptntk.files import make_folder
from benchmarks.data.sources import Source, check_source
from benchmarks.reactions.paths import make_reactions
from benchmarks.reactions.recipes import REACTIONS
from benchmarks.reactions.transition1x import (
    PUBLISHED,
    find_reactions,
    level_of_theory,
    sample_frames,
    split_reactions,
    transition_states,
    write_transition1x,
)
from benchmarks.settings import OnData, listed

# Of all reactions, those that are tested on.
TEST_SHARE = 0.25
# Reactions that are over in seconds, for tests.
QUICK = ("formic acid, proton", "acetic acid, proton", "nitrous acid", "formamidine", "malonaldehyde", "formamidic")


@dataclass(frozen=True)
class Sizes:
    """How many structures of each kind.

    Args:
        cold_share: of the pool, the share that comes from the lower half of the energies: a trajectory of a cold
            simulation, in which what matters is rare. 0.5 is the distribution of the data set itself.
        epochs: of each training; those of the plan if None.
        elements, largest: only reactions of these elements (``"CHO"``) and of at most so many atoms.
    """

    pool: int
    valid: int
    test: int
    initial: int = 50
    batch: int = 50
    checkpoints: int = 4
    cold_share: float = 0.5
    epochs: int | None = None
    elements: str | None = None
    largest: int | None = None

    @property
    def from_halves(self) -> tuple[int, int]:
        """Of pool and validation set, how many come from the lower and from the upper half of the energies."""
        wanted = self.pool + self.valid
        cold = round(self.cold_share * wanted)
        return cold, wanted - cold

    @property
    def needed(self) -> int:
        """The smallest data set from which all this can be drawn; the lower half is the smaller one of an odd rest."""
        cold, hot = self.from_halves
        return self.test + max(2 * cold, 2 * hot - 1)


@dataclass(frozen=True)
class LearningData:
    """The labelled structures of one seed. ``initial`` are indices into the pool.

    Reactions are tested twice: on those that the pool has no frame of, and on other frames of those it has, which tell
    more of the choice of labels. The transition states of both are tested apart.
    """

    pool: list[Atoms]
    initial: list[int]
    valid: list[Atoms]
    tests: dict[str, list[Atoms]]


@dataclass(frozen=True)
class Task:
    """One data set for active learning: a molecule of a source, or a file of reactions."""

    name: str
    source: Source | None = None
    reactions: Path | None = None

    @property
    def identity(self) -> str:
        """What results depend on, once prepared. A file of gigabytes is told by its size."""
        if self.source is not None:
            return self.source.identity
        assert self.reactions is not None
        return f"{self.reactions.name}, {self.reactions.stat().st_size} bytes"

    @property
    def level_of_theory(self) -> str | None:
        """What the labels are, if the data say so."""
        return None if self.reactions is None else level_of_theory(self.reactions)

    def prepare(self, sizes: Sizes, quick: bool, workers: int) -> None:
        """Make what can be made and is not there, and check that there is enough."""
        if self.source is not None:
            self.source.prepare(self.name, sizes.needed)
        elif self.reactions is not None and not self.reactions.exists():
            make_folder(self.reactions.parent)
            recipes = [r for r in REACTIONS if not quick or any(word in r.name for word in QUICK)]
            paths, _ = make_reactions(recipes, workers)
            write_transition1x(self.reactions, paths)

    def load(self, sizes: Sizes, seed: int) -> LearningData:
        """The split of a seed: the same for all methods."""
        data = self._from_reactions(sizes, seed) if self.reactions is not None else self._from_source(sizes, seed)
        check_disjoint({"pool": data.pool, "validation set": data.valid, **data.tests})
        return data

    def _from_source(self, sizes: Sizes, seed: int) -> LearningData:
        assert self.source is not None
        frames = self.source.load(self.name)
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(frames))
        test, rest = order[: sizes.test], order[sizes.test :]
        energies = reference_energies([frames[i] for i in rest])
        ranked = rest[np.argsort(energies, kind="stable")]
        cold, hot = ranked[: len(ranked) // 2], ranked[len(ranked) // 2 :]
        from_cold, from_hot = sizes.from_halves
        drawn = rng.permutation(np.concatenate([rng.permutation(cold)[:from_cold], rng.permutation(hot)[:from_hot]]))
        return LearningData(
            [frames[i] for i in drawn[sizes.valid :]],
            list(range(sizes.initial)),
            [frames[i] for i in drawn[: sizes.valid]],
            {"test": [frames[i] for i in test]},
        )

    def _from_reactions(self, sizes: Sizes, seed: int) -> LearningData:
        reactions = [r for r in find_reactions(self.reactions) if r.within(sizes.elements, sizes.largest)]
        learnt, tested = split_reactions(reactions, TEST_SHARE, seed)
        # Reactions may share a structure, an end above all: it is drawn for one purpose only.
        new_tops = transition_states(tested, sizes.test, seed)
        known_tops = transition_states(learnt, sizes.test, seed, without=new_tops)
        tops = [*new_tops, *known_tops]
        frames = sample_frames(learnt, sizes.pool + sizes.valid + sizes.test, seed, without=tops)
        new = sample_frames(tested, sizes.test, seed, without=[*tops, *frames])
        order = np.random.default_rng(seed).permutation(len(frames))
        known, valid, candidates = np.split(order, [sizes.test, sizes.test + sizes.valid])
        pool = [frames[i] for i in candidates]
        return LearningData(
            pool,
            _covering(pool, sizes.initial),
            [frames[i] for i in valid],
            {
                "new reactions": new,
                "known reactions": [frames[i] for i in known],
                "new transition states": new_tops,
                "known transition states": known_tops,
            },
        )


def find_tasks(settings: OnData) -> list[Task]:
    """What ``--data`` stands for. Reactions that are not there are made in the output, but not for the paper's plan."""
    data, data_dir = settings.source, settings.data_dir
    if data == "t1x" or data.endswith((".h5", ".hdf5")):
        if settings.molecules is not None:
            raise InputError("--molecules goes with data sets of molecules, not with reactions")
        if data != "t1x":
            find_reactions(data)
            return [Task(Path(data).stem, reactions=Path(data))]
        if settings.preset != "paper" and not (data_directory(data_dir) / "Transition1x.h5").is_file():
            return [Task("reactions", reactions=settings.output / "reactions" / "reactions.h5")]
        published = data_file("Transition1x.h5", PUBLISHED, data_dir)
        find_reactions(published)
        return [Task("transition-1x", reactions=published)]
    check_source(data, "; for reactions t1x or a file in the layout of Transition-1X (.h5)")
    source = Source(data, data_dir, settings.output, settings.keys)
    names = source.default_molecules()[:1] if settings.molecules is None else listed(settings.molecules)
    return [Task(name, source) for name in names]


def _covering(pool: Sequence[Atoms], count: int) -> list[int]:
    """The first of the pool, with every element among them: a network knows only the elements it began with."""
    elements = sorted({int(z) for atoms in pool for z in atoms.numbers})
    chosen = {next(i for i, atoms in enumerate(pool) if element in atoms.numbers) for element in elements}
    for index in range(len(pool)):
        if len(chosen) >= count:
            break
        chosen.add(index)
    return sorted(chosen)
