"""``adaptntk fit``"""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptntk.errors import InputError
from adaptntk.files import check_writable
from adaptntk.progress import Show
from adaptntk.verbs.settings import argument, describe, option, verb
from adaptntk.verbs.shared import BatchSize, Device, LabelNames, Memory, Seed, Workers
from adaptntk.verbs.train import lap_teller

if TYPE_CHECKING:
    from ase import Atoms

    from adaptntk.core.calibration import Calibration
    from adaptntk.core.sketch.quality import SketchAdvice
    from adaptntk.training.loop import LapReport
    from adaptntk.uncertainty.feature_model import FeatureModel
    from adaptntk.uncertainty.fitted import Fitted
    from adaptntk.uncertainty.folder_workbench import FolderWorkbench

log = logging.getLogger(__name__)

NTK = "ntk"
# Ranks of sketched scores that agree so well with the exact ones are as good as those.
ENOUGH = 0.98
EDGE = (
    "the ridge sits at the edge of its grid (alpha 1e-08 .. 0.1), a better one may lie beyond: give --alpha, or a "
    "larger validation set"
)
# Fields for the method ntk alone, with what it calls them, and fields for all the others.
NTK_OPTIONS = {
    "features": "features", "force_rows": "force_rows", "strain_rows": "strain_rows", "committee": "committee",
    "forces_by": "forces_by", "sketch": "sketch",
    "sketch_dim": "dim", "sketch_seed": "sketch_seed", "alpha": "alpha", "lam": "lam",
    "lam_criterion": "criterion", "normalise": "normalise",
}  # fmt: skip
OTHER_OPTIONS = ("options", "members", "work", "preset", "steps", "epochs")


class FitSettings(LabelNames, Device, BatchSize, Seed, Memory, Workers):
    """A model, the structures that say what it knows and how good it is, and the method."""

    model: Path = argument("A trained MACE .model file.")
    train: Path = option("The structures the model was trained on.")
    valid: Path = option("Labelled structures for ridge and calibration.")
    output: Path = option("The .ntk file to write.", short="-o")
    method: str = option(
        "ntk, or for comparison: error_model, ensemble, dropout, swag, evidential, last_layer, distance, energy, "
        "force_size, random.",
        NTK,
    )
    options: tuple[str, ...] = option(
        "Of a method other than ntk; repeatable.", (), flag="--option", metavar="KEY=VALUE"
    )
    members: tuple[Path, ...] = option("Further trained networks of an ensemble; repeatable.", (), flag="--member")
    work: Path | None = option(
        "Folder for networks that a method still has to train; they are found again there.",
        None,
        default_text="OUTPUT.networks",
    )
    preset: str = option("Of that training, see adaptntk train.", "standard")
    steps: int | None = option("Of that training.", None)
    epochs: int | None = option("Of that training.", None)
    calibration: Path | None = option("Labelled structures for sigma and bounds, instead of --valid.", None)
    features: str = option("What a label teaches: energy and forces (joint), or its energy alone (the paper).", "joint")
    force_rows: int | None = option(
        "Of joint features: random directions of the forces of each label.",
        None,
        default_text="16, fewer for more than 1,000 labels",
    )
    strain_rows: int = option(
        "Of joint features: random strains of the cell of each label, for models that learnt stress.", 0, least=0
    )
    committee: int | None = option(
        "Directions drawn from the posterior, for the forces of structures and atoms; 0 for none.",
        None,
        default_text="16, none with --features energy",
    )
    forces_by: str = option(
        "What force uncertainties of structures follow from: energy (U), committee (the forces of its members), both.",
        "auto",
        default_text="whichever ranks validation errors best",
    )
    sketch: str = option(
        "gaussian; srht or sparse for very large networks; none for exact scores from full gradients.",
        "auto",
        default_text="sparse, or gaussian with --features energy",
    )
    sketch_dim: int | None = option(
        "Dimension p of the sketch.", None, default_text="by the number of labels, or 512 with --features energy"
    )
    sketch_seed: int = option("Which random sketch.", 0, least=0, most=2**64 - 1)
    alpha: float | None = option(
        "Relative ridge, lam = alpha tr(F)/n; used as given.",
        None,
        default_text="1e-8; with --features energy 1e-4, which validation may move",
    )
    lam: float | None = option("Absolute ridge; used as given.", None)
    lam_criterion: str | None = option(
        "How validation may move the ridge: spearman, nll, effective_dimension, fixed.",
        None,
        default_text="fixed; with --features energy spearman, unless the ridge is given",
    )
    normalise: str = option(
        "Features of the energy per_atom (auto), or of the total energy: none (the paper), sqrt_n; these two speak of "
        "structures with as many atoms as some training structure only.",
        "auto",
    )
    dtype: str | None = option("float32 or float64; as stored by default.", None)
    head: str | None = option("Head of a multi-head model.", None)
    trust_model: bool = option("Run code that the model files bring, which is refused otherwise.", False)
    executor: str = option("Where members of an ensemble are trained: serial, local (side by side) or dask.", "serial")

    def check_given(self, given: Iterable[str]) -> None:
        """Refuse options of the method ntk with another one, and the reverse."""
        refused = OTHER_OPTIONS if self.method == NTK else NTK_OPTIONS
        for item, about in describe(type(self)):
            if item.name in given and item.name in refused:
                name = about.name(item.name)
                if self.method == NTK:
                    raise InputError(f"{name} is for other methods than ntk; choose one with --method")
                raise InputError(f"{name} is for the method ntk alone; {self.method} takes --option KEY=VALUE")


