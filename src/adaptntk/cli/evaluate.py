"""``adaptntk evaluate``"""

from pathlib import Path
from typing import Annotated, Any

import typer

from adaptntk.cli import console, options
from adaptntk.cli.score import size_line


def evaluate(
    ntk: options.NTKFile,
    test: Annotated[Path, typer.Argument(help="Labelled structures outside the training set.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the report.", show_default=False)],
    model: options.ModelOverride = None,
    energy_key: options.EnergyKey = "REF_energy",
    forces_key: options.ForcesKey = "REF_forces",
    device: options.Device = "auto",
    batch_size: options.BatchSize = 16,
    seed: options.Seed = 0,
    memory: options.Memory = 4.0,
) -> None:
    """Compare the uncertainty with the true errors of the model on labelled structures.

    Writes evaluation.json, evaluation.csv and evaluation.png.
    """
    from adaptntk.verbs.evaluate import evaluate_uncertainty
    from adaptntk.verbs.labels import LabelKeys

    evaluation = evaluate_uncertainty(
        ntk,
        test,
        output,
        model=model,
        keys=LabelKeys(energy_key, forces_key),
        device=device,
        batch_size=batch_size,
        seed=seed,
        memory_budget=options.budget(memory),
        progress=console.show_progress,
    )
    print_metrics(evaluation.metrics)
    console.out.print(f"wrote {output}/evaluation.json, .csv and .png")


def print_metrics(metrics: dict[str, Any]) -> None:
    """The metrics, with 95 % bootstrap intervals in brackets."""
    from adaptntk.evaluation import KCAL_PER_MOL

    force = metrics["force_rmse"]
    console.out.print(
        f"{metrics['structures']:,} structures: force RMSE {force:.4f} eV/Å ({force / KCAL_PER_MOL:.2f} kcal/mol/Å), "
        f"energy MAE {1000 * metrics['energy_mae_per_atom']:.2f} meV/atom"
    )
    rows = [
        ("Spearman", "spearman", f"predicted energy alone: {metrics['control_predicted_energy_spearman']:.3f}"),
        ("Pearson, sqrt U", "pearson", f"of U itself: {metrics['pearson_of_variance']:.3f}"),
        ("AURC_n", "aurc_n", "0 perfect ranking, 1 chance"),
        ("ENCE", "ence", f"floor {metrics['ence_floor']:.4f}, constant sigma {metrics['ence_constant_sigma']:.4f}"),
        ("ENCE, cross-fitted", "ence_cross_fitted", "as in the paper"),
    ]
    for label, key, remark in rows:
        low, high = metrics[f"{key}_interval"]
        digits = 4 if "ence" in key else 3
        interval = f"({low:.{digits}f} .. {high:.{digits}f})"
        console.out.print(f"  {label:<19}{metrics[key]:>7.{digits}f}  {interval:<20} {remark}")
    if metrics["spearman"] is None or metrics["spearman"] <= metrics["control_predicted_energy_spearman"]:
        console.out.print("note: the score ranks these structures no better than the predicted energy alone does")
    for coverage in metrics["conformal"].values():
        console.out.print(coverage_line(coverage))
    console.out.print(size_line(metrics["correlation_with_size"]))


def coverage_line(coverage: dict[str, Any]) -> str:
    """Stated and observed coverage of one conformal bound."""
    stated = f"conformal bound at {100 * coverage['stated']:.0f} %"
    if coverage["observed"] is None:
        return f"{stated}: the calibration set is too small for it"
    return (
        f"{stated}: error <= {coverage['error_over_sigma']:.2f} sigma, observed in "
        f"{100 * coverage['observed']:.1f} % (± {100 * coverage['standard_error']:.1f})"
    )
