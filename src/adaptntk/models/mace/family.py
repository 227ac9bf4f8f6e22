"""MACE as a family of potentials. MACE itself takes seconds to import: that waits until it is needed."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

import torch
from ase import Atoms

from adaptntk.models.family import EnergyReference, Family, Trainable
from adaptntk.models.mace.architecture import PAPER, SMALL, TINY, MACEArchitecture
from adaptntk.models.protocol import Potential


class MACEFamily(Family):
    """Stock MACE networks, as ``mace_run_train`` and `adaptntk.train` write them."""

    name = "mace"
    files = "MACE .model files"
    architectures = {"paper": PAPER, "small": SMALL, "tiny": TINY}  # noqa: RUF012

    def recognises(self, path: Path) -> bool:
        return path.suffix == ".model" or _is_pickle_of_mace(path)

    def load(self, path: Path, device: torch.device, dtype: torch.dtype | None, head: str | None) -> Potential:
        from adaptntk.models.mace.loading import load_mace

        return load_mace(path, device, dtype, head)

    def build(
        self,
        architecture: MACEArchitecture,
        reference: EnergyReference,
        structures: Sequence[Atoms],
        dtype: torch.dtype,
        seed: int,
    ) -> Trainable:
        from adaptntk.models.mace.graph import mean_neighbours
        from adaptntk.models.mace.network import build_network
        from adaptntk.models.mace.potential import MACEPotential

        neighbours = mean_neighbours(structures, architecture.cutoff)
        return MACEPotential(build_network(architecture, reference, neighbours, dtype, seed))


def _is_pickle_of_mace(path: Path) -> bool:
    """Whether torch wrote the file and it names MACE's classes; looked at without running anything of it."""
    try:
        with zipfile.ZipFile(path) as archive:
            pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            return any(b"mace" in archive.read(name) for name in pickles)
    except (OSError, zipfile.BadZipFile):
        return False
