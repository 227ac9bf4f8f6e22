"""``adaptntk md``"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptntk.cli import console, options

if TYPE_CHECKING:
    from adaptntk.verbs.md import MDReport


def md(
    ntk: options.NTKFile,
    start: Annotated[Path, typer.Argument(help="Structures to start from (extxyz).", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="The extxyz file to write.", show_default=False)],
    temperature: Annotated[
        list[float] | None, typer.Option(help="Of the thermostat, K; repeatable. 300 by default.", show_default=False)
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps of each trajectory, at most.")] = 1000,
    timestep: Annotated[float, typer.Option(help="fs.")] = 0.5,
    friction: Annotated[float, typer.Option(help="Of the thermostat, 1/fs.")] = 0.01,
    every: Annotated[int, typer.Option(help="Steps between observations: uncertainty, rules, a frame.")] = 10,
    coverage: Annotated[
        float, typer.Option(help="End a run whose score so large a part of the calibration structures stays below.")
    ] = 0.99,
    max_error: Annotated[
        float | None,
        typer.Option(help="End a run instead when the bound of its force error at --coverage passes this, eV/Å."),
    ] = None,
    patience: Annotated[int, typer.Option(help="Alarms until a run ends.")] = 5,
    lost: Annotated[
        float, typer.Option(help="A score beyond this multiple of the alarm ends a run at once, and is no candidate.")
    ] = 2.0,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="End a run only when it breaks down.")] = False,
    candidates: Annotated[
        Path | None,
        typer.Option(help="Also write the frames worth a label: uncertain, sound, no two alike.", show_default=False),
    ] = None,
    min_distance: Annotated[float, typer.Option(help="Smallest difference of two candidates, Å.")] = 0.05,
    model: options.ModelOverride = None,
    energy_key: options.EnergyKey = "REF_energy",
    forces_key: options.ForcesKey = "REF_forces",
    device: options.Device = "auto",
    seed: options.Seed = 0,
    memory: options.Memory = 4.0,
) -> None:
    """Run molecular dynamics from every structure at every temperature, watched.

    A run ends when its uncertainty passes what is known (see --coverage, --max-error), or at once when atoms fuse, fly
    away, heat up without limit or are NaN. That is a result: the exit code is 0. Each frame carries the keys that
    adaptntk score writes, and trajectory, start, step, time (fs), temperature and target_temperature (K).
    """
    from adaptntk.md.dynamics import MDSettings
    from adaptntk.verbs.labels import LabelKeys
    from adaptntk.verbs.md import run_simulations

    report = run_simulations(
        ntk,
        start,
        output,
        temperature or (300.0,),
        MDSettings(steps=steps, timestep=timestep, friction=friction, interval=every),
        coverage=coverage,
        max_error=max_error,
        patience=patience,
        lost=lost,
        keep_going=keep_going,
        candidates=candidates,
        min_distance=min_distance,
        model=model,
        keys=LabelKeys(energy_key, forces_key),
        device=device,
        seed=seed,
        memory_budget=options.budget(memory),
        progress=console.show_progress,
    )
    for line in summary(report):
        console.out.print(line)
    if any(run.frames for run in report.trajectories):
        console.out.print(f"wrote {output}" + (f" and {candidates}" if report.candidates else ""))


def summary(report: "MDReport") -> list[str]:
    """How each trajectory ended, in a line."""
    lines = []
    for number, (job, run) in enumerate(zip(report.jobs, report.trajectories, strict=True)):
        name = f"trajectory {number} (start {job.start_index}, {job.settings.temperature:.0f} K)"
        how = f"stopped at {run.stopped}" if run.stopped else f"{run.steps:,} steps, no rule broken"
        sigma = [frame.info["forces_uncertainty"] for frame in run.frames if "forces_uncertainty" in frame.info]
        largest = f"; largest sigma {max(sigma):.4g} eV/Å" if sigma else ""
        lines.append(f"{name}: {how}{largest}")
    if report.candidates is not None:
        lines.append(f"{report.candidates:,} candidates" + ("" if report.candidates else ": none written"))
    return lines
