"""How good a fitted uncertainty is on labelled structures it has not seen."""

import logging
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import adaptntk.evaluation as evaluation
from adaptntk.core import metrics
from adaptntk.core.calibration import REPORTED_COVERAGES, Calibration
from adaptntk.core.metrics import Array
from adaptntk.data.geometry import lone_counts
from adaptntk.data.labels import has_stress
from adaptntk.data.structures import Structures, check_labelled, structure_hashes, structure_sizes
from adaptntk.errors import InputError
from adaptntk.features.feature_map import size_powers
from adaptntk.files import plain
from adaptntk.models.protocol import check_species
from adaptntk.progress import Progress, silent
from adaptntk.uncertainty.fitted import Fitted
from adaptntk.uncertainty.method import Assessment, AtomScores, Scores

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """Metrics by name, and the per-structure columns they were computed from.

    Metrics without a place are of the forces, those of energies stand under ``energy``. What cannot be said is None.
    """

    metrics: dict[str, Any]
    columns: dict[str, list[Any]]


def evaluate(
    fitted: Fitted,
    test: Structures,
    name: str = "test set",
    batch_size: int = 16,
    seed: int = 0,
    progress: Progress = silent,
) -> Evaluation:
    """Score labelled structures and compare with the true errors of the model.

    Labels may be energies, forces or both. Structures of the training set are refused: their errors say nothing about
    new ones. Those in which no atom has a neighbour are left out: no force acts there, and they have no sigma.
    """
    calibration = fitted.calibration
    if calibration is None:
        raise InputError("the uncertainty is not calibrated: fit it with a validation set")
    frames, hashes = _check_test(fitted, test, name)
    test = test if len(frames) == len(test) else [test[frame] for frame in frames]
    found = fitted.assess(test, batch_size, progress, name)
    evaluation.check_predicted(found, name)
    evaluation.check_label_units(found, test, name)
    per_atom = fitted.method.committee is not None
    scores = fitted.scores_of_variance(found.variance, test, batch_size, per_atom, progress)
    sizes = structure_sizes(test).astype(float)
    errors, energies = evaluation.force_errors(found.forces, test), evaluation.energy_errors(found.energies, test)
    offsets = calibration.energy_offset * size_powers(test, calibration.energy_power)
    rng = np.random.default_rng(seed)
    result: dict[str, Any] = {"method": fitted.name, "structures": len(test)}
    result |= asdict(evaluation.summarise_errors(found, test))
    result |= _limit(fitted, result["force_rmse"], len(test))
    result |= _forces(calibration, scores, errors, _controls(found, sizes), rng)
    result["atoms"] = _atoms(calibration, scores.atoms, found.forces, test)
    result["energy"] = _energies(calibration, scores, energies, sizes, offsets, rng)
    result["stress"] = _stress(fitted, test)
    result["remarks"] = [*fitted.remarks(scores.beyond, scores.lone, "structures")]
    result["correlation_with_size"] = evaluation.size_correlation(scores.variance, test)
    columns = {
        "frame": frames,
        "structure": hashes,
        fitted.variance_key: scores.variance,
        "force_score": scores.of_forces,
        "forces_uncertainty": _column(scores.sigma, len(test)),
        "energy_uncertainty": _column(scores.energy_sigma, len(test)),
        "force_error": errors,
        "energy_error": energies,
        "energy_error_without_offset": energies - offsets,
        "predicted_energy": found.energies,
        "atoms": structure_sizes(test),
        "beyond_calibration": None if scores.beyond is None else scores.beyond.astype(int),
    }
    return Evaluation(plain(result), {key: plain(np.asarray(values)) for key, values in columns.items()})


def _limit(fitted: Fitted, force_rmse: float, structures: int) -> dict[str, Any]:
    """How far the model came, and what limits it on these structures; nothing where that is not known."""
    if fitted.learnt is None:
        return {}
    apart = force_rmse if np.isfinite(force_rmse) else None
    limit = fitted.learnt.limit(apart, structures, "the test set")
    return {"learnt": asdict(fitted.learnt), "limit": asdict(limit)}


def _forces(
    calibration: Calibration, scores: Scores, errors: Array, controls: dict[str, Array], rng: np.random.Generator
) -> dict[str, Any]:
    """How well the score ranks and sizes the force errors; nothing without labels."""
    if np.isnan(errors).any():
        return {}
    found = evaluation.ranking(scores.of_forces, errors, rng) | {"question": calibration.question}
    if scores.sigma is not None:
        found |= evaluation.calibration_quality(scores.of_forces, scores.sigma, errors, rng)
        found["conformal"] = _coverages(calibration.ratios, scores.sigma, errors)
    return found | {f"control_{name}_spearman": metrics.spearman(values, errors) for name, values in controls.items()}


