"""``adaptntk run``"""

from pathlib import Path
from typing import Annotated, Any

import typer

from adaptntk.cli import console, options


def run(
    config: Annotated[Path, typer.Argument(metavar="CAMPAIGN.YAML", help="See adaptntk config template.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a campaign that was begun.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The run directory, instead of the file's.")
    ] = None,
    executor: Annotated[str | None, typer.Option(help="serial, local or dask, instead of the file's.")] = None,
    workers: options.Workers = None,
    scheduler: options.Scheduler = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1, ..., instead of the file's.")] = None,
) -> None:
    """Run a campaign: explore, select, label, retrain, until its verdict. Can be interrupted at any moment."""
    from adaptntk.campaign.loop import run_campaign

    folder, verdict = run_campaign(
        config, resume, executor, workers, scheduler, device, output, console.show_progress, show_round
    )
    console.out.print(f"stop ({verdict.reason}): {verdict.text}")
    console.out.print(f"everything is in {folder}; next: adaptntk report {folder}")


def show_round(summary: dict[str, Any]) -> None:
    """One line per round."""
    errors, labels = summary["errors"], summary["labels"]
    told = summary["information_per_label"]
    parts = f"{labels['train']} train, {labels['valid']} valid, {labels['holdout']} hold-out"
    console.out.print(
        f"round {summary['round']}: {summary['labels_spent']} labels bought ({parts}; {labels['quarantined']} failed), "
        f"force RMSE {errors['force_rmse']:.4f} eV/Å "
        f"({errors['force_rmse_low']:.4f} .. {errors['force_rmse_high']:.4f})"
        + ("" if told is None else f", {told:.2f} nats per label")
    )
