"""``adaptntk benchmark``"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptntk.cli import console, options
from adaptntk.errors import InputError

if TYPE_CHECKING:
    from ase import Atoms

benchmark = typer.Typer(
    help="What it costs on this machine and how good it is, beside what others do.", no_args_is_help=True
)

Output = Annotated[Path, typer.Option("-o", "--output", help="The folder to write to.")]
Preset = Annotated[str, typer.Option(help="full, or smoke for a test in seconds.")]
LearningSource = Annotated[
    str | None,
    typer.Option(
        help="rmd17, xtb (dynamics made on the spot), a labelled extxyz file, t1x (Transition-1X, or reactions "
        "made on the spot where it is not), or an HDF5 file in its layout.",
        show_default="xtb for smoke, else rmd17",
    ),
]
LearningMolecules = Annotated[
    str | None, typer.Option(help="Names with commas between them.", show_default="aspirin of rmd17")
]
LearningPreset = Annotated[
    str, typer.Option(help="cpu (small network, hours), paper (for a GPU) or smoke (a test in minutes).")
]
LearningJobs = Annotated[
    int | None, typer.Option(help="Runs side by side; one per core by default.", show_default=False)
]
Seeds = Annotated[int, typer.Option(help="How often, each time with another split and other weights.")]
Structures = Annotated[
    Path | None,
    typer.Option(help="Labelled structures of one composition (extxyz); xTB frames of ethanol when not given."),
]


@benchmark.command()
@console.one_line_errors
def features(
    structures: Structures = None,
    output: Output = Path("benchmark"),
    preset: Preset = "full",
    energy_key: options.EnergyKey = "REF_energy",
    forces_key: options.ForcesKey = "REF_forces",
    device: options.Device = "auto",
) -> None:
    """Gradients and sketches: against one backward per structure, torch.func, TRAK and dattri."""
    from adaptntk.files import make_folder
    from benchmarks.features import benchmark_features
    from benchmarks.stopwatch import table

    frames = _frames(structures, energy_key, forces_key, 64 if preset == "full" else 8)
    result = benchmark_features(frames, make_folder(output), preset, device, console.show_progress)
    for name, network in result["networks"].items():
        console.out.print(f"\n{name}: {network['parameters']:,} parameters, {result['structures']}")
        rows = [_row("", work, times) for work, times in network["milliseconds"].items()]
        rows += [_row("sketch: ", work, value["milliseconds"]) for work, value in network["sketches"].items()]
        for line in table(rows):
            console.out.print(line)
        for ratio, value in network["ratios"].items():
            console.out.print(_ratio(ratio, value))
        console.out.print(f"largest relative error against the loop: {network['largest_relative_error']:.1e}")
    console.out.print(f"wrote {output / 'features.json'} and {output / 'features.png'}")


@benchmark.command()
@console.one_line_errors
def selection(output: Output = Path("benchmark"), preset: Preset = "full") -> None:
    """Batches from large pools: against recomputation and bmdal_reg; peak memory of a pool on disk."""
    from adaptntk.files import make_folder
    from benchmarks.selection import benchmark_selection

    result = benchmark_selection(make_folder(output), preset, console.show_progress)
    console.out.print(f"{result['picks']} picks of {result['candidates']:,} x {result['dim']}, seconds:")
    for name, seconds in result["seconds"].items():
        shown = f"{seconds['median']:.2f}" if isinstance(seconds, dict) else f"{seconds:.2f}"
        console.out.print(f"  {name}: {shown}")
    for name, value in result["ratios"].items():
        console.out.print(_ratio(name, value) if isinstance(value, dict) else f"{name} = {value}")
    verdicts = [f"{who} {'yes' if same else 'NO'}" for who, same in result["same_picks"].items()]
    console.out.print(f"same picks: {', '.join(verdicts)}")
    console.out.print("every rule, in a process of its own:")
    for name, found in result["selectors"].items():
        peak = f", peak memory {found['peak_gibibytes']:.2f} GiB" if "peak_gibibytes" in found else ""
        console.out.print(f"  {name}: {found['seconds']:.2f} s{peak}")
    if (memory := result["peak_memory"]) is not None:
        peaks = ", ".join(f"{int(n):,} structures {gib:.3f} GiB" for n, gib in memory["gibibytes"].items())
        console.out.print(f"peak memory of select --store: {peaks} (ratio {memory['ratio']:.3f})")
    console.out.print(f"wrote {output / 'selection.json'} and {output / 'selection.png'}")


@benchmark.command()
@console.one_line_errors
def training(
    structures: Structures = None,
    output: Output = Path("benchmark"),
    preset: Preset = "full",
    energy_key: options.EnergyKey = "REF_energy",
    forces_key: options.ForcesKey = "REF_forces",
) -> None:
    """An epoch of adaptntk train against one of mace_run_train, same network, data and loss."""
    from adaptntk.files import make_folder
    from benchmarks.training import benchmark_training

    frames = _frames(structures, energy_key, forces_key, 120 if preset == "full" else 32)
    result = benchmark_training(frames, make_folder(output), preset, console.show_progress)
    for name, network in result["networks"].items():
        seconds, errors = network["seconds_per_epoch"], network["best_validation_force_rmse_mev"]
        console.out.print(
            f"{name}: {seconds['mace_run_train']:.2f} s per epoch with mace_run_train, {seconds['adaptntk']:.2f} s "
            f"with adaptntk train, ratio {network['ratio']:.2f}"
        )
        console.out.print(
            f"  best validation force RMSE within {network['epochs']} epochs: {errors['mace_run_train']:.0f} and "
            f"{errors['adaptntk']:.0f} meV/Å"
        )
    console.out.print(f"wrote {output / 'training.json'}")


@benchmark.command()
@console.one_line_errors
def uq(
    output: Output = Path("benchmark-uq"),
    data: Annotated[
        str | None,
        typer.Option(
            help="rmd17, xtb (dynamics with GFN2-xTB, made on the spot) or a labelled extxyz file.",
            show_default="xtb for smoke, else rmd17",
        ),
    ] = None,
    molecules: Annotated[
        str | None,
        typer.Option(help="Names with commas between them.", show_default="aspirin,naphthalene of rmd17"),
    ] = None,
    preset: LearningPreset = "cpu",
    seeds: Seeds = 2,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Names with commas between them, NAME:KEY=VALUE to set an option; all when not given.",
            show_default=False,
        ),
    ] = None,
    error_model: Annotated[
        bool, typer.Option("--error-model", help="Add a row: the NTK score combined with cheap covariates.")
    ] = False,
    jobs: LearningJobs = None,
    data_dir: options.DataDir = None,
    energy_key: options.EnergyKey = "REF_energy",
    forces_key: options.ForcesKey = "REF_forces",
    device: options.Device = "auto",
) -> None:
    """All uncertainty methods side by side: ranking, retention and calibration. Goes on after an interruption."""
    from benchmarks.sources import Source, check_source
    from benchmarks.uq import DEFAULT_METHODS, benchmark_uq

    chosen = _data(data, preset)
    check_source(chosen)
    source = Source(chosen, data_dir, output, (energy_key, forces_key))
    names = [*DEFAULT_METHODS] if methods is None else _list(methods)
    chosen_molecules = source.default_molecules() if molecules is None else _list(molecules)
    if error_model and "error_model" not in names:
        names.insert(names.index("ntk") + 1 if "ntk" in names else 0, "error_model")
    benchmark_uq(output, source, chosen_molecules, preset, seeds, names, jobs, device)
    console.out.print((output / "table.md").read_text())
    console.out.print(f"wrote results.json, timings.json, table.md and figures to {output}")


@benchmark.command()
@console.one_line_errors
def al(
    output: Output = Path("benchmark-al"),
    data: LearningSource = None,
    molecules: LearningMolecules = None,
    methods: Annotated[
        str,
        typer.Option(
            help="Names with commas between them: selectors (adaptntk, topb, lcmd, adaptntk+lcmd, maxdist, kmeans++, "
            "bait, random; SELECTOR@256 for another sketch) and scores (qbc, mcd, swag, edl, llpr)."
        ),
    ] = "adaptntk,topb,lcmd,bait,qbc,random",
    preset: LearningPreset = "cpu",
    seeds: Seeds = 3,
    jobs: LearningJobs = None,
    data_dir: options.DataDir = None,
    energy_key: options.EnergyKey = "REF_energy",
    forces_key: options.ForcesKey = "REF_forces",
    device: options.Device = "auto",
) -> None:
    """Learning curves: labels are hidden, bought in batches, and the model trained anew. Goes on where it was."""
    from benchmarks.al import benchmark_al
    from benchmarks.al_data import find_tasks

    names = None if molecules is None else _list(molecules)
    keys = (energy_key, forces_key)
    tasks = find_tasks(_data(data, preset), names, output, data_dir, keys, must_exist=preset == "paper")
    benchmark_al(output, tasks, preset, seeds, _list(methods), jobs, device)
    console.out.print((output / "table.md").read_text())
    console.out.print(f"wrote results.json, timings.json, table.md and figures to {output}")


@benchmark.command()
@console.one_line_errors
def sketch(
    output: Output = Path("benchmark-sketch"),
    data: LearningSource = None,
    molecules: LearningMolecules = None,
    dims: Annotated[
        str | None,
        typer.Option(
            help="Dimensions with commas between them; exact for full gradients. 128,256,512,1024,2048,exact by "
            "default; without exact for the preset paper, whose full gradients fit nowhere."
        ),
    ] = None,
    preset: LearningPreset = "cpu",
    seeds: Seeds = 3,
    jobs: LearningJobs = None,
    data_dir: options.DataDir = None,
    energy_key: options.EnergyKey = "REF_energy",
    forces_key: options.ForcesKey = "REF_forces",
    device: options.Device = "auto",
) -> None:
    """Learning curves of AdaptNTK with sketches of several dimensions, and how far their batches agree."""
    from benchmarks.al import batch_overlaps

    chosen = _list(dims or "128,256,512,1024,2048" + ("" if preset == "paper" else ",exact"))
    methods = ",".join([*(f"adaptntk@{dim}" for dim in chosen), "random"])
    al(output, data, molecules, methods, preset, seeds, jobs, data_dir, energy_key, forces_key, device)
    for task, overlaps in batch_overlaps(output).items():
        for method, overlap in overlaps.items():
            console.out.print(f"{task}: first batch of {method} and of {chosen[-1]} have {overlap:.2f} in common")


@benchmark.command()
@console.one_line_errors
def timing(
    output: Output = Path("benchmark-timing"),
    data: LearningSource = None,
    molecules: LearningMolecules = None,
    methods: Annotated[str, typer.Option(help="Names with commas between them, see adaptntk benchmark al.")] = (
        "adaptntk,topb,lcmd,bait,qbc,mcd,swag,edl,llpr,random"
    ),
    preset: LearningPreset = "cpu",
    data_dir: options.DataDir = None,
    energy_key: options.EnergyKey = "REF_energy",
    forces_key: options.ForcesKey = "REF_forces",
    device: options.Device = "auto",
) -> None:
    """One round of active learning with each method: training, uncertainty and selection, as ratios to AdaptNTK."""
    from benchmarks.al_data import find_tasks
    from benchmarks.timing import benchmark_timing

    names = None if molecules is None else _list(molecules)
    keys = (energy_key, forces_key)
    tasks = find_tasks(_data(data, preset), names, output, data_dir, keys, must_exist=preset == "paper")
    if len(tasks) > 1:
        raise InputError("times are taken with one molecule: name only one")
    benchmark_timing(output, tasks[0], preset, _list(methods), device)
    console.out.print((output / "table.md").read_text())
    console.out.print(f"wrote timing.json and table.md to {output}")


def _frames(path: Path | None, energy_key: str, forces_key: str, count: int) -> "list[Atoms]":
    from adaptntk.data.structures import read_structures
    from adaptntk.data.xtb_md import build_molecule, sample_md

    if path is not None:
        return read_structures(path, energy_key, forces_key, labelled=True)
    return sample_md(build_molecule("ethanol"), frames=count, temperature=500, interval=5, seed=0)


def _data(data: str | None, preset: str) -> str:
    """What is not given is made on the spot for a test, and the published data set otherwise."""
    return data if data is not None else "xtb" if preset == "smoke" else "rmd17"


def _list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _row(prefix: str, work: str, times: dict[str, float]) -> dict[str, Any]:
    return {
        "ms per structure": prefix + work,
        "median": f"{times['median']:.2f}",
        "range": f"{times['low']:.2f} .. {times['high']:.2f}",
    }


def _ratio(name: str, value: dict[str, float]) -> str:
    return f"{name} = {value['median']:.2f} ({value['low']:.2f} .. {value['high']:.2f})"


@benchmark.command()
@console.one_line_errors
def campaign(
    output: Output = Path("benchmark-campaign"),
    molecule: Annotated[str, typer.Option(help="Any molecule that adaptntk data md can build.")] = "ethanol",
    methods: Annotated[str, typer.Option(help="Ways to select, with commas between them.")] = "adaptntk,random",
    preset: Annotated[str, typer.Option(help="cpu or smoke.")] = "cpu",
    seeds: Seeds = 3,
    jobs: LearningJobs = None,
    device: options.Device = "auto",
) -> None:
    """Whole campaigns with real labels (GFN2-xTB) that differ in how they select: labels needed for the same error."""
    from benchmarks.campaigns import benchmark_campaign, campaign_table

    results = benchmark_campaign(output, molecule, preset, seeds, _list(methods), jobs, device)
    console.out.print(campaign_table(results))
    console.out.print(f"wrote {output / 'results.json'}, table.md and report.html")


if __name__ == "__main__":
    console.set_up(verbose=False)
    benchmark(prog_name="python -m benchmarks")
