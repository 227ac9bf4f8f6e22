"""``adaptntk demo``: two campaigns on a molecule, labels and all, that differ only in how they select."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from adaptntk.cli import console, options


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write to.")] = Path("demo"),
    molecule: Annotated[str, typer.Option(help="Any molecule that adaptntk data md can build.")] = "ethanol",
    preset: Annotated[str, typer.Option(help="cpu, or smoke for a quick look.")] = "cpu",
    device: options.Device = "auto",
) -> None:
    """A campaign with AdaptNTK beside one that selects at random: simulate, select, label with GFN2-xTB, retrain."""
    from benchmarks.campaigns import benchmark_campaign, campaign_table, run_folder

    began = time.perf_counter()
    results = benchmark_campaign(output, molecule, preset, seeds=1, device=device)
    console.out.print(f"\n{campaign_table(results)}")
    console.out.print(sentence(results))
    chosen = run_folder(output, "adaptntk", 0)
    console.out.print(f"the campaign as a file: {output / chosen.name}.yaml   its state: adaptntk status {chosen}")
    console.out.print(f"done in {time.perf_counter() - began:.0f} s; open {output / 'report.html'}")


def sentence(results: dict[str, Any]) -> str:
    """What the comparison says, in one line."""
    curves, needed = results["curves"], results["summary"]["adaptntk"]["labels_to_random"][0]
    spent = curves["random"][0]["labels"][-1]
    reached = 1000 * curves["random"][0]["force_rmse"][-1]
    if needed is None:
        return f"{spent} labels did not bring AdaptNTK to what {spent} random ones reach ({reached:.0f} meV/Å)"
    return f"{needed:.0f} labels of AdaptNTK do what {spent} random ones do ({reached:.0f} meV/Å)"
