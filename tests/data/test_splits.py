import numpy as np
import pytest
from ase import Atoms

from adaptntk.data.splits import check_disjoint, split_structures
from adaptntk.data.structures import structure_hash
from adaptntk.errors import InputError


def frames(count):
    return [Atoms("H2", positions=[[0, 0, 0], [0.7 + 0.001 * i, 0, 0]]) for i in range(count)]


def hashes(part):
    return [structure_hash(atoms) for atoms in part]


def test_parts_are_disjoint_seeded_and_of_the_sizes_asked_for():
    sizes = {"train": 20, "valid": 5, "test": 10}
    first, again, other = (split_structures(frames(50), sizes, seed) for seed in (1, 1, 2))
    assert {name: len(part) for name, part in first.items()} == sizes
    assert len({h for part in first.values() for h in hashes(part)}) == 35
    assert hashes(first["train"]) == hashes(again["train"])
    assert hashes(first["train"]) != hashes(other["train"])


def test_overlap_fails_loudly():
    doubled = frames(20) + frames(20)
    with pytest.raises(InputError, match="must not overlap"):
        split_structures(doubled, {"train": 20, "valid": 20}, seed=0)


def test_too_many():
    with pytest.raises(InputError, match="only 3"):
        split_structures(frames(3), {"train": 2, "valid": 2}, seed=0)


def test_check_disjoint_names_both_frames():
    a, b = frames(4), frames(6)[3:]
    with pytest.raises(InputError, match=r"b\.xyz, frame 0 is the same structure as a\.xyz, frame 3"):
        check_disjoint({"a.xyz": a, "b.xyz": b})
    check_disjoint({"a.xyz": a, "b.xyz": b[1:]})


def test_splits_do_not_touch_the_global_generator():
    np.random.seed(0)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    split_structures(frames(9), {"train": 3}, seed=0)
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002
