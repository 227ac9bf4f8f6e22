"""``adaptntk fit``"""

import logging
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adaptntk.errors import InputError
from adaptntk.progress import Show
from adaptntk.verbs.settings import argument, describe, option, verb
from adaptntk.verbs.shared import BatchSize, Device, LabelNames, Memory, Seed, Workers
from adaptntk.verbs.train import epoch_line

if TYPE_CHECKING:
    from ase import Atoms

    from adaptntk.training.loop import EpochReport
    from adaptntk.uncertainty.calibrated import CalibratedMethod
    from adaptntk.uncertainty.load import Fitted
    from adaptntk.uncertainty.ntk import NTKUncertainty

log = logging.getLogger(__name__)

NTK, OTHERS = "ntk", "others"


@dataclass(frozen=True, kw_only=True)
class FitSettings(LabelNames, Device, BatchSize, Seed, Memory, Workers):
    """A model, the structures that say what it knows and how good it is, and the method."""

    model: Path = argument("A trained MACE .model file (a pickle: trust its origin).")
    train: Path = option("The structures the model was trained on.")
    valid: Path = option("Labelled structures for ridge and calibration.")
    output: Path = option("The .ntk file to write.", short="-o")
    method: str = option(
        "ntk, or for comparison: error_model, ensemble, dropout, swag, evidential, last_layer, distance, energy, "
        "random.",
        "ntk",
    )
    options: tuple[str, ...] = option(
        "Of a method other than ntk; repeatable.", (), flag="--option", metavar="KEY=VALUE", methods=OTHERS
    )
    members: tuple[Path, ...] = option(
        "Further trained networks of an ensemble; repeatable.", (), flag="--member", methods=OTHERS
    )
    work: Path | None = option(
        "Folder for networks that a method still has to train; they are found again there.",
        None,
        default_text="OUTPUT.networks",
        methods=OTHERS,
    )
    preset: str = option("Of that training, see adaptntk train.", "small", methods=OTHERS)
    epochs: int | None = option("Of that training.", None, methods=OTHERS)
    calibration: Path | None = option("Labelled structures for sigma and bounds, instead of --valid.", None)
    sketch: str = option(
        "gaussian; srht or sparse for very large networks; none for exact scores from full gradients.",
        "gaussian",
        methods=NTK,
    )
    sketch_dim: int = option("Dimension p of the sketch.", 512, methods=NTK)
    sketch_seed: int = option("Which random sketch.", 0, methods=NTK)
    alpha: float = option("Relative ridge, lam = alpha tr(F)/n: the prior choice.", 1e-4, methods=NTK)
    lam: float | None = option("Absolute ridge; fixes it.", None, methods=NTK)
    lam_criterion: str | None = option(
        "How validation may move the ridge: spearman, nll, effective_dimension, fixed.",
        None,
        default_text="spearman, or fixed with --lam",
        methods=NTK,
    )
    normalise: str = option(
        "Features per total energy (none), per_atom, sqrt_n, or auto by the training set.", "auto", methods=NTK
    )
    dtype: str | None = option("float32 or float64; as stored by default.", None)
    head: str | None = option("Head of a multi-head model.", None)
    executor: str = option("Where members of an ensemble are trained: serial, local (side by side) or dask.", "serial")

    def check_given(self, given: Iterable[str]) -> None:
        """Refuse options of the method ntk with another one, and the reverse."""
        for item, about in describe(type(self)):
            if item.name not in given or about.methods is None:
                continue
            name = about.flag or f"--{item.name.replace('_', '-')}"
            if about.methods == NTK and self.method != NTK:
                raise InputError(f"{name} is for the method ntk alone; {self.method} takes --option KEY=VALUE")
            if about.methods == OTHERS and self.method == NTK:
                raise InputError(f"{name} is for other methods than ntk; choose one with --method")

    @property
    def networks(self) -> Path:
        """Where networks are kept that a method still has to train."""
        return self.work if self.work is not None else self.output.with_name(self.output.name + ".networks")


@dataclass(frozen=True)
class FitReport:
    """What was fitted, and where it was written."""

    fitted: "Fitted"
    output: Path

    def lines(self) -> Iterable[str]:
        from adaptntk.uncertainty.ntk import NTKUncertainty

        yield from (_ntk_lines if isinstance(self.fitted, NTKUncertainty) else _other_lines)(self.fitted)  # type: ignore
        yield f"wrote {self.output}"


