"""What active learning is tried on: a pool, a fixed validation set, and test sets that never change."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ase import Atoms

from adaptntk.benchmark.sources import Source, check_source
from adaptntk.data.location import data_directory
from adaptntk.data.reaction_list import REACTIONS
from adaptntk.data.reactions import make_reactions
from adaptntk.data.splits import check_disjoint
from adaptntk.data.structures import reference_energies
from adaptntk.data.transition1x import (
    find_reactions,
    sample_frames,
    split_reactions,
    transition_states,
    write_transition1x,
)
from adaptntk.files import make_folder

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
    def needed(self) -> int:
        """Structures of a data set from which all this can be drawn."""
        return self.test + 2 * math.ceil(max(self.cold_share, 1 - self.cold_share) * (self.pool + self.valid)) + 2


@dataclass(frozen=True)
class LearningData:
    """The labelled structures of one seed. ``initial`` are indices into the pool.

    Reactions are tested twice: on those that the pool has no frame of, and on other frames of those it has, which tell
    more of the choice of labels. No transition state is in the pool.
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
        wanted = sizes.pool + sizes.valid
        from_cold = round(sizes.cold_share * wanted)
        drawn = rng.permutation(
            np.concatenate([rng.permutation(cold)[:from_cold], rng.permutation(hot)[: wanted - from_cold]])
        )
        return LearningData(
            [frames[i] for i in drawn[sizes.valid :]],
            list(range(sizes.initial)),
            [frames[i] for i in drawn[: sizes.valid]],
            {"test": [frames[i] for i in test]},
        )

    def _from_reactions(self, sizes: Sizes, seed: int) -> LearningData:
        reactions = [r for r in find_reactions(self.reactions) if r.within(sizes.elements, sizes.largest)]
        learnt, tested = split_reactions(reactions, TEST_SHARE, seed)
        tops = {"new": transition_states(tested), "known": transition_states(learnt)}
        tests = {f"{kind} transition states": frames for kind, frames in tops.items()}
        # Reactions may share an end: a structure is drawn for one purpose only.
        drawn = [atoms for frames in tops.values() for atoms in frames]
        frames = sample_frames(learnt, sizes.pool + sizes.valid + sizes.test, seed, without=drawn)
        new = sample_frames(tested, sizes.test, seed, without=[*drawn, *frames])
        order = np.random.default_rng(seed).permutation(len(frames))
        known, valid, candidates = np.split(order, [sizes.test, sizes.test + sizes.valid])
        pool = [frames[i] for i in candidates]
        return LearningData(
            pool,
            _covering(pool, sizes.initial),
            [frames[i] for i in valid],
            {"new reactions": new, "known reactions": [frames[i] for i in known], **tests},
        )


def find_tasks(
    data: str,
    molecules: Sequence[str] | None,
    output: Path,
    data_dir: Path | None = None,
    keys: tuple[str, str] = ("REF_energy", "REF_forces"),
    must_exist: bool = False,
) -> list[Task]:
    """What ``--data`` stands for. Reactions that are not there are made in ``output``, unless they must exist."""
    if data.endswith((".h5", ".hdf5")):
        find_reactions(data)
        return [Task(Path(data).stem, reactions=Path(data))]
    if data == "t1x":
        published = data_directory(data_dir) / "Transition1x.h5"
        if published.is_file() or must_exist:
            find_reactions(published)
            return [Task("transition-1x", reactions=published)]
        return [Task("reactions", reactions=output / "reactions" / "reactions.h5")]
    check_source(data)
    source = Source(data, data_dir, output, keys)
    return [Task(name, source) for name in (molecules or source.default_molecules()[:1])]


def _covering(pool: Sequence[Atoms], count: int) -> list[int]:
    """The first of the pool, with every element among them: a network knows only the elements it began with."""
    elements = sorted({int(z) for atoms in pool for z in atoms.numbers})
    chosen = {next(i for i, atoms in enumerate(pool) if element in atoms.numbers) for element in elements}
    for index in range(len(pool)):
        if len(chosen) >= count:
            break
        chosen.add(index)
    return sorted(chosen)
