"""Options that several verbs share, so that they are spelled and explained the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

from adaptntk.errors import InputError
from adaptntk.memory import GIBIBYTE

NTKFile = Annotated[Path, typer.Argument(help="The .ntk file that adaptntk fit wrote.", show_default=False)]
RunFolder = Annotated[Path, typer.Argument(help="The run directory of a campaign.", show_default=False)]
ModelOverride = Annotated[
    Path | None,
    typer.Option("--model", help="The model, when it is not where it was when the .ntk file was written."),
]
EnergyKey = Annotated[str, typer.Option(help="Name of the energy label (eV) in the files.")]
ForcesKey = Annotated[str, typer.Option(help="Name of the forces label (eV/Å) in the files.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Seed = Annotated[int, typer.Option(help="Seed of everything random in this step.")]
Memory = Annotated[float, typer.Option(help="Memory budget in GiB.")]
Store = Annotated[
    Path | None,
    typer.Option(
        help="Folder in which features are kept and found again: for pools larger than memory, and to go on after an "
        "interruption.",
        show_default=False,
    ),
]
BatchSize = Annotated[int, typer.Option(help="Structures per batch when energies and forces are predicted.")]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder with published data sets; ADAPTNTK_DATA by default.", show_default=False),
]
Workers = Annotated[int | None, typer.Option(min=1, help="How many work side by side.", show_default="one per core")]
Scheduler = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Of a running Dask scheduler.", show_default=False)
]
Coverage = Annotated[float, typer.Option(help="Probability stated for forces_error_bound.")]


def budget(gibibytes: float) -> int:
    """The memory option in bytes."""
    if not 0 < gibibytes < 1e6:
        raise InputError(f"the memory budget must be a positive number of GiB, not {gibibytes}")
    return int(gibibytes * GIBIBYTE)
