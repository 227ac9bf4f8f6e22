"""``adaptntk select``"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptntk.errors import InputError
from adaptntk.files import check_writable, write_table
from adaptntk.progress import Show
from adaptntk.verbs.settings import argument, option, verb
from adaptntk.verbs.shared import Coverage, FittedFile, Seed, Store, size_line

if TYPE_CHECKING:
    from ase import Atoms

    from adaptntk.core.selection.problem import Constraints, Selection
    from adaptntk.uncertainty.candidates import Candidates
    from adaptntk.uncertainty.fitted import Fitted
    from adaptntk.uncertainty.method import Scores

# Candidates drawn on the map of a selection, at most.
_LARGEST_MAP = 20_000


class SelectSettings(FittedFile, Coverage, Seed, Store):
    pool: Path = argument("Candidate structures (extxyz, or another format).")
    output: Path = option("The file to write: .xyz, .extxyz, .traj, .jsonl or .csv.", short="-o")
    count: int = option("How many structures to pick.", 50, short="-n")
    rule: str = option(
        "adaptntk (scores updated after each pick), adaptntk+forces (also by the forces of the pick), topb, "
        "lcmd, adaptntk+lcmd, maxdist, kmeans++, bait, bait+forces (for the forces of the pool or --target) or random.",
        "adaptntk",
        flag="--method",
    )
    per_atom: str | None = option(
        "max: pick by the most uncertain atom instead of the whole structure, with adaptntk or topb, by the "
        "committee of fit.",
        None,
    )
    target: Path | None = option(
        "Structures whose forces are to become sure, with bait+forces; the pool by default.", None
    )
    exclude: tuple[Path, ...] = option("Files of structures labelled already; repeatable.", ())
    min_separation: float = option("Smallest distance of two picks in feature space: 0 the same, 1 unrelated.", 0.0)
    per_group_max: tuple[str, int] | None = option(
        "At most N picks with the same value of KEY in the comment line.", None, metavar="KEY N"
    )
    ceiling: float | None = option(
        "Leave out candidates whose score passes this multiple of the largest that was calibrated: broken frames.", None
    )
    max_error: float | None = option("Leave out candidates whose expected force error passes this level, eV/Å.", None)
    figure: Path | None = option("Also draw the pool and the picks (PNG, and a CSV beside it).", None)


class SelectReport(NamedTuple):
    """The batch, and how much it depends on the sketch.

    ``smallest_gap`` is the corollary's margin over all picks, from the sketched scores; when it exceeds the
    sketch error, exact scores should give the same batch. With near-duplicates in the pool it is always tiny:
    then ``sketch_overlap`` says how much the batches of the sketch's two halves have in common.
    """

    settings: SelectSettings
    batch: "list[Atoms]"
    selection: "Selection"
    scores: "Scores"
    excluded: int
    correlation_with_size: float | None
    smallest_gap: float | None = None
    sketch_error: float | None = None
    sketch_overlap: float | None = None
    remarks: Sequence[str] = ()
    above: int = 0

    def lines(self) -> Iterable[str]:
        scores, pool_size = self.selection.scores, len(self.scores.variance)
        known = f" ({self.excluded:,} excluded: labelled already)" if self.excluded else ""
        yield f"picked {len(scores)} of {pool_size - self.excluded:,} candidates{known}"
        if self.above:
            were = "candidate above the ceiling was" if self.above == 1 else "candidates above the ceiling were"
            yield f"{self.above:,} {were} left out"
        yield f"U at the time of picking: {scores[0]:.4g} (first) .. {scores[-1]:.4g} (last)"
        if self.smallest_gap is not None and self.sketch_error is not None:
            verdict = "exact scores may choose otherwise between near equals"
            if self.smallest_gap > self.sketch_error:
                verdict = "exact scores should give the same batch"
            yield f"smallest decision gap {self.smallest_gap:.2g}, sketch error {self.sketch_error:.2g}: {verdict}"
        yield from self.remarks
        beyond = 0 if self.scores.beyond is None else int(self.scores.beyond[self.selection.indices].sum())
        if beyond:  # it is their job to be uncertain, but somebody may believe their sigma
            lies, whose = ("lies", "its") if beyond == 1 else ("lie", "their")
            yield f"{beyond:,} of the {len(scores):,} picks {lies} there: {whose} sigma is extrapolated"
        yield size_line(self.correlation_with_size)
        if self.sketch_overlap is not None:
            yield f"batches of the sketch's two halves overlap by {self.sketch_overlap:.2f} (Jaccard)"
        figure = self.settings.figure
        yield f"wrote {self.settings.output}" + (f" and {figure}" if figure else "")


@verb(SelectSettings)
def select(settings: SelectSettings, show: Show) -> SelectReport:
    """Write the structures worth labelling next, in the order of picking.

    Structures of the training set are never picked. Each frame carries pick (1, 2, ...), pick_score (U given the
    picks before it), pick_criterion (what the rule looked at), pool_index, and the keys that adaptntk score writes.
    """
    from adaptntk.data.structures import write_structures
    from adaptntk.evaluation import size_correlation
    from adaptntk.report.figures import draw_selection
    from adaptntk.verbs.annotation import marked, predictions

    _check(settings)
    fitted = settings.load()
    _check_features(fitted, settings)
    pool = settings.open(settings.pool, fitted)
    constraints = _constraints(settings, fitted, pool)
    fitted.announce(pool, store=settings.store)
    target = () if settings.target is None else settings.read(settings.target, labelled=False)
    candidates = fitted.candidates(pool, str(settings.pool), settings.store, show.progress, target)
    excluded = sum(constraints.excluded or ())
    constraints = _below_ceiling(settings, candidates, constraints, show)
    weights = None if settings.per_atom is None else candidates.worst_atoms(show.progress)
    selection = candidates.select(settings.rule, settings.count, constraints, settings.seed, weights)
    batch, scored = [], candidates.scores_of(selection.indices)
    predicted = predictions(fitted, [pool[index] for index in selection.indices])
    picked = zip(selection.indices, selection.scores, selection.criteria, predicted, strict=True)
    for turn, (index, score, criterion, said) in enumerate(picked):
        entries: dict[str, Any] = dict(fitted.entries(scored, turn, settings.coverage))
        entries |= {"pick": turn + 1, "pick_score": score, "pick_criterion": criterion, "pool_index": index}
        batch.append(marked(pool[index], entries, said))
    correlation, above = size_correlation(candidates.scores.variance, pool), sum(constraints.excluded or ()) - excluded
    report = SelectReport(settings, batch, selection, candidates.scores, excluded, correlation, above=above)
    if selection.gaps:
        overlap = candidates.sketch_overlap(settings.count, constraints)
        report = report._replace(smallest_gap=min(selection.gaps), sketch_overlap=overlap)
    told = fitted.remarks(candidates.scores.beyond, candidates.scores.lone, "candidates")
    report = report._replace(remarks=tuple(told))
    if fitted.features is not None and fitted.features.sketch_check is not None:
        report = report._replace(sketch_error=fitted.features.sketch_check.error)
    write_structures(settings.output, batch)
    if settings.figure is not None:
        table = settings.figure.with_suffix(".csv")
        write_table(table, _selection_columns(candidates, selection))
        draw_selection(table)
    return report


def _check(settings: SelectSettings) -> None:
    """Refuse what can be refused before anything is read."""
    from adaptntk.core.calibration import check_coverage
    from adaptntk.core.selection.problem import Constraints
    from adaptntk.core.selection.registry import check_selector, check_target, check_weights
    from adaptntk.data.formats import check_output

    check_output(settings.output)
    check_coverage(settings.coverage)
    check_selector(settings.rule)
    check_target(settings.rule, settings.target is not None)
    if settings.per_atom is not None:
        if settings.per_atom != "max":
            raise InputError(f"--per-atom max picks by the most uncertain atom; {settings.per_atom!r} is not known")
        check_weights(settings.rule)
    for name, value in (("--ceiling", settings.ceiling), ("--max-error", settings.max_error)):
        if value is not None and not 0 < value < 1e30:
            raise InputError(f"{name} must be a positive number, not {value:g}")
    limit = (settings.per_group_max or (None, None))[1]
    Constraints(None, settings.min_separation, None, limit).check(settings.count, settings.count)
    if settings.figure is not None:
        check_writable(settings.figure)
        if settings.figure.suffix != ".png":
            raise InputError(f"the figure must be a .png file, not {settings.figure}")
        if settings.figure.with_suffix(".csv").absolute() == settings.output.absolute():
            raise InputError(f"{settings.output} is also the table beside the figure: give one of them another name")


def _check_features(fitted: "Fitted", settings: SelectSettings) -> None:
    """Refuse what needs features where there are only scores."""
    fitted.check_store(settings.store)
    fitted.check_rule(settings.rule)
    if settings.per_atom is not None:
        fitted.check_committee()
    for name, wanted in (("--min-separation", settings.min_separation > 0), ("--figure", settings.figure)):
        if wanted and fitted.features is None:
            raise InputError(f"{name} needs features, and {fitted.name} has only scores: leave it out")


def _constraints(settings: SelectSettings, fitted: "Fitted", pool: "Sequence[Atoms]") -> "Constraints":
    from adaptntk.core.selection.problem import Constraints
    from adaptntk.data.structures import structure_hash

    frames = (a for path in settings.exclude for a in settings.read(path, labelled=False, unique=False))
    excluded = fitted.excluded(pool, [structure_hash(atoms) for atoms in frames])
    left = len(pool) - sum(excluded)
    if settings.count > 0 and left < settings.count:
        others = "; the others are labelled already" if left < len(pool) else ""
        found = f"only {left} of {len(pool)} are candidates{others}"
        raise InputError(f"{settings.pool}: {settings.count} structures asked for, but {found}")
    groups: list[str] = []
    key, limit = settings.per_group_max or (None, None)
    for index, atoms in enumerate(pool if key is not None else ()):
        if key not in atoms.info:
            raise InputError(
                f"{settings.pool}, frame {index}: no {key!r} to group by; every frame needs it in its comment line"
            )
        groups.append(str(atoms.info[key]))
    constraints = Constraints(excluded, settings.min_separation, groups or None, limit)
    constraints.check(settings.count, len(pool))
    return constraints


def _below_ceiling(
    settings: SelectSettings, candidates: "Candidates", constraints: "Constraints", show: Show
) -> "Constraints":
    """Without the candidates that are more likely rubbish than worth a label."""
    found = constraints.without(candidates.above(settings.ceiling, settings.max_error, show.progress))
    left = len(candidates.structures) - sum(found.excluded or ())
    if left < settings.count:
        why = (
            f"{settings.pool}: {settings.count} structures asked for, but only {left} candidates are below the ceiling"
        )
        raise InputError(f"{why}: raise it, or ask for fewer")
    return found


def _selection_columns(candidates: "Candidates", selection: "Selection") -> dict[str, Sequence[Any]]:
    """One row per candidate: its place on a map of the pool, its score, its turn (0 when not picked), its score then.

    Of a large pool, a random part and the picks.
    """
    scores, count = candidates.scores, len(candidates.structures)
    shown = np.arange(count)
    if count > _LARGEST_MAP:
        drawn = np.random.default_rng(0).choice(count, _LARGEST_MAP, replace=False)
        shown = np.union1d(drawn, selection.indices)
    places = candidates.map_of(shown)
    turn, at_turn = np.zeros(count, dtype=int), np.full(count, None)
    turn[selection.indices] = np.arange(1, 1 + len(selection.indices))
    at_turn[selection.indices] = selection.scores
    sigma = scores.sigma if scores.sigma is not None else np.sqrt(scores.variance)
    of_candidates = {"variance": scores.variance, "forces_uncertainty": sigma, "pick": turn, "pick_score": at_turn}
    columns = {"pool_index": shown, "map_x": places[:, 0], "map_y": places[:, 1]}
    columns |= {name: values[shown] for name, values in of_candidates.items()}
    return {name: values.tolist() for name, values in columns.items()}
