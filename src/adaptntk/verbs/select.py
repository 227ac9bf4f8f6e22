"""``adaptntk select``"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms

from adaptntk.core.blocks import Rows
from adaptntk.core.calibration import check_coverage
from adaptntk.core.posterior import Posterior, principal_plane
from adaptntk.core.selection import registry as selectors
from adaptntk.core.selection.greedy import by_score
from adaptntk.core.selection.problem import Constraints, Selection
from adaptntk.data.structures import structure_hash, write_structures
from adaptntk.errors import InputError
from adaptntk.files import check_writable, write_table
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.models.protocol import check_species
from adaptntk.progress import Progress, silent
from adaptntk.report.figures import draw_selection
from adaptntk.uncertainty.calibrated import CalibratedMethod
from adaptntk.uncertainty.load import Fitted, load_fitted
from adaptntk.uncertainty.ntk import NTKUncertainty, Scores
from adaptntk.verbs.labels import STANDARD_KEYS, LabelKeys, PathLike
from adaptntk.verbs.score import annotate, announce, refuse_store, size_correlation

# Candidates drawn on the map of a selection, at most.
_LARGEST_MAP = 20_000


@dataclass(frozen=True)
class SelectionReport:
    """The batch, and how much it depends on the sketch.

    ``smallest_gap`` is the corollary's margin over all picks, from the sketched scores; when it exceeds the
    sketch error, exact scores should give the same batch. With near-duplicates in the pool it is always tiny:
    then ``sketch_overlap`` says how much the batches of the sketch's two halves have in common.
    """

    batch: list[Atoms]
    selection: Selection
    scores: Scores
    excluded: int
    correlation_with_size: float
    smallest_gap: float | None = None
    sketch_error: float | None = None
    sketch_overlap: float | None = None


def select_batch(
    ntk: PathLike,
    pool_file: PathLike,
    count: int,
    output: PathLike,
    method: str = "adaptntk",
    model: PathLike | None = None,
    exclude_files: Sequence[PathLike] = (),
    min_separation: float = 0.0,
    per_group_max: tuple[str, int] | None = None,
    figure: PathLike | None = None,
    coverage: float = 0.9,
    keys: LabelKeys = STANDARD_KEYS,
    device: str = "auto",
    seed: int = 0,
    store: PathLike | None = None,
    memory_budget: int = DEFAULT_BUDGET,
    progress: Progress = silent,
) -> SelectionReport:
    """``adaptntk select``: write the structures worth labelling next, in the order of picking.

    Besides the keys of `score_structures` (before the batch) each frame carries ``ntk_pick`` (1, 2, ...),
    ``ntk_score`` (U at the time of picking) and ``ntk_pool_index``. With ``store``, a folder, features are kept there
    and found again, also after an interruption, and need not fit into memory.
    """
    check_writable(output)
    check_coverage(coverage)
    selectors.check_selector(method)
    if figure is not None:
        check_writable(figure)
        if Path(figure).suffix != ".png":
            raise InputError(f"the figure must be a .png file, not {figure}")
    uncertainty = load_fitted(ntk, model, device, memory_budget)
    if isinstance(uncertainty, CalibratedMethod):
        _check_scores_suffice(uncertainty, method, min_separation, figure, store)
    pool = keys.open(pool_file, memory_budget)
    check_species(uncertainty.potential, pool, str(pool_file))
    known = [structure_hash(a) for path in exclude_files for a in keys.read(path, labelled=False, unique=False)]
    excluded = uncertainty.excluded(pool, known)
    if count > 0 and len(pool) - sum(excluded) < count:
        raise InputError(
            f"{pool_file}: {count} structures asked for, but only {len(pool) - sum(excluded)} of {len(pool)} are "
            "candidates (the others are labelled already)"
        )
    groups, limit = _groups(pool, per_group_max, str(pool_file))
    constraints = Constraints(excluded, min_separation, groups, limit)
    constraints.check(count, len(pool))
    if isinstance(uncertainty, CalibratedMethod):
        scores = uncertainty.score(pool, str(pool_file), progress)
        selection = by_score(method, torch.from_numpy(scores.variance), count, constraints, seed)
        batch = _picked_frames(pool, selection, uncertainty, scores, coverage)
        write_structures(output, batch)
        return SelectionReport(batch, selection, scores, sum(excluded), size_correlation(scores, pool))
    announce(uncertainty, pool, memory_budget, kept=store is None)
    rows: Rows
    if store is None:
        rows = uncertainty.features_of(pool, str(pool_file), progress)
    else:
        rows = uncertainty.stored_features(pool, uncertainty.open_store(store), str(pool_file), progress)
    selection = uncertainty.select_features(rows, count, method, constraints, seed)
    scores = uncertainty.score_features(rows, pool)
    batch = _picked_frames(pool, selection, uncertainty, scores, coverage)
    sequential = method == "adaptntk"
    report = SelectionReport(
        batch,
        selection,
        scores,
        sum(excluded),
        size_correlation(scores, pool),
        min(selection.gaps) if sequential else None,
        uncertainty.sketch_advice.error if uncertainty.sketch_advice else None,
        uncertainty.sketch_overlap(rows, count, constraints) if sequential else None,
    )
    write_structures(output, batch)
    if figure is not None:
        table = Path(figure).with_suffix(".csv")
        write_table(table, _selection_columns(uncertainty, rows, selection, scores))
        draw_selection(table)
    return report


def _check_scores_suffice(
    uncertainty: CalibratedMethod, method: str, min_separation: float, figure: PathLike | None, store: PathLike | None
) -> None:
    """Refuse what needs features: other methods have only scores."""
    refuse_store(uncertainty, store)
    if method not in ("topb", "random"):
        raise InputError(
            f"--method {method} needs features, and {uncertainty.name} has only scores: use --method topb or random"
        )
    for option, wanted in (("--min-separation", min_separation > 0), ("--figure", figure is not None)):
        if wanted:
            raise InputError(f"{option} needs features, and {uncertainty.name} has only scores: leave it out")


def _picked_frames(
    pool: Sequence[Atoms], selection: Selection, uncertainty: Fitted, scores: Scores, coverage: float
) -> list[Atoms]:
    batch = []
    for turn, (index, score) in enumerate(zip(selection.indices, selection.scores, strict=True), start=1):
        atoms = pool[index].copy()
        annotate(atoms, uncertainty, scores, index, coverage)
        atoms.info |= {"ntk_pick": turn, "ntk_score": score, "ntk_pool_index": index}
        batch.append(atoms)
    return batch


def _groups(
    pool: Sequence[Atoms], per_group_max: tuple[str, int] | None, name: str
) -> tuple[list[str] | None, int | None]:
    if per_group_max is None:
        return None, None
    key, limit = per_group_max
    for index, atoms in enumerate(pool):
        if key not in atoms.info:
            raise InputError(f"{name}, frame {index}: no {key!r} to group by; every frame needs it in its comment line")
    return [str(atoms.info[key]) for atoms in pool], limit


def _selection_columns(
    uncertainty: NTKUncertainty, rows: Rows, selection: Selection, scores: Scores
) -> dict[str, Sequence[Any]]:
    """One row per candidate: its place on a map of the pool, its score, its turn (0 when not picked).

    Of a large pool, a random part and the picks.
    """
    shown = np.arange(len(rows))
    if len(rows) > _LARGEST_MAP:
        drawn = np.random.default_rng(0).choice(len(rows), _LARGEST_MAP, replace=False)
        shown = np.union1d(drawn, selection.indices)
    posterior = uncertainty.posterior
    matrix = rows[torch.as_tensor(shown)]
    places = principal_plane(posterior.whiten(matrix) if isinstance(posterior, Posterior) else matrix)
    turn, at_turn = np.zeros(len(rows), dtype=int), np.zeros(len(rows))
    for number, (index, score) in enumerate(zip(selection.indices, selection.scores, strict=True), start=1):
        turn[index], at_turn[index] = number, score
    sigma = scores.sigma if scores.sigma is not None else np.sqrt(scores.variance)
    return {
        "pool_index": shown.tolist(),
        "map_x": places[:, 0].tolist(),
        "map_y": places[:, 1].tolist(),
        "ntk_variance": scores.variance[shown].tolist(),
        "forces_uncertainty": sigma[shown].tolist(),
        "pick": turn[shown].tolist(),
        "ntk_score": at_turn[shown].tolist(),
    }
