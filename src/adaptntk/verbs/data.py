"""``adaptntk data md|rmd17``: labelled structures to start from."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from adaptntk.files import check_folder, make_folder
from adaptntk.progress import Show
from adaptntk.verbs.settings import argument, option, verb
from adaptntk.verbs.shared import Seed

if TYPE_CHECKING:
    from ase import Atoms


def _size(part: str, default: int) -> Any:
    return option(f"Structures in {part}.xyz.", default)


class SplitSettings(Seed):
    """Into which files structures are split."""

    output: Path = option("Folder to write to.", short="-o")
    train: int = _size("train", 200)
    valid: int = _size("valid", 200)
    test: int = _size("test", 300)
    pool: int = _size("pool", 500)

    @property
    def sizes(self) -> dict[str, int]:
        """The number of structures in each file."""
        return {"train": self.train, "valid": self.valid, "test": self.test, "pool": self.pool}

    def write(self, frames: "list[Atoms]") -> "SplitReport":
        """Disjoint extxyz files; those of size zero are left out."""
        from adaptntk.data.splits import split_structures
        from adaptntk.data.structures import write_structures

        parts = split_structures(frames, self.sizes, self.seed)
        folder = make_folder(self.output)
        written = {folder / f"{name}.xyz": part for name, part in parts.items() if part}
        for path, part in written.items():
            write_structures(path, part)
        return SplitReport({path: len(part) for path, part in written.items()})


class MDDataSettings(SplitSettings):
    molecule: str = argument("ethanol, benzene, ... or a name of ASE's G2 collection.", "ethanol")
    temperature: float = option("In K.", 500.0)
    interval: int = option("MD steps of 0.5 fs between frames.", 20)


class RMD17Settings(SplitSettings):
    molecule: str = argument("aspirin, naphthalene, ...")
    train: int = _size("train", 1000)
    valid: int = _size("valid", 100)
    test: int = _size("test", 2000)
    pool: int = _size("pool", 0)
    data_dir: Path | None = option("Folder with rmd17/rmd17_*.npz; ADAPTNTK_DATA by default.", None)


class SplitReport(NamedTuple):
    """The files that were written, and how many structures each has."""

    files: dict[Path, int]

    def lines(self) -> Iterable[str]:
        return (f"wrote {path}: {size:,} structures" for path, size in self.files.items())


@verb(MDDataSettings)
def md(settings: MDDataSettings, show: Show) -> SplitReport:
    """Run molecular dynamics with GFN2-xTB and split the labelled frames."""
    from adaptntk.data.xtb_md import build_molecule, sample_md

    check_folder(settings.output)
    molecule, frames = build_molecule(settings.molecule), sum(settings.sizes.values())
    how = settings.temperature, settings.interval, 0.5, settings.seed, show.progress
    return settings.write(sample_md(molecule, frames, *how))


@verb(RMD17Settings)
def rmd17(settings: RMD17Settings, show: Show) -> SplitReport:
    """Convert a molecule of the revised MD17 data set to eV and split it."""
    from adaptntk.data.published import load_rmd17

    check_folder(settings.output)
    return settings.write(load_rmd17(settings.molecule, settings.data_dir))
