"""``adaptntk fit``"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptntk.errors import InputError
from adaptntk.progress import Show
from adaptntk.verbs.settings import argument, describe, option, verb
from adaptntk.verbs.shared import BatchSize, Device, LabelNames, Memory, Seed, Workers
from adaptntk.verbs.train import epoch_line

if TYPE_CHECKING:
    from ase import Atoms

    from adaptntk.core.sketch.quality import SketchAdvice
    from adaptntk.training.loop import EpochReport
    from adaptntk.uncertainty.feature_model import FeatureModel
    from adaptntk.uncertainty.fitted import Fitted
    from adaptntk.uncertainty.folder_workbench import FolderWorkbench

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
        if self.fitted.features is None:
            networks = ", ".join(str(network.source) for network in self.fitted.method.state().networks)
            yield f"method       {self.fitted.name}, networks: {networks}"
        else:
            yield from _feature_lines(self.fitted, self.fitted.features)
        yield from _calibration_lines(self.fitted)
        if self.fitted.features is not None and self.fitted.features.sketch_check is not None:
            yield from _sketch_lines(self.fitted.features.sketch_check)
        yield f"wrote {self.output}"


@verb(FitSettings)
def fit(settings: FitSettings, show: Show) -> FitReport:
    """Turn a trained model and its training set into a calibrated uncertainty.

    Options from --sketch to --normalise, and --memory, are of the method ntk alone.
    """
    from adaptntk.execution import open_executor
    from adaptntk.files import check_writable
    from adaptntk.uncertainty.file import save_fitted
    from adaptntk.uncertainty.fit import fit as fit_method

    check_writable(settings.output)
    options = _options(settings)
    bench, calibration = _bench(settings, show)
    if settings.method == "ensemble" and settings.executor != "serial":
        with open_executor(settings.executor, settings.workers, settings.scheduler) as pool:
            bench.train_members(options["members"], pool)
    names = {name: f"--{name} {getattr(settings, name)}" for name in ("train", "valid", "calibration")}
    fitted = fit_method(bench, settings.method, options, calibration, names)
    save_fitted(fitted, settings.output)
    return FitReport(fitted, settings.output)


def _options(settings: FitSettings) -> dict[str, Any]:
    """Of the method."""
    from adaptntk.uncertainty.registry import make_options, parse_options

    options: dict[str, Any]
    if settings.method == NTK:
        options = {
            "sketch": settings.sketch, "dim": settings.sketch_dim, "sketch_seed": settings.sketch_seed,
            "alpha": settings.alpha, "lam": settings.lam, "criterion": settings.lam_criterion,
            "normalise": settings.normalise,
        }  # fmt: skip
    else:
        options = parse_options(settings.method, list(settings.options))
    if settings.method == "ensemble":
        if len(settings.members) >= options.setdefault("members", max(3, 1 + len(settings.members))):
            raise InputError(
                f"an ensemble of {options['members']} has no place for {len(settings.members)} further members"
            )
    elif settings.members:
        raise InputError(f"further members are for an ensemble, not for {settings.method}")
    make_options(settings.method, options)  # refuses what cannot be, before anything is read
    return options


def _bench(settings: FitSettings, show: Show) -> "tuple[FolderWorkbench, list[Atoms] | None]":
    """The structures of the files and the networks that are given, and the structures to calibrate on."""
    from adaptntk.training.recipe import find_preset
    from adaptntk.uncertainty.folder_workbench import FolderWorkbench
    from adaptntk.uncertainty.registry import find_method

    labelled = find_method(settings.method).uses_training_labels
    bench = FolderWorkbench(
        settings.read(settings.train, labelled=labelled),
        settings.read(settings.valid),
        settings.seed,
        settings.batch_size,
        settings.memory_budget,
        show.progress,
        folder=settings.networks,
        recipe=find_preset(settings.preset, settings.epochs),
        device=settings.device,
        on_epoch=_log_epochs,
        given={f"member-{number}": path for number, path in enumerate((settings.model, *settings.members))},
        dtype=settings.dtype,
        head=settings.head,
    )
    return bench, None if settings.calibration is None else settings.read(settings.calibration)


def _log_epochs(name: str, report: "EpochReport") -> None:
    if report.epoch == 1 or report.epoch % max(1, report.epochs // 10) == 0:
        log.info("%s: %s", name, epoch_line(report, report.seconds))


def _feature_lines(fitted: "Fitted", features: "FeatureModel") -> Iterable[str]:
    from adaptntk.models.protocol import parameter_count

    ridge = features.ridge
    yield f"model        {fitted.potential.description}, {parameter_count(fitted.potential):,} parameters"
    yield f"ridge        alpha {ridge.alpha:.2g}, lam {ridge.lam:.4g} ({ridge.reason})"
    yield (
        f"dimension    effective {ridge.effective_dimension:.1f} of {len(fitted.train_hashes)} training structures; "
        f"features {features.feature_map.summary(fitted.potential)}, normalised: {features.feature_map.normalise}"
    )


def _calibration_lines(fitted: "Fitted") -> Iterable[str]:
    if fitted.calibration is not None:
        forces, ratios = fitted.calibration.forces, fitted.calibration.ratios
        score = "U" if fitted.features is not None else fitted.variance_key
        yield (f"calibration  sigma^2 = {forces.a:.4g} {score} + ({forces.b:.4g} eV/Å)^2 from {len(ratios)} structures")
        yield _bound_line(ratios)


def _sketch_lines(advice: "SketchAdvice") -> Iterable[str]:
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
