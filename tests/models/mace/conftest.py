import ase.build
import numpy as np
import pytest
from ase import Atoms


@pytest.fixture(scope="module")
def structures(ethanol_frames) -> list[Atoms]:
    """Different sizes and elements, open and periodic, one atom without neighbours."""
    silicon = ase.build.bulk("Si", cubic=True)
    silicon.rattle(0.05, rng=np.random.default_rng(0))
    slab = ase.build.bulk("Si")
    slab.pbc = (True, True, False)
    ammonia = ase.build.molecule("NH3")
    lonely = Atoms("OH", positions=[[0, 0, 0], [9.0, 0, 0]])
    return [*ethanol_frames[:2], silicon, ammonia, slab, lonely, Atoms("H")]