@verb(FitSettings)
def fit(settings: FitSettings, show: Show) -> FitReport:
    """Turn a trained model and its training set into a calibrated uncertainty.

    Options from --sketch to --normalise, and --memory, are of the method ntk alone.
    """
    from adaptntk.execution import open_executor

    if settings.method == NTK:
        return FitReport(_fit_ntk(settings, show), settings.output)
    with open_executor(settings.executor, settings.workers, settings.scheduler) as pool:
        fitted = _fit_other(settings, None if settings.executor == "serial" else pool, show)
    return FitReport(fitted, settings.output)


def _fit_ntk(settings: FitSettings, show: Show) -> "NTKUncertainty":
    from adaptntk.core.calibration import check_criterion
    from adaptntk.core.sketch.gaussian import NoSketch
    from adaptntk.core.sketch.registry import make_sketch
    from adaptntk.features.energy_gradients import estimate_features, extract_features
    from adaptntk.files import check_writable
    from adaptntk.models.protocol import check_species, parameter_count
    from adaptntk.models.registry import load_potential
    from adaptntk.uncertainty.ntk import NTKUncertainty, choose_normalisation, full_gradients_fit
    from adaptntk.uncertainty.ntk_file import save_uncertainty

    budget = settings.memory_budget
    check_writable(settings.output)
    if settings.lam_criterion is not None:
        check_criterion(settings.lam_criterion)
    for name, value in (("alpha", settings.alpha), ("lam", settings.lam)):
        if value is not None and not 0 < value < np.inf:
            raise InputError(f"{name} must be positive, not {value}")
    projection = make_sketch(settings.sketch, settings.sketch_dim, settings.sketch_seed, budget // 2)
    potential = load_potential(settings.model, settings.device, settings.dtype, settings.head)
    if projection.dim(parameter_count(potential)) > parameter_count(potential):
        raise InputError(
            f"a sketch of {settings.sketch_dim:,} dimensions exceeds the {parameter_count(potential):,} parameters of "
            "the model: use a smaller --sketch-dim, or --sketch none for exact scores"
        )
    training, valid, calibration = _read_sets(settings, labelled=False)
    check_species(potential, training, str(settings.train))
    check_species(potential, valid, str(settings.valid))
    exact = settings.sketch != "none" and full_gradients_fit(potential, len(training) + len(valid), budget)
    used = choose_normalisation(settings.normalise, training)
    estimate = estimate_features(potential, [*training, *valid], projection, budget, full_rows=exact)
    log.info("energy gradients of %s", estimate)
    estimate.check(budget)
    if not projection.fits(parameter_count(potential)):
        log.info("the sketch is too large to keep and is drawn again and again: --sketch srht needs no such time")

    # Both sets in one pass: a sketch too large to keep is then drawn for both at once.
    direct = NoSketch() if exact else projection
    extracted = extract_features(potential, [*training, *valid], direct, used, budget, show.progress)
    rows = projection.apply(extracted) if exact else extracted
    train_rows, valid_rows = rows[: len(training)], rows[len(training) :]
    full_rows = (extracted[: len(training)], extracted[len(training) :]) if exact else None
    fitted = NTKUncertainty.fit(
        potential, training, projection, settings.alpha, settings.lam, used, budget, features=train_rows
    ).calibrate(
        valid,
        settings.lam_criterion,
        calibration,
        settings.batch_size,
        settings.seed,
        features=valid_rows,
        progress=show.progress,
    )
    fitted = fitted.check_sketch(valid_rows, full_rows)
    save_uncertainty(fitted, settings.output)
    return fitted


def _fit_other(settings: FitSettings, executor: Executor | None, show: Show) -> "CalibratedMethod":
    from adaptntk.files import check_writable
    from adaptntk.models.protocol import check_species
    from adaptntk.training.loop import find_preset
    from adaptntk.uncertainty.calibrated import CalibratedMethod, save_method
    from adaptntk.uncertainty.registry import fit_method, parse_options
    from adaptntk.uncertainty.workbench import FolderWorkbench

    options = parse_options(settings.method, list(settings.options))
    recipe = find_preset(settings.preset, settings.epochs)
    check_writable(settings.output)
    if settings.method == "ensemble":
        if len(settings.members) >= options.setdefault("members", max(3, 1 + len(settings.members))):
            raise InputError(
                f"an ensemble of {options['members']} has no place for {len(settings.members)} further members"
            )
    elif settings.members:
        raise InputError(f"further members are for an ensemble, not for {settings.method}")
    training, valid, calibration = _read_sets(settings, labelled=True)
    given = {f"member-{number}": path for number, path in enumerate((settings.model, *settings.members))}
    bench = FolderWorkbench(
        training, valid, settings.networks, recipe, settings.seed, settings.device, _log_epochs, given,
        settings.dtype, settings.head,
    )  # fmt: skip
    named = ((settings.train, training), (settings.valid, valid), (settings.calibration, calibration or []))
    for name, frames in named:
        check_species(bench.member(0), frames, str(name))
    if settings.method == "ensemble" and executor is not None:
        bench.train_members(options["members"], executor)
    fitted = fit_method(settings.method, bench, options)
    labelled, also = (valid, []) if calibration is None else (calibration, valid)
    calibrated = CalibratedMethod.fit(
        fitted, training, labelled, settings.batch_size, settings.seed, show.progress, also
    )
    save_method(calibrated, settings.output)
    return calibrated


def _log_epochs(name: str, report: "EpochReport") -> None:
    if report.epoch == 1 or report.epoch % max(1, report.epochs // 10) == 0:
        log.info("%s: %s", name, epoch_line(report, report.seconds))


def _read_sets(settings: FitSettings, labelled: bool) -> "tuple[list[Atoms], list[Atoms], list[Atoms] | None]":
    """The structures of the files, which must not overlap."""
    from adaptntk.data.splits import check_disjoint

    training, valid = settings.read(settings.train, labelled=labelled), settings.read(settings.valid)
    known = f"--train {settings.train}"
    check_disjoint({known: training, f"--valid {settings.valid}": valid})
    if settings.calibration is None:
        return training, valid, None
    calibration = settings.read(settings.calibration)
    check_disjoint({known: training, f"--calibration {settings.calibration}": calibration})
    return training, valid, calibration


def _other_lines(fitted: "CalibratedMethod") -> Iterable[str]:
    networks = ", ".join(str(network.source) for network in fitted.method.state().networks)
    forces, ratios = fitted.calibration.forces, fitted.calibration.ratios
    yield f"method       {fitted.name}, networks: {networks}"
    yield (
        f"calibration  sigma^2 = {forces.a:.4g} {fitted.name}_variance + ({forces.b:.4g} eV/Å)^2 "
        f"from {len(ratios)} structures"
    )
    yield _bound_line(ratios)


def _ntk_lines(fitted: "NTKUncertainty") -> Iterable[str]:
    from adaptntk.models.protocol import parameter_count

    ridge, calibration, advice = fitted.ridge, fitted.calibration, fitted.sketch_advice
    yield f"model        {fitted.potential.description}, {parameter_count(fitted.potential):,} parameters"
    yield f"ridge        alpha {ridge.alpha:.2g}, lam {ridge.lam:.4g} ({ridge.reason})"
    yield (
        f"dimension    effective {ridge.effective_dimension:.1f} of {len(fitted.train_hashes)} training structures; "
        f"features {_features_line(fitted)}, normalised: {fitted.normalise}"
    )
    if calibration is not None:
        forces = calibration.forces
        yield (
            f"calibration  sigma^2 = {forces.a:.4g} U + ({forces.b:.4g} eV/Å)^2 "
            f"from {len(calibration.ratios)} structures"
        )
        yield _bound_line(calibration.ratios)
    if advice is not None:
        against = "exact scores" if advice.reference == "exact" else "estimate from its two halves"
        yield (
            f"sketch       p = {advice.dim}: largest |dU|/(lam+U) {advice.error:.2f}, "
            f"median {advice.median_error:.3f}, rank correlation {advice.rank_correlation:.4f} ({against})"
        )
        yield f"advice       p = {advice.dim_for(0.1):,} is enough for a largest error of 0.10"


def _bound_line(ratios: "np.ndarray") -> str:
    """What the conformal bound promises, and how well so many structures can tell."""
    from adaptntk.core.calibration import conformal_quantile

    quantile = conformal_quantile(ratios, 0.9)
    if not np.isfinite(quantile):
        return "bound        too few structures to bound the error of 90 % of new ones"
    # The coverage that one calibration set achieves follows a beta distribution around the stated one.
    spread = 100 * np.sqrt(0.9 * 0.1 / (len(ratios) + 2))
    return f"bound        force error below {quantile:.2f} sigma for 90 % (± {spread:.0f}) of new structures like these"


def _features_line(fitted: "NTKUncertainty") -> str:
    if fitted.sketch.kind == "none":
        return "full"
    line = f"sketched to {fitted.features.shape[1]}"
    if fitted.sketch.kind != "gaussian":
        line += f" by {fitted.sketch.kind} (the theorem is for gaussian)"
    return line
