"""Options that several verbs share: written once, spelled and explained the same everywhere."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adaptntk.errors import InputError
from adaptntk.memory import GIBIBYTE
from adaptntk.verbs.settings import Settings, argument, option

if TYPE_CHECKING:
    from ase import Atoms

    from adaptntk.data.structures import Labelled
    from adaptntk.uncertainty.fitted import Fitted


class LabelNames(Settings):
    energy_key: str = option("Name of the energy label (eV) in the files.", "REF_energy")
    forces_key: str = option("Name of the forces label (eV/Å) in the files.", "REF_forces")
    stress_key: str = option("Name of the stress label (eV/Å^3), which structures may lack.", "REF_stress")

    def read(self, path: Path, labelled: "Labelled" = True, unique: bool = True) -> "list[Atoms]":
        """Read and check a file."""
        from adaptntk.data.structures import read_structures

        return read_structures(path, self.energy_key, self.forces_key, labelled, unique, stress_key=self.stress_key)


class Device(Settings):
    device: str = option("auto, cpu, cuda, cuda:1, ...", "auto")


class Seed(Settings):
    # Some methods train a thousand networks of a seed, each with a seed of its own, and torch takes 63 bits.
    seed: int = option("Seed of everything random in this step.", 0, least=0, most=2**53)


class Memory(Settings):
    memory: float = option("Memory budget in GiB.", 4.0)

    @property
    def memory_budget(self) -> int:
        """In bytes."""
        if not 0 < self.memory < 1e6:
            raise InputError(f"the memory budget must be a positive number of GiB, not {self.memory}")
        return int(self.memory * GIBIBYTE)


class BatchSize(Settings):
    batch_size: int = option("Structures per batch when energies and forces are predicted.", 16, least=1)


class Coverage(Settings):
    coverage: float = option("Probability stated for forces_error_bound and energy_error_bound.", 0.9)


class Store(Settings):
    store: Path | None = option(
        "Folder in which features are kept and found again: for pools larger than memory, and to go on after an "
        "interruption.",
        None,
    )


class Workers(Settings):
    workers: int | None = option("How many work side by side.", None, least=1, default_text="one per core")
    scheduler: str | None = option("Of a running Dask scheduler.", None, metavar="ADDRESS")


class FittedFile(LabelNames, Device, Memory):
    """A fitted uncertainty, as `adaptntk fit` wrote it, and what its files of structures are read with."""

    ntk: Path = argument("The .ntk file that adaptntk fit wrote.")
    model: Path | None = option("The model, when it is not where it was when the .ntk file was written.", None)
    trust_model: bool = option("Run code that the file of --model brings, which is refused otherwise.", False)

    def load(self) -> "Fitted":
        """The uncertainty with its model."""
        from adaptntk.uncertainty.file import load_fitted

        return load_fitted(self.ntk, self.model, self.device, self.memory_budget, trust=self.trust_model)

    def open(self, path: Path, fitted: "Fitted", labelled: "Labelled" = False) -> "Sequence[Atoms]":
        """Structures that the model can evaluate; a large file is read again a frame at a time, when it is needed."""
        from adaptntk.data.structures import open_structures
        from adaptntk.models.protocol import check_species

        keys = self.energy_key, self.forces_key
        structures = open_structures(path, *keys, labelled, True, self.memory_budget, self.stress_key)
        check_species(fitted.potential, structures, str(path))
        return structures


class RunFolder(Settings):
    run: Path = argument("The run directory of a campaign.")


class CampaignFile(Settings):
    config: Path = argument("See adaptntk config template.", metavar="CAMPAIGN.YAML")


def size_line(correlation: float | None) -> str:
    """How far the score follows the number of atoms."""
    if correlation is None:
        return "all structures have the same number of atoms"
    return f"rank correlation of U with the number of atoms: {correlation:.2f}"
