"""``adaptntk score``"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from adaptntk.progress import Show
from adaptntk.verbs.settings import argument, option, verb
from adaptntk.verbs.shared import Coverage, FittedFile, Store, size_line

if TYPE_CHECKING:
    from ase import Atoms

    from adaptntk.uncertainty.method import Scores
    from adaptntk.verbs.annotation import Predicted


class ScoreSettings(FittedFile, Coverage, Store):
    structures: Path = argument("Structures to score (extxyz, or another format).")
    output: Path = option("The file to write: .xyz, .extxyz, .traj, .jsonl or .csv.", short="-o")
    per_atom: bool = option("Also the uncertainty of the force on each atom, by the committee of fit.", False)


class ScoreReport(NamedTuple):
    """Scores of a file, and how far they follow the size of the structures."""

    structures: "Sequence[Atoms]"
    scores: "Scores"
    correlation_with_size: float | None
    output: Path
    remarks: Sequence[str] = ()

    def lines(self) -> Iterable[str]:
        shown = self.scores.sigma if self.scores.sigma is not None else self.scores.variance
        unit = "sigma (eV/Å)" if self.scores.sigma is not None else "U"
        noun = "structures" if len(shown) > 1 else "structure"
        if np.isfinite(shown).any():
            low, middle, high = np.nanquantile(shown, [0.05, 0.5, 0.95])
            yield (
                f"{len(shown):,} {noun}, {unit}: median {middle:.4g}, 5-95 % {low:.4g} .. {high:.4g}, "
                f"largest {np.nanmax(shown):.4g} (frame {int(np.nanargmax(shown))})"
            )
        yield from self.remarks
        yield size_line(self.correlation_with_size)
        yield f"wrote {self.output}"


@verb(ScoreSettings)
def score(settings: ScoreSettings, show: Show) -> ScoreReport:
    """Write the structures with what the model says of them, and its uncertainty.

    Each frame gets predicted_energy (eV), ntk_variance (the raw score U), forces_uncertainty and forces_error_bound
    (eV/Å), energy_uncertainty and energy_error_bound (eV) and beyond_calibration in its comment line, lone_atoms where
    atoms have no neighbours, and predicted_forces (eV/Å) beside its positions. With --per-atom, each atom gets
    forces_uncertainty_per_atom (eV/Å), the expected root mean square error of a component of the force on it, and
    energies_uncertainty (eV), how far its part of the energy is open.
    """
    from adaptntk.core.calibration import check_coverage
    from adaptntk.data.formats import check_output
    from adaptntk.data.structures import StructureFile, write_structures
    from adaptntk.evaluation import size_correlation
    from adaptntk.verbs.annotation import marked, predictions

    check_output(settings.output)
    check_coverage(settings.coverage)
    fitted, name = settings.load(), str(settings.structures)
    fitted.check_store(settings.store)
    if settings.per_atom:
        fitted.check_committee()
    pool = settings.open(settings.structures, fitted)
    fitted.announce(pool, kept=False, store=settings.store)
    if settings.store is None and not isinstance(pool, StructureFile):
        assessed = fitted.assess(pool, progress=show.progress, name=name)
        scores = fitted.scores_of_variance(assessed.variance, pool, per_atom=settings.per_atom, progress=show.progress)
        predicted: Iterable[Predicted] = zip(assessed.energies, assessed.forces, strict=True)
    else:  # forces of so many structures are not held at once
        scores = fitted.score(pool, name, settings.store, show.progress, settings.per_atom)
        predicted = predictions(fitted, pool, show.progress)

    def annotated() -> "Iterator[Atoms]":
        for index, (atoms, said) in enumerate(zip(pool, predicted, strict=True)):
            entries = fitted.entries(scores, index, settings.coverage)
            yield marked(atoms, entries, said, fitted.atom_entries(scores, index))

    write_structures(settings.output, annotated())
    remarks = tuple(fitted.remarks(scores.beyond, scores.lone, "structures"))
    return ScoreReport(pool, scores, size_correlation(scores.variance, pool), settings.output, remarks)
