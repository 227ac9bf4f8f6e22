"""``adaptntk data``: labelled structures to start from."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptntk.cli import console, options

if TYPE_CHECKING:
    from ase import Atoms

data = typer.Typer(help="Make or convert labelled data sets.", no_args_is_help=True)

OutputFolder = Annotated[Path, typer.Option("-o", "--output", help="Folder to write to.", show_default=False)]
Train = Annotated[int, typer.Option(help="Structures in train.xyz.")]
Valid = Annotated[int, typer.Option(help="Structures in valid.xyz.")]
Test = Annotated[int, typer.Option(help="Structures in test.xyz.")]
Pool = Annotated[int, typer.Option(help="Structures in pool.xyz.")]


@data.command()
@console.one_line_errors
def md(
    output: OutputFolder,
    molecule: Annotated[
        str, typer.Argument(help="ethanol, benzene, ... or a name of ASE's G2 collection.")
    ] = "ethanol",
    temperature: Annotated[float, typer.Option(help="In K.")] = 500.0,
    interval: Annotated[int, typer.Option(help="MD steps of 0.5 fs between frames.")] = 20,
    train: Train = 200,
    valid: Valid = 200,
    test: Test = 300,
    pool: Pool = 500,
    seed: options.Seed = 0,
) -> None:
    """Run molecular dynamics with GFN2-xTB and split the labelled frames."""
    from adaptntk.data.xtb_md import build_molecule, sample_md
    from adaptntk.files import check_folder

    check_folder(output)
    sizes = {"train": train, "valid": valid, "test": test, "pool": pool}
    frames = sample_md(
        build_molecule(molecule),
        sum(sizes.values()),
        temperature,
        interval,
        seed=seed,
        progress=console.show_progress,
    )
    write_split(frames, sizes, output, seed)


@data.command()
@console.one_line_errors
def rmd17(
    molecule: Annotated[str, typer.Argument(help="aspirin, naphthalene, ...", show_default=False)],
    output: OutputFolder,
    train: Train = 1000,
    valid: Valid = 100,
    test: Test = 2000,
    pool: Pool = 0,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with rmd17/rmd17_*.npz; ADAPTNTK_DATA by default.", show_default=False),
    ] = None,
    seed: options.Seed = 0,
) -> None:
    """Convert a molecule of the revised MD17 data set to eV and split it."""
    from adaptntk.data.rmd17 import load_rmd17
    from adaptntk.files import check_folder

    check_folder(output)
    frames = load_rmd17(molecule, data_dir)
    write_split(frames, {"train": train, "valid": valid, "test": test, "pool": pool}, output, seed)


@data.command()
@console.one_line_errors
def reactions(
    output: Annotated[Path, typer.Option("-o", "--output", help="The HDF5 file to write.", show_default=False)],
    only: Annotated[
        str | None, typer.Option(help="Only reactions whose names hold one of these words, separated by commas.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Reactions side by side; one per core by default.", show_default=False)
    ] = None,
    seed: options.Seed = 0,
) -> None:
    """Make reaction paths with GFN2-xTB, in the layout of Transition-1X: minutes, no download.

    Reactant and product of each small organic reaction are relaxed and joined by a climbing nudged elastic band; every
    image of every iteration is kept. Needs RDKit (pip install 'adaptntk[benchmarks]').
    """
    from benchmarks.reactions.paths import make_reactions
    from benchmarks.reactions.recipes import REACTIONS
    from benchmarks.reactions.transition1x import write_transition1x

    from adaptntk.errors import InputError
    from adaptntk.execution import choose_workers
    from adaptntk.files import check_writable

    check_writable(output)
    words = None if only is None else [word.strip() for word in only.split(",")]
    recipes = [recipe for recipe in REACTIONS if words is None or any(word in recipe.name for word in words)]
    if not recipes:
        raise InputError(f"no reaction has a name with {only!r} in it")
    paths, failures = make_reactions(recipes, choose_workers(len(recipes), jobs, "cpu"), seed)
    for failure in failures:
        console.out.print(f"dropped {failure.name}: {failure.reason}")
    if len(paths) < 3:
        raise InputError(f"only {len(paths)} of {len(recipes)} reactions gave a path; at least three are needed")
    write_transition1x(output, paths, seed)
    frames = sum(len(path.energies) for path in paths)
    console.out.print(f"wrote {output}: {len(paths)} reactions, {frames:,} frames, {len(failures)} reactions dropped")


def write_split(frames: "list[Atoms]", sizes: dict[str, int], folder: Path, seed: int) -> None:
    """Disjoint extxyz files of the given sizes; those of size zero are left out."""
    from adaptntk.data.splits import split_structures
    from adaptntk.data.structures import write_structures
    from adaptntk.files import make_folder

    parts = split_structures(frames, sizes, seed)
    make_folder(folder)
    for name, part in parts.items():
        if part:
            write_structures(folder / f"{name}.xyz", part)
            console.out.print(f"wrote {folder / f'{name}.xyz'}: {len(part):,} structures")