def _controls(found: Assessment, sizes: Array) -> dict[str, Array]:
    """The trivial rivals, which a score should beat: frames of high energy are rarer and harder, large forces too."""
    force_size = np.array([np.sqrt(np.mean(forces**2)) for forces in found.forces])
    return {"predicted_energy": found.energies / sizes, "force_size": force_size}


def _atoms(
    calibration: Calibration, scores: AtomScores | None, forces: list[Array], test: Structures
) -> dict[str, Any] | None:
    """How well the committee ranks and sizes the force errors of atoms; None without one, or without labels."""
    errors = evaluation.atom_errors(forces, test)
    if scores is None or not all(np.isfinite(e).all() for e in errors):
        return None
    result: dict[str, Any] = {"spearman": evaluation.atom_ranking(scores.variance, errors)}
    sizes = [np.sqrt(np.mean(predicted**2, axis=1)) for predicted in forces]
    result["control_force_size_spearman"] = evaluation.atom_ranking(sizes, errors)
    if scores.sigma is not None:
        result["ence"] = metrics.ence(np.concatenate(scores.sigma), np.concatenate(errors))
        ratios = calibration.atom_ratios, calibration.worst_ratios
        pairs = scores.sigma, errors
        result["conformal"] = {str(c): evaluation.atom_coverage(*ratios, *pairs, c) for c in REPORTED_COVERAGES}
    return result


def _energies(
    calibration: Calibration, scores: Scores, errors: Array, sizes: Array, offsets: Array, rng: np.random.Generator
) -> dict[str, Any] | None:
    """How large the energy errors are, and how well the score ranks and sizes what remains without the offset.

    That is done over the number of atoms to the power of the calibration: sizes alone would rank total energies.
    """
    if np.isnan(errors).any():
        return None
    found: dict[str, Any] = evaluation.energy_summary(errors, sizes, offsets)
    if scores.energy_sigma is None:
        return found
    powers = sizes**calibration.energy_power
    sigma, remaining = scores.energy_sigma / powers, (errors - offsets) / powers
    found |= {"power": calibration.energy_power}
    found |= evaluation.energy_sigma_quality(scores.variance, sigma, remaining, rng)
    if len(calibration.energy_ratios):
        found["conformal"] = _coverages(calibration.energy_ratios, sigma, np.abs(remaining))
    return found


def _stress(fitted: Fitted, test: Structures) -> dict[str, float] | None:
    """Errors of the stress; the uncertainty says nothing of it."""
    if not fitted.potential.capabilities.stress:
        return None
    labelled = [atoms for atoms in test if has_stress(atoms)]
    return evaluation.stress_summary([fitted.potential.single_point(atoms).stress for atoms in labelled], labelled)


def _coverages(ratios: Array, sigma: Array, errors: Array) -> dict[str, Any]:
    return {str(c): evaluation.observed_coverage(ratios, sigma, errors, c) for c in REPORTED_COVERAGES}


def _column(values: Array | None, length: int) -> Array:
    return np.full(length, np.nan) if values is None else values


def _check_test(fitted: Fitted, test: Structures, name: str) -> tuple[list[int], list[str]]:
    """Refuse what says nothing about new structures; the frames that have neighbours, and their hashes."""
    check_labelled(test, name, partly=True)
    check_species(fitted.potential, test, name)
    hashes = structure_hashes(test)
    seen = dict.fromkeys(fitted.calibration_hashes, "was used to calibrate this uncertainty")
    seen |= dict.fromkeys(fitted.train_hashes, "is also in the training set")
    kept = np.flatnonzero(lone_counts(test, fitted.potential.cutoff) < structure_sizes(test)).tolist()
    for index in kept:
        if hashes[index] in seen:
            raise InputError(f"{name}, frame {index}: {seen[hashes[index]]}; remove it")
    if len(kept) < len(test):
        log.info("%d structures of isolated atoms are left out: no force acts on them", len(test) - len(kept))
    if len(kept) < 20:
        raise InputError(f"{name}: {len(kept)} structures are too few to evaluate on; give at least 20")
    return kept, [hashes[index] for index in kept]
