"""``adaptntk demo``: a campaign on a molecule, with real labels, beside one that selects at random."""

import time
from pathlib import Path
from typing import Annotated

import typer

from adaptntk.cli import console, options


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write to.")] = Path("demo"),
    molecule: Annotated[str, typer.Option(help="Any molecule that adaptntk data md can build.")] = "ethanol",
    preset: Annotated[str, typer.Option(help="cpu, or smoke for a test in a minute.")] = "cpu",
    device: options.Device = "auto",
) -> None:
    """Run a campaign with GFN2-xTB labels, beside one that selects at random with the same budget: no download."""
    from adaptntk.benchmark.campaigns import benchmark_campaign, campaign_table, run_folder

    began = time.perf_counter()
    results = benchmark_campaign(output, molecule, preset, seeds=1, device=device)
    run = run_folder(output, "adaptntk", 0)
    console.out.print(f"\n{campaign_table(results)}")
    (needed,) = results["summary"]["adaptntk"]["labels_to_random"]
    last = results["curves"]["random"][0]["labels"][-1]
    if needed is None:
        console.out.print("this time the selection did not come down to the last error of random labels")
    else:
        console.out.print(f"{needed:.0f} selected labels do what {last:.0f} random ones do")
    console.out.print(
        f"each is a campaign of its own: adaptntk run {output / 'adaptntk-0.yaml'}; adaptntk status {run}"
    )
    console.out.print(f"done in {time.perf_counter() - began:.0f} s; open {output / 'report.html'}")