class FitReport(NamedTuple):
    """What was fitted, and where it was written."""

    fitted: "Fitted"
    output: Path

    def lines(self) -> Iterable[str]:
        from adaptntk.models.protocol import parameter_count

        fitted, features = self.fitted, self.fitted.features
        if features is None:
            networks = ", ".join(str(network.source) for network in fitted.method.state().networks)
            yield f"method       {fitted.name}, networks: {networks}"
        else:
            ridge, described = features.ridge, features.feature_map.summary(fitted.potential)
            yield f"model        {fitted.potential.description}, {parameter_count(fitted.potential):,} parameters"
            yield f"ridge        alpha {ridge.alpha:.2g}, lam {ridge.lam:.4g} ({ridge.reason})"
            if ridge.at_edge:
                yield f"note         {EDGE}"
            yield (
                f"dimension    effective {ridge.effective_dimension:.1f} of {len(fitted.train_hashes)} training "
                f"structures; features {described}, normalised: {features.feature_map.normalise}"
            )
        if fitted.learnt is not None:
            limit = fitted.learnt.limit()
            yield f"limit        {limit.verdict}: {limit.evidence}"
        if fitted.calibration is not None:
            yield from _calibration_lines(fitted.calibration, fitted.variance_key if features is None else "U")
            for note in fitted.calibration.notes():
                yield f"note         {note}"
        if features is not None and features.sketch_check is not None:
            advice = features.sketch_check
            against = "exact scores" if advice.reference == "exact" else "estimate from its two halves"
            yield (
                f"sketch       p = {advice.dim}: largest |dU|/(lam+U) {advice.error:.2f}, "
                f"median {advice.median_error:.3f}, rank correlation {advice.rank_correlation:.4f} ({against})"
            )
            yield f"advice       {_sketch_advice(features, advice)}"
        yield f"wrote {self.output}"


@verb(FitSettings)
def fit(settings: FitSettings, show: Show) -> FitReport:
    """Turn a trained model and its training set into a calibrated uncertainty.

    Options from --features to --normalise, and --memory, are of the method ntk alone.
    """
    from adaptntk.execution import check_executor, open_executor
    from adaptntk.uncertainty.file import save_fitted
    from adaptntk.uncertainty.fit import check_sets, fit as fit_method

    check_writable(settings.output)
    check_executor(settings.executor, settings.scheduler)
    options = _options(settings)
    bench, calibration = _bench(settings, show)
    names = {name: f"--{name} {getattr(settings, name)}" for name in ("train", "valid", "calibration")}
    if settings.method == "ensemble" and settings.executor != "serial":
        check_sets(bench, settings.method, calibration, names)  # before networks are trained with them
        with open_executor(settings.executor, settings.workers, settings.scheduler) as pool:
            bench.train_members(options["members"], pool)
    fitted = fit_method(bench, settings.method, options, calibration, names)
    save_fitted(fitted, settings.output)
    return FitReport(fitted, settings.output)


def _options(settings: FitSettings) -> dict[str, Any]:
    """Of the method."""
    from adaptntk.uncertainty.registry import make_options, parse_options

    if settings.method == NTK:
        options = {name: getattr(settings, field) for field, name in NTK_OPTIONS.items()}
    else:
        options = parse_options(settings.method, list(settings.options))
    further = len(settings.members)
    if settings.method == "ensemble":
        if further >= options.setdefault("members", max(3, 1 + further)):
            raise InputError(f"an ensemble of {options['members']} has no place for {further} further members")
    elif further:
        raise InputError(f"further members are for an ensemble, not for {settings.method}")
    make_options(settings.method, options)  # refuses what cannot be, before anything is read
    return options


