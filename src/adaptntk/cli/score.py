"""``adaptntk score``"""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from adaptntk.cli import console, options


def score(
    ntk: options.NTKFile,
    structures: Annotated[Path, typer.Argument(help="Structures to score (extxyz).", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="The extxyz file to write.", show_default=False)],
    model: options.ModelOverride = None,
    coverage: options.Coverage = 0.9,
    energy_key: options.EnergyKey = "REF_energy",
    forces_key: options.ForcesKey = "REF_forces",
    device: options.Device = "auto",
    store: options.Store = None,
    memory: options.Memory = 4.0,
) -> None:
    """Write the structures with their uncertainty.

    Each frame gets ntk_variance (the raw score U), forces_uncertainty (eV/Å), energy_uncertainty (eV) and
    forces_error_bound (eV/Å) in its comment line.
    """
    from adaptntk.verbs.labels import LabelKeys
    from adaptntk.verbs.score import score_structures

    report = score_structures(
        ntk,
        structures,
        output,
        model=model,
        coverage=coverage,
        keys=LabelKeys(energy_key, forces_key),
        device=device,
        store=store,
        memory_budget=options.budget(memory),
        progress=console.show_progress,
    )
    shown = report.scores.sigma if report.scores.sigma is not None else report.scores.variance
    unit = "sigma (eV/Å)" if report.scores.sigma is not None else "U"
    low, middle, high = np.quantile(shown, [0.05, 0.5, 0.95])
    noun = "structures" if len(shown) > 1 else "structure"
    console.out.print(
        f"{len(shown):,} {noun}, {unit}: median {middle:.4g}, 5-95 % {low:.4g} .. {high:.4g}, "
        f"largest {shown.max():.4g} (frame {int(shown.argmax())})"
    )
    console.out.print(size_line(report.correlation_with_size))
    console.out.print(f"wrote {output}")


def size_line(correlation: float | None) -> str:
    """How far the score follows the number of atoms."""
    if correlation is None or np.isnan(correlation):
        return "all structures have the same number of atoms"
    return f"rank correlation of U with the number of atoms: {correlation:.2f}"
