"""``adaptntk train``"""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptntk.cli import console, options
from adaptntk.errors import InputError

if TYPE_CHECKING:
    from adaptntk.training.loop import EpochReport


def train(
    train: Annotated[Path, typer.Option(help="Labelled training structures (extxyz).", show_default=False)],
    valid: Annotated[Path, typer.Option(help="Labelled validation structures.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="The .model file to write.", show_default=False)],
    preset: Annotated[str, typer.Option(help="small (fast on a CPU), paper (for a GPU), or tiny (a toy).")] = "small",
    epochs: Annotated[int | None, typer.Option(help="Override the preset.", show_default=False)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Override the preset.", show_default=False)] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Override the preset.", show_default=False)] = None,
    energy_loss: Annotated[str, typer.Option(help="Energy error per_atom (as in MACE) or total.")] = "per_atom",
    energy_reference: Annotated[
        str | None,
        typer.Option(
            help="Count energies from elements (least squares) or from the mean per atom.",
            show_default="mean for paper, else elements",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last epoch's checkpoint.")] = False,
    energy_key: options.EnergyKey = "REF_energy",
    forces_key: options.ForcesKey = "REF_forces",
    device: options.Device = "auto",
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    seed: options.Seed = 0,
) -> None:
    """Train a MACE network with the paper's recipe and write a stock .model file."""
    from adaptntk.training.loop import find_preset
    from adaptntk.verbs.labels import LabelKeys
    from adaptntk.verbs.train import train_model

    recipe = find_preset(preset, epochs)
    default_reference = "elements" if recipe.element_energies else "mean"
    recipe = dataclasses.replace(
        recipe,
        batch_size=recipe.batch_size if batch_size is None else batch_size,
        learning_rate=recipe.learning_rate if learning_rate is None else learning_rate,
        per_atom_energy=choice("--energy-loss", energy_loss, ("total", "per_atom")),
        element_energies=choice("--energy-reference", energy_reference or default_reference, ("mean", "elements")),
    )
    reports: list[EpochReport] = []

    def show(report: "EpochReport") -> None:
        reports.append(report)
        step = max(1, report.epochs // 20)
        if report.epoch == 1 or report.epoch % step == 0 or report.epoch == report.epochs:
            console.err.print(epoch_line(report, reports))

    trained = train_model(
        train, valid, output, recipe, LabelKeys(energy_key, forces_key), seed, device, dtype, resume, show
    )
    epoch = "" if trained.best_epoch is None else f" epoch {trained.best_epoch},"
    console.out.print(
        f"wrote {output}:{epoch} validation force RMSE {trained.force_rmse:.4f} eV/Å, "
        f"energy RMSE {1000 * trained.energy_rmse_per_atom:.2f} meV/atom"
    )


def choice(option: str, value: str, allowed: tuple[str, str]) -> bool:
    """Whether the second of two values was chosen."""
    if value not in allowed:
        raise InputError(f"unknown {option} {value!r}: choose {allowed[1]} or {allowed[0]}")
    return value == allowed[1]


def epoch_line(report: "EpochReport", reports: "list[EpochReport]") -> str:
    """One line of progress with the time left, from the last epochs."""
    recent = reports[-5:]
    seconds = sum(r.seconds for r in recent) / len(recent)
    left = round(seconds * (report.epochs - report.epoch))
    errors = report.validation
    return (
        f"epoch {report.epoch:4d}/{report.epochs}  loss {report.train_loss:.5f}  validation: "
        f"forces {errors.force_rmse:.4f} eV/Å, energy {1000 * errors.energy_rmse_per_atom:.2f} meV/atom  "
        f"{report.seconds:.1f} s/epoch, {left // 60}:{left % 60:02d} left"
    )
