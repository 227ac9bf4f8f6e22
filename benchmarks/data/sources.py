"""Where the benchmarks take labelled structures from."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from ase import Atoms

from adaptntk.data.published import load_rmd17
from adaptntk.data.structures import read_structures, write_structures
from adaptntk.data.xtb_md import build_molecule, sample_md
from adaptntk.errors import InputError
from adaptntk.files import make_folder
from adaptntk.progress import Progress, silent
from benchmarks.data.sets import SETS, load_set
from benchmarks.settings import CostOnStructures


@dataclass(frozen=True)
class Source:
    """One kind of data.

    Args:
        name: ``rmd17``, ``xtb`` (dynamics with GFN2-xTB, made on the spot), ``sets`` (those of ``sets.py``) or the path
            of a labelled extxyz file.
        data_dir: where published data sets are; None for the default.
        made: the folder in which frames made here are kept.
        keys: names of the energy and the forces in a file.
    """

    name: str
    data_dir: Path | None
    made: Path
    keys: tuple[str, str] = ("REF_energy", "REF_forces")
    temperature: float = 500.0

    @property
    def identity(self) -> str:
        """What results depend on."""
        if self.name == "xtb":
            return f"xtb at {self.temperature:g} K"
        if self.name in ("rmd17", "sets"):
            return self.name
        content = hashlib.sha256(Path(self.name).read_bytes()).hexdigest()
        return f"{Path(self.name).name}, {' and '.join(self.keys)}, SHA-256 {content}"

    def default_molecules(self) -> list[str]:
        """What is taken when the user names none."""
        if self.name == "rmd17":
            return ["aspirin", "naphthalene"]
        if self.name == "sets":
            return [*SETS]
        return ["ethanol"] if self.name == "xtb" else [Path(self.name).stem]

    def prepare(self, molecule: str, frames: int, progress: Progress = silent) -> None:
        """Make sure that there are so many frames, before anything else is done."""
        if self.name == "xtb":
            path = self._made_file(molecule)
            if not path.exists():
                make_folder(path.parent)
                sampled = sample_md(
                    build_molecule(molecule), frames, self.temperature, interval=10, seed=0, progress=progress
                )
                write_structures(path, sampled)
        found = len(self.load(molecule))
        if found < frames:
            raise InputError(f"{molecule}: {frames:,} structures are needed, but there are only {found:,}")

    def load(self, molecule: str) -> list[Atoms]:
        """All frames of a molecule."""
        if self.name == "rmd17":
            return load_rmd17(molecule, self.data_dir)
        if self.name == "sets":
            return load_set(molecule, self.made / "made")
        if self.name == "xtb":
            return read_structures(self._made_file(molecule), labelled=True)
        if molecule != Path(self.name).stem:
            raise InputError(f"{self.name}: a file is one molecule, {Path(self.name).stem!r}, not {molecule!r}")
        return read_structures(self.name, *self.keys, labelled=True)

    def _made_file(self, molecule: str) -> Path:
        return self.made / molecule / "frames.xyz"


def check_source(name: str, also: str = "") -> None:
    """Refuse what is neither a known data set nor a file; ``also`` is what else could have been named."""
    if name not in ("rmd17", "xtb", "sets") and not os.path.isfile(name):
        raise InputError(f"unknown data {name!r}: choose rmd17, xtb, sets or a labelled extxyz file{also}")


def given_frames(settings: CostOnStructures, count: int) -> list[Atoms]:
    """The structures that were given, or so many of xTB dynamics."""
    if settings.structures is not None:
        return settings.read(settings.structures)
    return sample_md(build_molecule("ethanol"), frames=count, temperature=500, interval=5, seed=0)
