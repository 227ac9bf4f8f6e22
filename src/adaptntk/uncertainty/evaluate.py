"""How good a fitted uncertainty is on labelled structures it has not seen."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import adaptntk.evaluation as evaluation
from adaptntk.core import metrics
from adaptntk.core.calibration import REPORTED_COVERAGES
from adaptntk.data.structures import Structures, check_labelled, structure_hashes, structure_sizes
from adaptntk.errors import InputError
from adaptntk.models.protocol import Predictions, check_species
from adaptntk.progress import Progress, silent
from adaptntk.uncertainty.fitted import Fitted


@dataclass(frozen=True)
class Evaluation:
    """Metrics by name, and the per-structure columns they were computed from."""

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

    Structures of the training set are refused: their errors say nothing about new ones.
    """
    if fitted.calibration is None:
        raise InputError("the uncertainty is not calibrated: fit it with a validation set")
    hashes = _check_test(fitted, test, name)
    found = fitted.assess(test, batch_size, progress)
    evaluation.check_label_units(found.forces, test, name)
    scores = fitted.scores_of_variance(found.variance, test)
    assert scores.sigma is not None
    assert scores.energy_sigma is not None
    errors, sizes = evaluation.force_errors(found.forces, test), structure_sizes(test).astype(float)
    summary = asdict(evaluation.summarise_errors(Predictions(found.energies, found.forces), test))
    rng = np.random.default_rng(seed)
    result: dict[str, Any] = {"method": fitted.name, "structures": len(test), **summary}
    result |= evaluation.ranking(scores.variance, errors, rng)
    result |= evaluation.calibration_quality(scores.variance, scores.sigma, errors, rng)
    result["conformal"] = {
        str(coverage): evaluation.observed_coverage(fitted.calibration, scores.variance, errors, coverage)
        for coverage in REPORTED_COVERAGES
    }
    # The trivial rival: high-energy frames are both rarer and harder. A score should beat it.
    result["control_predicted_energy_spearman"] = metrics.spearman(found.energies / sizes, errors)
    result["correlation_with_size"] = evaluation.size_correlation(scores.variance, test)
    columns = {
        "frame": list(range(len(test))),
        "structure": hashes,
        fitted.variance_key: scores.variance.tolist(),
        "forces_uncertainty": scores.sigma.tolist(),
        "energy_uncertainty": scores.energy_sigma.tolist(),
        "force_error": errors.tolist(),
        "energy_error": np.abs(evaluation.energy_errors(found.energies, test)).tolist(),
        "predicted_energy": found.energies.tolist(),
        "atoms": structure_sizes(test).tolist(),
    }
    # JSON has no NaN: a correlation with a constant is null.
    known = {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in result.items()}
    return Evaluation(known, columns)


def _check_test(fitted: Fitted, test: Structures, name: str) -> list[str]:
    """Refuse what says nothing about new structures; the hashes of the others."""
    if len(test) < 20:
        raise InputError(f"{name}: {len(test)} structures are too few to evaluate on; give at least 20")
    check_labelled(test, name)
    check_species(fitted.potential, test, name)
    hashes = structure_hashes(test)
    seen = dict.fromkeys(fitted.calibration_hashes, "was used to calibrate this uncertainty")
    seen |= dict.fromkeys(fitted.train_hashes, "is also in the training set")
    for index, identity in enumerate(hashes):
        if identity in seen:
            raise InputError(f"{name}, frame {index}: {seen[identity]}; remove it")
    return hashes
