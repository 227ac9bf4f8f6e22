"""``adaptntk score``"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adaptntk.errors import InputError
from adaptntk.progress import Show
from adaptntk.verbs.settings import argument, option, verb
from adaptntk.verbs.shared import Coverage, FittedFile, Store, size_line

if TYPE_CHECKING:
    from ase import Atoms

    from adaptntk.uncertainty.load import Fitted
    from adaptntk.uncertainty.ntk import NTKUncertainty, Scores

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(FittedFile, Coverage, Store):
    """What is scored."""

    structures: Path = argument("Structures to score (extxyz).")
    output: Path = option("The extxyz file to write.", short="-o")


@dataclass(frozen=True)
class ScoreReport:
    """Scores of a file, and how far they follow the size of the structures."""

    structures: "Sequence[Atoms]"
    scores: "Scores"
    correlation_with_size: float
    output: Path

    def lines(self) -> Iterable[str]:
        shown = self.scores.sigma if self.scores.sigma is not None else self.scores.variance
        unit = "sigma (eV/Å)" if self.scores.sigma is not None else "U"
        low, middle, high = np.quantile(shown, [0.05, 0.5, 0.95])
        noun = "structures" if len(shown) > 1 else "structure"
        yield (
            f"{len(shown):,} {noun}, {unit}: median {middle:.4g}, 5-95 % {low:.4g} .. {high:.4g}, "
            f"largest {shown.max():.4g} (frame {int(shown.argmax())})"
        )
        yield size_line(self.correlation_with_size)
        yield f"wrote {self.output}"


@verb(ScoreSettings)
def score(settings: ScoreSettings, show: Show) -> ScoreReport:
    """Write the structures with their uncertainty.

    Each frame gets ntk_variance (the raw score U), forces_uncertainty (eV/Å), energy_uncertainty (eV) and
    forces_error_bound (eV/Å) in its comment line.
    """
    from adaptntk.core.calibration import check_coverage
    from adaptntk.data.structures import write_structures
    from adaptntk.files import check_writable
    from adaptntk.models.protocol import check_species
    from adaptntk.uncertainty.calibrated import CalibratedMethod

    check_writable(settings.output)
    check_coverage(settings.coverage)
    uncertainty, name = settings.load(), str(settings.structures)
    pool = settings.open(settings.structures)
    check_species(uncertainty.potential, pool, name)
    if isinstance(uncertainty, CalibratedMethod):
        refuse_store(uncertainty.name, settings.store)
        scores = uncertainty.score(pool, name, show.progress)
    else:
        announce(uncertainty, pool, settings.memory_budget, kept=False)
        if settings.store is None:
            scores = uncertainty.score(pool, name, show.progress)
        else:
            rows = uncertainty.stored_features(pool, uncertainty.open_store(settings.store), name, show.progress)
            scores = uncertainty.score_features(rows, pool)
    annotated = (annotate(a, uncertainty, scores, index, settings.coverage) for index, a in enumerate(pool))
    write_structures(settings.output, annotated)
    return ScoreReport(pool, scores, size_correlation(scores, pool), settings.output)


def size_correlation(scores: "Scores", frames: "Sequence[Atoms]") -> float:
    """How far the scores follow the number of atoms."""
    from adaptntk.core import metrics
    from adaptntk.data.structure_file import structure_sizes

    return metrics.spearman(scores.variance, structure_sizes(frames).astype(float))


def announce(uncertainty: "NTKUncertainty", frames: "Sequence[Atoms]", memory_budget: int, kept: bool = True) -> None:
    """Say what the features will cost, and refuse what does not fit into memory."""
    from adaptntk.features.energy_gradients import estimate_features

    estimate = estimate_features(uncertainty.potential, frames, uncertainty.sketch, memory_budget, kept=kept)
    log.info("energy gradients of %s", estimate)
    estimate.check(memory_budget)


def annotate(atoms: "Atoms", uncertainty: "Fitted", scores: "Scores", index: int, coverage: float) -> "Atoms":
    """The frame with its uncertainty in ``info``."""
    from adaptntk.uncertainty.entries import uncertainty_entries

    atoms.info.update(uncertainty_entries(uncertainty, scores, index, coverage))
    return atoms


def refuse_store(method: str, store: Path | None) -> None:
    """Only the NTK has features that can be kept."""
    if store is not None:
        raise InputError(f"--store keeps features of the method ntk; {method} has none")
