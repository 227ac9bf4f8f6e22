"""``adaptntk select``"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptntk.cli import console, options
from adaptntk.cli.score import size_line

if TYPE_CHECKING:
    from adaptntk.verbs.select import SelectionReport


def select(
    ntk: options.NTKFile,
    pool: Annotated[Path, typer.Argument(help="Candidate structures (extxyz).", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="The extxyz file to write.", show_default=False)],
    count: Annotated[int, typer.Option("-n", "--count", help="How many structures to pick.")] = 50,
    method: Annotated[
        str,
        typer.Option(
            help="adaptntk (scores updated after each pick), topb, lcmd, adaptntk+lcmd, maxdist, kmeans++, bait or "
            "random."
        ),
    ] = "adaptntk",
    exclude: Annotated[
        list[Path] | None,
        typer.Option(help="Files of structures labelled already; repeatable.", show_default=False),
    ] = None,
    min_separation: Annotated[
        float, typer.Option(help="Smallest distance of two picks in feature space: 0 the same, 1 unrelated.")
    ] = 0.0,
    per_group_max: Annotated[
        tuple[str, int] | None,
        typer.Option(
            metavar="KEY N",
            help="At most N picks with the same value of KEY in the comment line.",
            show_default=False,
        ),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(help="Also draw the pool and the picks (PNG, and a CSV beside it).", show_default=False),
    ] = None,
    model: options.ModelOverride = None,
    coverage: options.Coverage = 0.9,
    energy_key: options.EnergyKey = "REF_energy",
    forces_key: options.ForcesKey = "REF_forces",
    device: options.Device = "auto",
    seed: options.Seed = 0,
    store: options.Store = None,
    memory: options.Memory = 4.0,
) -> None:
    """Write the structures worth labelling next, in the order of picking.

    Structures of the training set are never picked. Each frame carries ntk_pick (1, 2, ...), ntk_score (U at
    the time of picking), ntk_pool_index, and the keys that adaptntk score writes.
    """
    from adaptntk.verbs.labels import LabelKeys
    from adaptntk.verbs.select import select_batch

    report = select_batch(
        ntk,
        pool,
        count,
        output,
        method=method,
        model=model,
        exclude_files=exclude or (),
        min_separation=min_separation,
        per_group_max=per_group_max,
        figure=figure,
        coverage=coverage,
        keys=LabelKeys(energy_key, forces_key),
        device=device,
        seed=seed,
        store=store,
        memory_budget=options.budget(memory),
        progress=console.show_progress,
    )
    for line in summary(report):
        console.out.print(line)
    console.out.print(f"wrote {output}" + (f" and {figure}" if figure else ""))


def summary(report: "SelectionReport") -> list[str]:
    """The batch in a few lines."""
    scores, pool_size = report.selection.scores, len(report.scores.variance)
    lines = [f"picked {len(scores)} of {pool_size - report.excluded:,} candidates"]
    if report.excluded:
        lines[0] += f" ({report.excluded:,} excluded: labelled already)"
    lines.append(f"U at the time of picking: {scores[0]:.4g} (first) .. {scores[-1]:.4g} (last)")
    if report.smallest_gap is not None and report.sketch_error is not None:
        if report.smallest_gap > report.sketch_error:
            verdict = "exact scores should give the same batch"
        else:
            verdict = "corollary not triggered, exact scores may choose between equals differently"
        lines.append(
            f"smallest decision gap {report.smallest_gap:.2g}, sketch error {report.sketch_error:.2g}: {verdict}"
        )
    lines.append(size_line(report.correlation_with_size))
    if report.sketch_overlap is not None:
        lines.append(f"batches of the sketch's two halves overlap by {report.sketch_overlap:.2f} (Jaccard)")
    return lines
