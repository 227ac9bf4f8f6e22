"""``adaptntk score``"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ase import Atoms

from adaptntk.core import metrics
from adaptntk.core.calibration import check_coverage
from adaptntk.data.structure_file import structure_sizes
from adaptntk.data.structures import write_structures
from adaptntk.errors import InputError
from adaptntk.features.energy_gradients import estimate_features
from adaptntk.files import check_writable
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.models.protocol import check_species
from adaptntk.progress import Progress, silent
from adaptntk.uncertainty.calibrated import CalibratedMethod
from adaptntk.uncertainty.entries import uncertainty_entries
from adaptntk.uncertainty.load import Fitted, load_fitted
from adaptntk.uncertainty.ntk import NTKUncertainty, Scores
from adaptntk.verbs.labels import STANDARD_KEYS, LabelKeys, PathLike

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScoreReport:
    """Scores of a file, and how far they follow the size of the structures."""

    frames: Sequence[Atoms]
    scores: Scores
    correlation_with_size: float


def score_structures(
    ntk: PathLike,
    pool_file: PathLike,
    output: PathLike,
    model: PathLike | None = None,
    coverage: float = 0.9,
    keys: LabelKeys = STANDARD_KEYS,
    device: str = "auto",
    store: PathLike | None = None,
    memory_budget: int = DEFAULT_BUDGET,
    progress: Progress = silent,
) -> ScoreReport:
    """``adaptntk score``: write the frames with their uncertainty in ``info``.

    Keys: ``ntk_variance`` (the raw score U; another method has its own name before ``_variance``),
    ``forces_uncertainty`` (eV/Å), ``energy_uncertainty`` (eV) and ``forces_error_bound`` (eV/Å), which the force error
    stays below with probability ``coverage``. With ``store``, a folder, features are kept there and found again, also
    after an interruption.
    """
    check_writable(output)
    check_coverage(coverage)
    uncertainty = load_fitted(ntk, model, device, memory_budget)
    pool = keys.open(pool_file, memory_budget)
    check_species(uncertainty.potential, pool, str(pool_file))
    if isinstance(uncertainty, CalibratedMethod):
        refuse_store(uncertainty, store)
        scores = uncertainty.score(pool, str(pool_file), progress)
    elif store is None:
        announce(uncertainty, pool, memory_budget, kept=False)
        scores = uncertainty.score(pool, str(pool_file), progress)
    else:
        announce(uncertainty, pool, memory_budget, kept=False)
        rows = uncertainty.stored_features(pool, uncertainty.open_store(store), str(pool_file), progress)
        scores = uncertainty.score_features(rows, pool)
    write_structures(
        output, (annotate(atoms, uncertainty, scores, index, coverage) for index, atoms in enumerate(pool))
    )
    return ScoreReport(pool, scores, size_correlation(scores, pool))


def size_correlation(scores: Scores, frames: Sequence[Atoms]) -> float:
    """How far the scores follow the number of atoms."""
    return metrics.spearman(scores.variance, structure_sizes(frames).astype(float))


def announce(uncertainty: NTKUncertainty, frames: Sequence[Atoms], memory_budget: int, kept: bool = True) -> None:
    """Say what the features will cost, and refuse what does not fit into memory."""
    estimate = estimate_features(uncertainty.potential, frames, uncertainty.sketch, memory_budget, kept=kept)
    log.info("energy gradients of %s", estimate)
    estimate.check(memory_budget)


def annotate(atoms: Atoms, uncertainty: Fitted, scores: Scores, index: int, coverage: float) -> Atoms:
    """The frame with its uncertainty in ``info``."""
    atoms.info.update(uncertainty_entries(uncertainty, scores, index, coverage))
    return atoms


def refuse_store(uncertainty: CalibratedMethod, store: PathLike | None) -> None:
    """Only the NTK has features that can be kept."""
    if store is not None:
        raise InputError(f"--store keeps features of the method ntk; {uncertainty.name} has none")
