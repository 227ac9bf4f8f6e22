"""Small structures to label."""

import pytest

from adaptntk.data.xtb_md import build_molecule


@pytest.fixture(scope="session")
def rattled():
    frames = []
    for seed in range(9):
        atoms = build_molecule("water")
        atoms.rattle(0.05, seed=seed)
        atoms.info = {"round": 0, "role": "train"}
        frames.append(atoms)
    return frames
