"""Seeded splits whose parts share no structure."""

from collections.abc import Mapping, Sequence

import numpy as np
from ase import Atoms

from adaptntk.data.geometry import lone_atoms
from adaptntk.data.labels import ISOLATED
from adaptntk.data.structures import structure_hash
from adaptntk.errors import InputError


def split_structures(frames: Sequence[Atoms], sizes: Mapping[str, int], seed: int) -> dict[str, list[Atoms]]:
    """Draw disjoint parts of the given sizes, in the order of ``sizes``; what is left over is not returned.

    The parts depend on the seed and on the frames alone. Fails when a structure would be in two parts.
    """
    for name, size in sizes.items():
        if size < 0:
            raise InputError(f"the part {name!r} cannot have {size} structures")
    wanted = sum(sizes.values())
    if wanted > len(frames):
        raise InputError(f"the split asks for {wanted} structures, but there are only {len(frames)}")
    order = np.random.default_rng(seed).permutation(len(frames))
    drawn = np.split(order, np.cumsum([*sizes.values()]))
    parts = {name: [frames[index] for index in part] for name, part in zip(sizes, drawn, strict=False)}
    check_disjoint(parts)
    return parts


def check_disjoint(parts: Mapping[str, Sequence[Atoms]]) -> None:
    """Refuse parts that have a structure in common, by hash; isolated atoms are the same everywhere."""
    owner: dict[str, tuple[str, int]] = {}
    for name, frames in parts.items():
        for index, atoms in enumerate(frames):
            if len(atoms) == 1 and lone_atoms(atoms, ISOLATED):
                continue
            first_name, first_index = owner.setdefault(structure_hash(atoms), (name, index))
            if first_name != name:
                raise InputError(
                    f"{name}, frame {index} is the same structure as {first_name}, frame {first_index}: "
                    "the two sets must not overlap"
                )
