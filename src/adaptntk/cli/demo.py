"""``adaptntk demo``: the whole way on a molecule whose data are made on the spot."""

import time
from pathlib import Path
from typing import Annotated

import typer

from adaptntk.cli import console
from adaptntk.cli.data import md
from adaptntk.cli.evaluate import evaluate
from adaptntk.cli.fit import fit
from adaptntk.cli.select import select
from adaptntk.cli.train import train


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write to.")] = Path("demo"),
    molecule: Annotated[str, typer.Option(help="Any molecule that adaptntk data md can build.")] = "ethanol",
    frames: Annotated[int, typer.Option(min=120, help="Labelled frames to make.")] = 1200,
    epochs: Annotated[int, typer.Option(min=1, help="Length of the training.")] = 60,
) -> None:
    """Make data with GFN2-xTB, train a small MACE, fit, evaluate and select: minutes, no download."""
    from adaptntk.report.figures import draw_overview

    began = time.perf_counter()
    files = {name: output / f"{name}.xyz" for name in ("train", "valid", "test", "pool", "batch")}
    model, ntk = output / f"{molecule}.model", output / f"{molecule}.ntk"
    sizes = {"train": frames // 6, "valid": frames // 6, "test": frames // 4, "pool": 5 * frames // 12}
    step(f"adaptntk data md {molecule} -o {output} " + " ".join(f"--{part} {size}" for part, size in sizes.items()))
    md(output, molecule, **sizes)
    step(f"adaptntk train --train {files['train']} --valid {files['valid']} --epochs {epochs} -o {model}")
    train(files["train"], files["valid"], model, epochs=epochs)
    step(f"adaptntk fit {model} --train {files['train']} --valid {files['valid']} -o {ntk}")
    fit(model, files["train"], files["valid"], ntk)
    step(f"adaptntk evaluate {ntk} {files['test']} -o {output / 'report'}")
    evaluate(ntk, files["test"], output / "report")
    figure = output / "report" / "selection.png"
    step(f"adaptntk select {ntk} {files['pool']} -n 50 -o {files['batch']} --figure {figure}")
    select(ntk, files["pool"], files["batch"], 50, figure=figure)
    picture = draw_overview(output / "report", figure.with_suffix(".csv"), output / "overview.png")
    console.out.print(f"\ndone in {time.perf_counter() - began:.0f} s; look at {picture} and {output / 'report'}")


def step(command: str) -> None:
    """Show the command that the next step is."""
    console.out.print(f"\n$ {command}")
