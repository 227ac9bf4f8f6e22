"""The HDF5 layout of Transition-1X (Schreiner et al., 2022): reading, sampling by reaction, and writing.

``/{data|train|val|test}/{formula}/{reaction}/`` holds ``atomic_numbers``, ``positions``, energies and forces of all
frames of a reaction, and the same for one frame each in ``reactant``, ``product`` and ``transition_state``; eV and Å.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from ase import Atoms
from ase.formula import Formula

from adaptntk.data.published import data_file
from adaptntk.data.structures import ENERGY, FORCES, check_structure, structure_hash
from adaptntk.errors import InputError
from adaptntk.files import write_atomically
from benchmarks.reactions.paths import LEVEL, ReactionPath

ENERGIES_KEY, FORCES_KEY = "wB97x_6-31G(d).energy", "wB97x_6-31G(d).forces"
PUBLISHED = "Transition1x.h5, doi.org/10.6084/m9.figshare.19614657"
PARTS = ("reactant", "product", "transition_state")


@dataclass(frozen=True)
class Reaction:
    """Where the frames of a reaction are, without the frames themselves."""

    file: Path
    group: str
    frames: int

    @property
    def composition(self) -> dict[str, int]:
        """Atoms of each element, from the formula, which is the name of the group above."""
        return dict(Formula(self.group.split("/")[-2]).count())

    @property
    def elements(self) -> set[str]:
        """Their symbols."""
        return set(self.composition)

    def within(self, elements: str | None, largest: int | None) -> bool:
        """Has it no other elements (``"CHO"``) and at most so many atoms? None is no limit."""
        few = largest is None or sum(self.composition.values()) <= largest
        return few and (elements is None or self.elements <= set(Formula(elements).count()))

    def read(self, indices: Sequence[int]) -> list[Atoms]:
        """Some of the frames, labelled."""
        order = np.sort(np.asarray(indices, dtype=int))
        with _open(self.file) as content:
            return _structures(content[self.group], order, f"{self.file}, {self.group}", _name(content[self.group]))

    def transition_state(self) -> Atoms:
        """The frame at the top of the path."""
        with _open(self.file) as content:
            group = content[self.group]
            return _structures(group["transition_state"], None, f"{self.file}, {self.group}", _name(group))[0]


def find_reactions(path: str | Path | None = None, part: str = "data") -> list[Reaction]:
    """All reactions of a part of the file, in the order of their names."""
    file = Path(path) if path is not None else data_file("Transition1x.h5", PUBLISHED)
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    with _open(file) as content:
        if part not in content:
            raise InputError(f"{file}: has no group {part!r}; it is not in the layout of Transition-1X")
        found = [
            Reaction(file, f"/{part}/{formula}/{name}", len(group[ENERGIES_KEY]))
            for formula in sorted(content[part])
            for name, group in sorted(content[part][formula].items())
            if ENERGIES_KEY in group and "transition_state" in group
        ]
    if not found:
        raise InputError(f"{file}: no reactions with {ENERGIES_KEY!r} and a transition state in {part!r}")
    return found


def level_of_theory(path: str | Path) -> str:
    """What the labels are: of the published file, or as a file made here says of itself."""
    with _open(Path(path)) as content:
        return str(content.attrs.get("level_of_theory", "wB97x/6-31G(d)"))


def split_reactions(
    reactions: Sequence[Reaction], test_share: float, seed: int
) -> tuple[list[Reaction], list[Reaction]]:
    """Reactions to learn from, and others to be tested on: never frames of the same one in both.

    A reaction with an element that no other one has is learnt from: a network knows nothing of what it has never seen.
    """
    tested = max(1, round(test_share * len(reactions)))
    if tested >= len(reactions):
        raise InputError(f"{len(reactions)} reactions cannot be split into some to learn from and some to test on")
    learnt = Counter(element for reaction in reactions for element in reaction.elements)
    test: set[int] = set()
    for index in np.random.default_rng(seed).permutation(len(reactions)).tolist():
        if len(test) < tested and all(learnt[element] > 1 for element in reactions[index].elements):
            test.add(index)
            learnt.subtract(reactions[index].elements)
    return (
        [r for i, r in enumerate(reactions) if i not in test],
        [r for i, r in enumerate(reactions) if i in test],
    )


def sample_frames(reactions: Sequence[Reaction], count: int, seed: int, without: Sequence[Atoms] = ()) -> list[Atoms]:
    """So many frames, the same number of each reaction as far as it goes; ``info["reaction"]`` says whose they are.

    A structure that was met twice (two bands often begin at the same molecule) is taken once, and those of ``without``
    are not taken.
    """
    rng = np.random.default_rng(seed)
    if count < len(reactions):  # or it would be the first ones in the alphabet
        reactions = [reactions[index] for index in rng.permutation(len(reactions))]
    orders = [rng.permutation(reaction.frames) for reaction in reactions]
    frames: list[Atoms] = []
    seen = {structure_hash(atoms) for atoms in without}
    while len(frames) < count:
        shares = _shares([len(order) for order in orders], count - len(frames))
        if not any(shares):
            raise InputError(f"{count:,} frames asked for, but these reactions have only {len(frames):,} that are new")
        for number in np.flatnonzero(shares).tolist():
            taken, orders[number] = np.split(orders[number], [shares[number]])
            for atoms in reactions[number].read(taken.tolist()):
                if (identity := structure_hash(atoms)) not in seen:
                    seen.add(identity)
                    frames.append(atoms)
    return frames


def transition_states(
    reactions: Sequence[Reaction], most: int | None = None, seed: int = 0, without: Sequence[Atoms] = ()
) -> list[Atoms]:
    """One frame per reaction, in their order; of at most so many reactions, and none of ``without``."""
    chosen = np.random.default_rng(seed).permutation(len(reactions))[:most]
    seen = {structure_hash(atoms) for atoms in without}
    found = [reactions[index].transition_state() for index in np.sort(chosen)]
    return [atoms for atoms in found if structure_hash(atoms) not in seen]


def write_transition1x(
    path: str | Path, paths: Sequence[ReactionPath], seed: int = 0, shares: tuple[float, float] = (0.1, 0.1)
) -> None:
    """Write reaction paths in the layout of Transition-1X, with splits by reaction (validation, test) as links."""
    order = np.random.default_rng(seed).permutation(len(paths))
    valid, test = (max(1, round(share * len(paths))) for share in shares)
    split = {int(i): "val" if n < valid else "test" if n < valid + test else "train" for n, i in enumerate(order)}

    def write(temporary: Path) -> None:
        # Without times of creation, so that the same paths give the same bytes.
        with h5py.File(temporary, "w", track_order=False) as content:
            content.attrs["level_of_theory"] = LEVEL
            for number, reaction in enumerate(paths):
                formula = str(Formula.from_list([str(s) for s in Atoms(reaction.numbers).symbols]).format("hill"))
                group = content.require_group(f"data/{formula}").create_group(f"rxn{number:04d}")
                group.attrs["name"] = reaction.name
                _write_frames(group, reaction, slice(None))
                for part in PARTS:
                    index = getattr(reaction, part)
                    _write_frames(group.create_group(part), reaction, slice(index, index + 1))
                content.require_group(f"{split[number]}/{formula}")[f"rxn{number:04d}"] = group

    write_atomically(path, write)


def _write_frames(group: h5py.Group, reaction: ReactionPath, frames: slice) -> None:
    for name, values in {
        "atomic_numbers": reaction.numbers,
        "positions": reaction.positions[frames],
        ENERGIES_KEY: reaction.energies[frames],
        FORCES_KEY: reaction.forces[frames],
    }.items():
        group.create_dataset(name, data=values, track_times=False)


def _open(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise InputError(f"{path}: cannot be read as HDF5, truncated or of another kind ({error})") from None


def _name(group: h5py.Group) -> str:
    """What a reaction is called: files made here say it in words."""
    return str(group.attrs.get("name", group.name.rsplit("/", 1)[-1]))


def _structures(group: h5py.Group, indices: np.ndarray | None, where: str, reaction: str) -> list[Atoms]:
    chosen = slice(None) if indices is None else indices
    numbers = group["atomic_numbers"][:]
    columns = (group[key][chosen] for key in ("positions", ENERGIES_KEY, FORCES_KEY))
    frames = []
    for number, (positions, energy, forces) in enumerate(zip(*columns, strict=True)):
        atoms = Atoms(numbers=numbers, positions=positions, info={"reaction": reaction})
        atoms.info[ENERGY] = float(np.ravel(energy)[0])
        atoms.arrays[FORCES] = np.asarray(forces, dtype=float)
        check_structure(atoms, f"{where}, frame {number if indices is None else int(indices[number])}")
        frames.append(atoms)
    return frames


def _shares(available: Sequence[int], count: int) -> list[int]:
    """How many of each: as equal as the smallest ones allow, and what is left over to the first."""
    shares = [0] * len(available)
    left = min(count, sum(available))
    while left > 0:
        open_ = [i for i, (share, most) in enumerate(zip(shares, available, strict=True)) if share < most]
        each = max(1, left // len(open_))
        for i in open_:
            taken = min(each, available[i] - shares[i], left)
            shares[i] += taken
            left -= taken
    return shares
