"""The one way to an uncertainty: checks, the method's own fit, calibration."""

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from adaptntk.core.calibration import Calibration, check_calibration_size
from adaptntk.core.metrics import Array
from adaptntk.core.question import ENERGY, choose_question, force_scores
from adaptntk.data.geometry import lone_counts
from adaptntk.data.splits import check_disjoint
from adaptntk.data.structures import Structures, check_labelled, structure_hash, structure_sizes
from adaptntk.errors import InputError
from adaptntk.evaluation import (
    atom_errors,
    check_label_units,
    check_predicted,
    energy_errors,
    force_errors,
    summarise_errors,
)
from adaptntk.features.feature_map import size_powers
from adaptntk.models.protocol import check_species
from adaptntk.training.limits import Learnt
from adaptntk.training.record import read_training_record
from adaptntk.uncertainty.fitted import Fitted
from adaptntk.uncertainty.method import Assessment, Method
from adaptntk.uncertainty.registry import find_method, make_options
from adaptntk.uncertainty.workbench import Workbench

log = logging.getLogger(__name__)

SET_NAMES = {"train": "training set", "valid": "validation set", "calibration": "calibration set"}


def fit(
    bench: Workbench,
    method: str = "ntk",
    options: Mapping[str, Any] | None = None,
    calibration: Structures | None = None,
    names: Mapping[str, str] | None = None,
) -> Fitted:
    """Fit and calibrate the method of that name.

    Args:
        bench: the model, its training structures and labelled ones outside them: a `GivenModel` where no network has
            to be trained, else a `FolderWorkbench`.
        method: a name of `METHODS`.
        options: of the method, see its ``Options``.
        calibration: labelled structures for sigma and the bounds, when the validation set was used too much to be
            trusted with that; the validation set when not given.
        names: what errors call the sets.
    """
    kind, chosen = find_method(method), make_options(method, options)
    calibration = calibration or ()
    check_sets(bench, method, calibration, names)
    bench, calibration = _without_lone(bench, calibration)
    rng = np.random.default_rng(bench.seed)
    fitted = kind.fit(bench, rng, chosen)
    hashes = tuple(structure_hash(atoms) for atoms in bench.train)
    labelled = calibration or bench.valid
    if not labelled:
        return Fitted(fitted, None, hashes)
    assessed = _assess(bench, fitted, calibration)
    name = (SET_NAMES | dict(names or {}))["calibration" if calibration else "valid"]
    check_predicted(assessed, name)
    if calibration:
        check_label_units(assessed, calibration, name)
    used = tuple(structure_hash(atoms) for atoms in (*bench.valid, *calibration))
    power = fitted.energy_power
    errors = force_errors(assessed.forces, labelled)
    energies = energy_errors(assessed.energies, labelled) / size_powers(labelled, power)
    if fitted.committee is None or not np.isfinite(errors).all():
        calibrated = Calibration.fit(assessed.variance, errors, energies, rng, power)
    else:
        calibrated = _with_committee(fitted, assessed, labelled, energies, bench, rng)
    lone = bool(lone_counts(labelled, bench.member(0).cutoff).any())
    return Fitted(fitted, dataclasses.replace(calibrated, lone_atoms=lone), hashes, used, _learnt(bench, fitted))


def _with_committee(
    method: Method,
    assessed: Assessment,
    labelled: Structures,
    energies: Array,
    bench: Workbench,
    rng: np.random.Generator,
) -> Calibration:
    """Scales of structures, by the score that ranks these best, and of atoms."""
    assert method.committee is not None
    spread = method.committee.spread(labelled, bench.batch_size, bench.progress)
    errors, own = force_errors(assessed.forces, labelled), rng.spawn(2)
    question = choose_question(assessed.variance, spread.mean_forces, errors, own[1], method.question)
    log.info("forces are judged by %s", question)
    asked = None if question.name == ENERGY else force_scores(question.name, assessed.variance, spread.mean_forces)
    found = Calibration.fit(assessed.variance, errors, energies, rng, method.energy_power, question.name, asked)
    return found.with_atoms(spread.of_atoms, atom_errors(assessed.forces, labelled), own[0])


def _learnt(bench: Workbench, method: Method) -> Learnt | None:
    """How far the model came; None where that would cost something, or labels are missing."""
    predicted = bench.predicted_train()
    # A method without features may speak of another model: the mean of a committee.
    if predicted is None or method.features is None or not bench.valid:
        return None
    train = summarise_errors(predicted, bench.train).force_rmse
    valid = summarise_errors(bench.predicted_valid(), bench.valid).force_rmse
    if not np.isfinite([train, valid]).all():
        return None
    source = bench.member(0).source
    record = None if source is None else read_training_record(source)
    return Learnt(train, valid, len(bench.valid), None if record is None else record.gain)


def _without_lone(bench: Workbench, calibration: Structures) -> tuple[Workbench, Structures]:
    """Both sets of labelled structures without those in which no atom has a neighbour: no force acts there."""
    found, cutoff = [], bench.member(0).cutoff
    for frames in (bench.valid, calibration):
        alone = lone_counts(frames, cutoff) == structure_sizes(frames)
        if alone.any():
            what = "isolated atoms" if (structure_sizes(frames)[alone] == 1).all() else "structures of isolated atoms"
            log.info("%d %s are left out of the calibration: no force acts on them", alone.sum(), what)
            frames = [atoms for atoms, left_out in zip(frames, alone, strict=True) if not left_out]
            check_calibration_size(len(frames))
        found.append(frames)
    valid, calibration = found
    return bench if valid is bench.valid else dataclasses.replace(bench, valid=valid), calibration


def check_sets(
    bench: Workbench, method: str, calibration: Structures | None = None, names: Mapping[str, str] | None = None
) -> None:
    """Refuse structures that the method cannot be fitted with; the arguments are those of `fit`."""
    names, calibration = SET_NAMES | dict(names or {}), calibration or ()
    labelled_training = find_method(method).uses_training_labels
    if not bench.train:
        raise InputError("the training set is empty")
    sets = {"train": bench.train, "valid": bench.valid, "calibration": calibration}
    for key, frames in sets.items():
        if key == "train" and not labelled_training:
            continue
        # What trains networks looks at all labels of the validation set; a calibration makes do with one kind.
        check_labelled(frames, names[key], partly=key == "calibration" or not labelled_training)
        if key != "train" and frames:
            check_calibration_size(len(frames))
    for key in ("valid", "calibration"):
        check_disjoint({names["train"]: bench.train, names[key]: sets[key]})
    for key, frames in sets.items():
        check_species(bench.member(0), frames, names[key])
    if bench.valid:
        check_label_units(bench.predicted_valid(), bench.valid, names["valid"])


def _assess(bench: Workbench, method: Method, calibration: Structures) -> Assessment:
    features = method.features
    if calibration or features is None:
        return method.assess(calibration or bench.valid, bench.batch_size, bench.progress)
    # Blocks and predictions of the validation structures are there already.
    predicted = bench.predicted_valid()
    variance = features.variance(bench.extracted(features.feature_map).valid)
    return Assessment(variance, "variance", predicted.energies, predicted.forces)
