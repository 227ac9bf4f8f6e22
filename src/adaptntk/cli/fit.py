"""``adaptntk fit``"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from adaptntk.cli import console, options
from adaptntk.cli.train import epoch_line
from adaptntk.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from adaptntk.training.loop import EpochReport
    from adaptntk.uncertainty.ntk import NTKUncertainty
    from adaptntk.verbs.labels import LabelKeys


def fit(
    model: Annotated[
        Path,
        typer.Argument(help="A trained MACE .model file (a pickle: trust its origin).", show_default=False),
    ],
    train: Annotated[Path, typer.Option(help="The structures the model was trained on.", show_default=False)],
    valid: Annotated[Path, typer.Option(help="Labelled structures for ridge and calibration.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="The .ntk file to write.", show_default=False)],
    method: Annotated[
        str,
        typer.Option(
            help="ntk, or for comparison: error_model, ensemble, dropout, swag, evidential, last_layer, distance, "
            "energy, random."
        ),
    ] = "ntk",
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Of a method other than ntk; repeatable.", show_default=False),
    ] = None,
    member: Annotated[
        list[Path] | None,
        typer.Option(help="Further trained networks of an ensemble; repeatable.", show_default=False),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            help="Folder for networks that a method still has to train; they are found again there.",
            show_default="OUTPUT.networks",
        ),
    ] = None,
    preset: Annotated[str, typer.Option(help="Of that training, see adaptntk train.")] = "small",
    epochs: Annotated[int | None, typer.Option(help="Of that training.", show_default=False)] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(help="Labelled structures for sigma and bounds, instead of --valid.", show_default=False),
    ] = None,
    sketch: Annotated[
        str,
        typer.Option(
            help="gaussian; srht or sparse for very large networks; none for exact scores from full gradients."
        ),
    ] = "gaussian",
    sketch_dim: Annotated[int, typer.Option(help="Dimension p of the sketch.")] = 512,
    sketch_seed: Annotated[int, typer.Option(help="Which random sketch.")] = 0,
    alpha: Annotated[float, typer.Option(help="Relative ridge, lam = alpha tr(F)/n: the prior choice.")] = 1e-4,
    lam: Annotated[float | None, typer.Option(help="Absolute ridge; fixes it.", show_default=False)] = None,
    lam_criterion: Annotated[
        str | None,
        typer.Option(
            help="How validation may move the ridge: spearman, nll, effective_dimension, fixed.",
            show_default="spearman, or fixed with --lam",
        ),
    ] = None,
    normalise: Annotated[
        str,
        typer.Option(help="Features per total energy (none), per_atom, sqrt_n, or auto by the training set."),
    ] = "auto",
    energy_key: options.EnergyKey = "REF_energy",
    forces_key: options.ForcesKey = "REF_forces",
    device: options.Device = "auto",
    dtype: Annotated[
        str | None, typer.Option(help="float32 or float64; as stored by default.", show_default=False)
    ] = None,
    head: Annotated[str | None, typer.Option(help="Head of a multi-head model.", show_default=False)] = None,
    batch_size: options.BatchSize = 16,
    seed: options.Seed = 0,
    memory: options.Memory = 4.0,
    executor: Annotated[
        str, typer.Option(help="Where members of an ensemble are trained: serial, local (side by side) or dask.")
    ] = "serial",
    workers: options.Workers = None,
    scheduler: options.Scheduler = None,
) -> None:
    """Turn a trained model and its training set into a calibrated uncertainty.

    Options from --sketch to --normalise, and --memory, are of the method ntk alone.
    """
    from adaptntk.verbs.labels import LabelKeys

    keys = LabelKeys(energy_key, forces_key)
    if method != "ntk":
        for name, changed in (
            ("--sketch", sketch != "gaussian"),
            ("--sketch-dim", sketch_dim != 512),
            ("--sketch-seed", sketch_seed != 0),
            ("--alpha", alpha != 1e-4),
            ("--lam", lam is not None),
            ("--lam-criterion", lam_criterion is not None),
            ("--normalise", normalise != "auto"),
        ):
            if changed:
                raise InputError(f"{name} is for the method ntk alone; {method} takes --option KEY=VALUE")
        from adaptntk.execution import open_executor

        with open_executor(executor, workers, scheduler) as pool:
            fit_baseline(
                method, model, train, valid, output, option or [], calibration, member or [], work, preset, epochs,
                keys, device, batch_size, seed, dtype, head, None if executor == "serial" else pool,
            )  # fmt: skip
        return
    for name, given in (("--option", option), ("--member", member), ("--work", work), ("--epochs", epochs)):
        if given:
            raise InputError(f"{name} is for other methods than ntk; choose one with --method")
    from adaptntk.verbs.fit import fit_uncertainty

    fitted = fit_uncertainty(
        model,
        train,
        valid,
        output,
        calibration_file=calibration,
        sketch=sketch,
        sketch_dim=sketch_dim,
        sketch_seed=sketch_seed,
        alpha=alpha,
        lam=lam,
        criterion=lam_criterion,
        normalise=normalise,
        keys=keys,
        device=device,
        dtype=dtype,
        head=head,
        batch_size=batch_size,
        seed=seed,
        memory_budget=options.budget(memory),
        progress=console.show_progress,
    )
    for line in summary(fitted):
        console.out.print(line)
    console.out.print(f"wrote {output}")


def fit_baseline(
    method: str,
    model: Path,
    train: Path,
    valid: Path,
    output: Path,
    option: list[str],
    calibration: Path | None,
    members: list[Path],
    work: Path | None,
    preset: str,
    epochs: int | None,
    keys: "LabelKeys",
    device: str,
    batch_size: int,
    seed: int,
    dtype: str | None,
    head: str | None,
    executor: "Executor | None",
) -> None:
    """The same verb for a method to compare with."""
    from adaptntk.core.calibration import conformal_quantile
    from adaptntk.training.loop import find_preset
    from adaptntk.uncertainty.registry import parse_options
    from adaptntk.verbs.fit import fit_other_method

    def show(name: str, report: "EpochReport") -> None:
        if report.epoch == 1 or report.epoch % max(1, report.epochs // 10) == 0:
            console.err.print(f"{name}: {epoch_line(report, [report])}")

    fitted = fit_other_method(
        method, model, train, valid, output, parse_options(method, option), calibration, members, work,
        find_preset(preset, epochs), keys, device, batch_size, seed, dtype, head, show, console.show_progress, executor,
    )  # fmt: skip
    forces, ratios = fitted.calibration.forces, fitted.calibration.ratios
    networks = fitted.method.state().networks
    console.out.print(f"method       {method}, networks: {', '.join(str(network.source) for network in networks)}")
    console.out.print(
        f"calibration  sigma^2 = {forces.a:.4g} {method}_variance + ({forces.b:.4g} eV/Å)^2 "
        f"from {len(ratios)} structures"
    )
    console.out.print(bound_line(conformal_quantile(ratios, 0.9), len(ratios)))
    console.out.print(f"wrote {output}")


def summary(fitted: "NTKUncertainty") -> list[str]:
    """What was fitted, in a few lines."""
    from adaptntk.core.calibration import conformal_quantile
    from adaptntk.models.protocol import parameter_count

    ridge, calibration, advice = fitted.ridge, fitted.calibration, fitted.sketch_advice
    n = len(fitted.train_hashes)
    lines = [
        f"model        {fitted.potential.description}, {parameter_count(fitted.potential):,} parameters",
        f"ridge        alpha {ridge.alpha:.2g}, lam {ridge.lam:.4g} ({ridge.reason})",
        f"dimension    effective {ridge.effective_dimension:.1f} of {n} training structures; "
        f"features {_features_line(fitted)}, "
        f"normalised: {fitted.normalise}",
    ]
    if calibration is not None:
        quantile = conformal_quantile(calibration.ratios, 0.9)
        lines += [
            f"calibration  sigma^2 = {calibration.forces.a:.4g} U + ({calibration.forces.b:.4g} eV/Å)^2 "
            f"from {len(calibration.ratios)} structures",
            bound_line(quantile, len(calibration.ratios)),
        ]
    if advice is not None:
        against = "exact scores" if advice.reference == "exact" else "estimate from its two halves"
        lines += [
            f"sketch       p = {advice.dim}: largest |dU|/(lam+U) {advice.error:.2f}, "
            f"median {advice.median_error:.3f}, rank correlation {advice.rank_correlation:.4f} ({against})",
            f"advice       p = {advice.dim_for(0.1):,} is enough for a largest error of 0.10",
        ]
    return lines


def bound_line(quantile: float, structures: int) -> str:
    """What the conformal bound promises, and how well so many structures can tell."""
    if not np.isfinite(quantile):
        return "bound        too few structures to bound the error of 90 % of new ones"
    # The coverage that one calibration set achieves follows a beta distribution around the stated one.
    spread = 100 * np.sqrt(0.9 * 0.1 / (structures + 2))
    return f"bound        force error below {quantile:.2f} sigma for 90 % (± {spread:.0f}) of new structures like these"


def _features_line(fitted: "NTKUncertainty") -> str:
    if fitted.sketch.kind == "none":
        return "full"
    line = f"sketched to {fitted.features.shape[1]}"
    if fitted.sketch.kind != "gaussian":
        line += f" by {fitted.sketch.kind} (the theorem is for gaussian)"
    return line