def _bench(settings: FitSettings, show: Show) -> "tuple[FolderWorkbench, list[Atoms] | None]":
    """The structures of the files and the networks that are given, and the structures to calibrate on."""
    from adaptntk.training.recipe import find_preset
    from adaptntk.uncertainty.folder_workbench import FolderWorkbench
    from adaptntk.uncertainty.registry import find_method

    trains = find_method(settings.method).uses_training_labels
    bench = FolderWorkbench(
        settings.read(settings.train, labelled=trains),
        settings.read(settings.valid, labelled=True if trains else "partly"),
        settings.seed,
        settings.batch_size,
        settings.memory_budget,
        show.progress,
        folder=settings.work or settings.output.with_name(settings.output.name + ".networks"),
        recipe=find_preset(settings.preset, settings.epochs, settings.steps),
        device=settings.device,
        on_lap=_teller(),
        given={f"member-{number}": path for number, path in enumerate((settings.model, *settings.members))},
        dtype=settings.dtype,
        head=settings.head,
        trust=settings.trust_model,
    )
    return bench, None if settings.calibration is None else settings.read(settings.calibration, "partly")


def _teller() -> "Callable[[str, LapReport], None]":
    """Tells of each network that is trained."""
    tellers: dict[str, Callable[[LapReport], None]] = {}

    def tell(name: str, report: "LapReport") -> None:
        tellers.setdefault(name, lap_teller(name, times=10))(report)

    return tell


def _calibration_lines(calibration: "Calibration", score: str) -> Iterable[str]:
    """What scores mean, for forces and for energies; what had no labels is named."""
    from adaptntk.core.question import ENERGY, SYMBOLS

    forces, energy, ratios = calibration.forces, calibration.energy, calibration.ratios
    if forces is None:
        yield "calibration  no force labels: forces get no uncertainty"
    else:
        asked = score if calibration.question == ENERGY else SYMBOLS[calibration.question]
        line = f"sigma^2 = {forces.a:.4g} {asked} + ({forces.b:.4g} eV/Å)^2 from {len(ratios)} structures"
        yield f"calibration  {line}" + ("" if asked == score else "; V: variance of the committee's forces")
        yield _bound_line(ratios)
    if (atoms := calibration.atoms) is not None:
        line = f"sigma^2 = {atoms.a:.4g} v + ({atoms.b:.4g} eV/Å)^2 from {len(calibration.atom_ratios):,} atoms"
        yield f"atoms        {line}; v: that of one atom"
    if energy is None:
        yield "energies     no energy labels: energies get no uncertainty"
        return
    unit = {0.0: "eV", 1.0: "eV/atom"}.get(calibration.energy_power, f"eV/atom^{calibration.energy_power:g}")
    sigma = energy.sigma(calibration.variances)
    structures = len(calibration.energy_ratios)
    yield f"energies     sigma^2 = {energy.a:.4g} {score} + ({energy.b:.4g} {unit})^2 from {structures} structures"
    doubt = float(np.sqrt(np.mean(sigma**2) / structures))  # standard error of a mean
    offset = f"{1000 * calibration.energy_offset:+.3g} ± {1000 * doubt:.2g} m{unit}"
    yield f"offset       {offset} in all energies, which cancels in differences; sigma is of what remains"


def _sketch_advice(features: "FeatureModel", advice: "SketchAdvice") -> str:
    """Which p to take. Of joint features U is too small for a p beside which rows are many, but alike for all."""
    if not features.feature_map.further_rows:
        return f"p = {advice.dim_for(0.1):,} is enough for a largest error of 0.10"
    if advice.rank_correlation >= ENOUGH:
        return f"p = {advice.dim:,} is enough: scores have the ranks of the exact ones to {ENOUGH:g}"
    return f"for ranks closer to the exact ones, take --sketch-dim {2 * advice.dim}"


def _bound_line(ratios: "np.ndarray") -> str:
    """What the conformal bound promises, and how well so many structures can tell."""
    from adaptntk.core.calibration import conformal_quantile

    quantile = conformal_quantile(ratios, 0.9)
    if not np.isfinite(quantile):
        return "bound        too few structures to bound the error of 90 % of new ones"
    # The coverage that one calibration set achieves follows a beta distribution around the stated one.
    spread = 100 * np.sqrt(0.9 * 0.1 / (len(ratios) + 2))
    return f"bound        force error below {quantile:.2f} sigma for 90 % (± {spread:.0f}) of new structures like these"
