"""How good a fitted uncertainty is on labelled structures it has not seen."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from ase import Atoms

from adaptntk.core import metrics
from adaptntk.core.calibration import REPORTED_COVERAGES
from adaptntk.data.structures import check_labelled, structure_hash, structure_sizes
from adaptntk.errors import InputError
from adaptntk.evaluation import (
    calibration_quality,
    check_label_units,
    energy_errors,
    force_errors,
    observed_coverage,
    ranking,
    size_correlation,
    summarise_errors,
)
from adaptntk.models.protocol import Predictions
from adaptntk.progress import Progress, silent
from adaptntk.uncertainty.fitted import Fitted


@dataclass(frozen=True)
class Evaluation:
    """Metrics by name, and the per-structure columns they were computed from."""

    metrics: dict[str, Any]
    columns: dict[str, list[Any]]


def evaluate(
    fitted: Fitted,
    test: Sequence[Atoms],
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
    check_label_units(found.forces, test, name)
    scores = fitted.scores_of_variance(found.variance, test)
    assert scores.sigma is not None
    assert scores.energy_sigma is not None
    errors, sizes = force_errors(found.forces, test), structure_sizes(test).astype(float)
    summary = asdict(summarise_errors(Predictions(found.energies, found.forces), test))
    rng = np.random.default_rng(seed)
    result: dict[str, Any] = {"method": fitted.name, "structures": len(test), **summary}
    result |= ranking(scores.variance, errors, rng)
    result |= calibration_quality(scores.variance, scores.sigma, errors, rng)
    result["conformal"] = {
        str(coverage): observed_coverage(fitted.calibration, scores.variance, errors, coverage)
        for coverage in REPORTED_COVERAGES
    }
    # The trivial rival: high-energy frames are both rarer and harder. A score should beat it.
    result["control_predicted_energy_spearman"] = metrics.spearman(found.energies / sizes, errors)
    result["correlation_with_size"] = size_correlation(scores.variance, test)
    columns = {
        "frame": list(range(len(test))),
        "structure": hashes,
        fitted.variance_key: scores.variance.tolist(),
        "forces_uncertainty": scores.sigma.tolist(),
        "energy_uncertainty": scores.energy_sigma.tolist(),
        "force_error": errors.tolist(),
        "energy_error": np.abs(energy_errors(found.energies, test)).tolist(),
        "predicted_energy": found.energies.tolist(),
        "atoms": structure_sizes(test).tolist(),
    }
    return Evaluation({key: _json_value(value) for key, value in result.items()}, columns)


def _check_test(fitted: Fitted, test: Sequence[Atoms], name: str) -> list[str]:
    """Refuse what says nothing about new structures; the hashes of the others."""
    if len(test) < 20:
        raise InputError(f"{name}: {len(test)} structures are too few to evaluate on; give at least 20")
    check_labelled(test, name)
    known, used = set(fitted.train_hashes), set(fitted.calibration_hashes)
    hashes = [structure_hash(atoms) for atoms in test]
    for index, identity in enumerate(hashes):
        if identity in known:
            raise InputError(f"{name}, frame {index}: is also in the training set; remove it")
        if identity in used:
            raise InputError(f"{name}, frame {index}: was used to calibrate this uncertainty; remove it")
    return hashes


def _json_value(value: Any) -> Any:
    """JSON has no NaN: a correlation with a constant is null."""
    return None if isinstance(value, float) and not np.isfinite(value) else value
