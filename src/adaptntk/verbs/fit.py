"""``adaptntk fit``"""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from adaptntk.core.calibration import PRIOR_ALPHA, check_criterion
from adaptntk.core.sketch.gaussian import NoSketch
from adaptntk.core.sketch.registry import make_sketch
from adaptntk.data.splits import check_disjoint
from adaptntk.errors import InputError
from adaptntk.features.energy_gradients import estimate_features, extract_features
from adaptntk.files import check_writable
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.models.protocol import check_species, parameter_count
from adaptntk.models.registry import load_potential
from adaptntk.progress import Progress, silent
from adaptntk.training.loop import PRESETS, EpochReport, Recipe
from adaptntk.uncertainty.calibrated import CalibratedMethod, save_method
from adaptntk.uncertainty.ntk import NTKUncertainty, choose_normalisation, full_gradients_fit
from adaptntk.uncertainty.ntk_file import save_uncertainty
from adaptntk.uncertainty.registry import fit_method
from adaptntk.uncertainty.workbench import FolderWorkbench
from adaptntk.verbs.labels import STANDARD_KEYS, LabelKeys, PathLike

log = logging.getLogger(__name__)


def fit_uncertainty(
    model: PathLike,
    train_file: PathLike,
    valid_file: PathLike,
    output: PathLike,
    calibration_file: PathLike | None = None,
    sketch: str = "gaussian",
    sketch_dim: int = 512,
    sketch_seed: int = 0,
    alpha: float = PRIOR_ALPHA,
    lam: float | None = None,
    criterion: str | None = None,
    normalise: str = "auto",
    keys: LabelKeys = STANDARD_KEYS,
    device: str = "auto",
    dtype: str | None = None,
    head: str | None = None,
    batch_size: int = 16,
    seed: int = 0,
    memory_budget: int = DEFAULT_BUDGET,
    progress: Progress = silent,
) -> NTKUncertainty:
    """``adaptntk fit``: features of the training set, ridge, calibration; writes a ``.ntk`` file.

    When the full gradients of both sets fit into a quarter of ``memory_budget``, the sketch is checked against
    the exact scores; otherwise its error is estimated from its two halves. See `NTKUncertainty` for the options.
    """
    check_writable(output)
    if criterion is not None:
        check_criterion(criterion)
    for name, value in (("alpha", alpha), ("lam", lam)):
        if value is not None and not 0 < value < np.inf:
            raise InputError(f"{name} must be positive, not {value}")
    projection = make_sketch(sketch, sketch_dim, sketch_seed, memory_budget // 2)
    potential = load_potential(model, device, dtype, head)
    if projection.dim(parameter_count(potential)) > parameter_count(potential):
        raise InputError(
            f"a sketch of {sketch_dim:,} dimensions exceeds the {parameter_count(potential):,} parameters of the "
            "model: use a smaller --sketch-dim, or --sketch none for exact scores"
        )
    training, valid, calibration = _read_sets(keys, train_file, valid_file, calibration_file, labelled=False)
    check_species(potential, training, str(train_file))
    check_species(potential, valid, str(valid_file))
    exact = sketch != "none" and full_gradients_fit(potential, len(training) + len(valid), memory_budget)
    used = choose_normalisation(normalise, training)
    estimate = estimate_features(potential, [*training, *valid], projection, memory_budget, full_rows=exact)
    log.info("energy gradients of %s", estimate)
    estimate.check(memory_budget)
    if not projection.fits(parameter_count(potential)):
        log.info("the sketch is too large to keep and is drawn again and again: --sketch srht needs no such time")

    # Both sets in one pass: a sketch too large to keep is then drawn for both at once.
    direct = NoSketch() if exact else projection
    extracted = extract_features(potential, [*training, *valid], direct, used, memory_budget, progress)
    rows = projection.apply(extracted) if exact else extracted
    train_rows, valid_rows = rows[: len(training)], rows[len(training) :]
    full_rows = (extracted[: len(training)], extracted[len(training) :]) if exact else None
    fitted = NTKUncertainty.fit(
        potential, training, projection, alpha, lam, used, memory_budget, features=train_rows
    ).calibrate(valid, criterion, calibration, batch_size, seed, features=valid_rows, progress=progress)
    fitted = fitted.check_sketch(valid_rows, full_rows)
    save_uncertainty(fitted, output)
    return fitted


def fit_other_method(
    method: str,
    model: PathLike,
    train_file: PathLike,
    valid_file: PathLike,
    output: PathLike,
    options: Mapping[str, Any] | None = None,
    calibration_file: PathLike | None = None,
    members: Sequence[PathLike] = (),
    work: PathLike | None = None,
    recipe: Recipe = PRESETS["small"],
    keys: LabelKeys = STANDARD_KEYS,
    device: str = "auto",
    batch_size: int = 16,
    seed: int = 0,
    dtype: str | None = None,
    head: str | None = None,
    on_epoch: Callable[[str, EpochReport], None] = lambda name, report: None,
    progress: Progress = silent,
    executor: Executor | None = None,
) -> CalibratedMethod:
    """``adaptntk fit --method``: any method of `METHODS` with a calibration; writes one file.

    Args:
        method: its name.
        model: the trained model, the first network of every method.
        options: of the method, see its ``fit``.
        calibration_file: labelled structures for sigma and bounds; the validation set when not given.
        members: further trained networks, for an ensemble.
        work: the folder in which networks that are still missing are trained (with ``recipe``), found again and
            resumed; ``output`` with ``.networks`` when not given.
        executor: trains the members of an ensemble side by side.
    """
    check_writable(output)
    options = dict(options or {})
    if method == "ensemble":
        if len(members) >= options.setdefault("members", max(3, 1 + len(members))):
            raise InputError(f"an ensemble of {options['members']} has no place for {len(members)} further members")
    elif members:
        raise InputError(f"further members are for an ensemble, not for {method}")
    training, valid, calibration = _read_sets(keys, train_file, valid_file, calibration_file, labelled=True)
    given = {f"member-{number}": Path(path) for number, path in enumerate((model, *members))}
    folder = Path(work) if work is not None else Path(output).with_name(Path(output).name + ".networks")
    bench = FolderWorkbench(training, valid, folder, recipe, seed, device, on_epoch, given, dtype, head)
    for name, frames in ((train_file, training), (valid_file, valid), (calibration_file, calibration or [])):
        check_species(bench.member(0), frames, str(name))
    if method == "ensemble" and executor is not None:
        bench.train_members(options["members"], executor)
    fitted = fit_method(method, bench, options)
    labelled, also = (valid, []) if calibration is None else (calibration, valid)
    calibrated = CalibratedMethod.fit(fitted, training, labelled, batch_size, seed, progress, also)
    save_method(calibrated, output)
    return calibrated


def _read_sets(
    keys: LabelKeys,
    train_file: PathLike,
    valid_file: PathLike,
    calibration_file: PathLike | None,
    labelled: bool,
) -> tuple[list[Atoms], list[Atoms], list[Atoms] | None]:
    """The structures of the files, which must not overlap."""
    training, valid = keys.read(train_file, labelled=labelled), keys.read(valid_file)
    check_disjoint({f"--train {train_file}": training, f"--valid {valid_file}": valid})
    if calibration_file is None:
        return training, valid, None
    calibration = keys.read(calibration_file)
    check_disjoint({f"--train {train_file}": training, f"--calibration {calibration_file}": calibration})
    return training, valid, calibration
