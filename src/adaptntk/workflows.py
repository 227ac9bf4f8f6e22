"""The verbs as functions: files in, files out. The command line adds nothing but options and printing."""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms

from adaptntk.core import acquisition, metrics
from adaptntk.core.acquisition import Constraints, Selection
from adaptntk.core.calibration import PRIOR_ALPHA, check_coverage, check_criterion
from adaptntk.core.posterior import Posterior, principal_plane
from adaptntk.core.rows import Rows
from adaptntk.core.sketch import NoSketch
from adaptntk.core.sketches import make_sketch
from adaptntk.data.splits import check_disjoint
from adaptntk.data.structure_file import open_structures, structure_sizes
from adaptntk.data.structures import ENERGY, FORCES, read_structures, structure_hash, write_structures
from adaptntk.errors import InputError
from adaptntk.evaluation import Evaluation, evaluate
from adaptntk.features import estimate_features, extract_features
from adaptntk.files import check_folder, check_writable, make_folder, write_atomically, write_table
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.methods.ntk import NTKUncertainty, Scores, choose_normalisation, full_gradients_fit
from adaptntk.methods.ntk_file import load_uncertainty, save_uncertainty
from adaptntk.models.load import load_potential
from adaptntk.models.protocol import check_species, parameter_count
from adaptntk.progress import Progress, silent
from adaptntk.report.figures import draw_evaluation, draw_selection
from adaptntk.training import PRESETS, EpochReport, Recipe, Trained, train

log = logging.getLogger(__name__)

PathLike = str | Path

# Candidates drawn on the map of a selection, at most.
_LARGEST_MAP = 20_000


@dataclass(frozen=True)
class LabelKeys:
    """What the labels are called in the files."""

    energy: str = ENERGY
    forces: str = FORCES

    def read(self, path: PathLike, labelled: bool = True, unique: bool = True) -> list[Atoms]:
        """Read and check a file."""
        return read_structures(path, self.energy, self.forces, labelled, unique)

    def open(self, path: PathLike, memory_budget: int) -> Sequence[Atoms]:
        """Check a file of structures; a large one is read again a frame at a time, when it is needed."""
        return open_structures(path, self.energy, self.forces, memory_budget=memory_budget)


STANDARD_KEYS = LabelKeys()


def train_model(
    train_file: PathLike,
    valid_file: PathLike,
    output: PathLike,
    recipe: Recipe = PRESETS["small"],
    keys: LabelKeys = STANDARD_KEYS,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "float32",
    resume: bool = False,
    on_epoch: Callable[[EpochReport], None] = lambda report: None,
) -> Trained:
    """``adaptntk train``: train a MACE network on labelled files and write a stock ``.model``."""
    check_writable(output)
    sets = keys.read(train_file), keys.read(valid_file)
    check_disjoint({f"--train {train_file}": sets[0], f"--valid {valid_file}": sets[1]})
    return train(*sets, output, recipe, seed, device, dtype, resume, on_epoch)


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
    training, valid = keys.read(train_file, labelled=False), keys.read(valid_file)
    check_disjoint({f"--train {train_file}": training, f"--valid {valid_file}": valid})
    calibration = keys.read(calibration_file) if calibration_file is not None else None
    if calibration is not None:
        check_disjoint({f"--train {train_file}": training, f"--calibration {calibration_file}": calibration})
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

    Keys: ``ntk_variance`` (the raw score U), ``forces_uncertainty`` (eV/Å), ``energy_uncertainty`` (eV) and
    ``forces_error_bound`` (eV/Å), which the force error stays below with probability ``coverage``. With ``store``, a
    folder, features are kept there and found again, also after an interruption.
    """
    check_writable(output)
    check_coverage(coverage)
    uncertainty = load_uncertainty(ntk, model=model, device=device, memory_budget=memory_budget)
    pool = keys.open(pool_file, memory_budget)
    check_species(uncertainty.potential, pool, str(pool_file))
    _announce(uncertainty, pool, memory_budget, kept=False)
    if store is None:
        scores = uncertainty.score(pool, str(pool_file), progress)
    else:
        rows = uncertainty.stored_features(pool, uncertainty.open_store(store), str(pool_file), progress)
        scores = uncertainty.score_features(rows, pool)
    write_structures(
        output, (_annotate(atoms, uncertainty, scores, index, coverage) for index, atoms in enumerate(pool))
    )
    return ScoreReport(pool, scores, _correlation_with_size(scores, pool))


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
    smallest_gap: float | None
    sketch_error: float | None
    sketch_overlap: float | None


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
    acquisition.check_method(method)
    if figure is not None:
        check_writable(figure)
        if Path(figure).suffix != ".png":
            raise InputError(f"the figure must be a .png file, not {figure}")
    uncertainty = load_uncertainty(ntk, model=model, device=device, memory_budget=memory_budget)
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
    _announce(uncertainty, pool, memory_budget, kept=store is None)
    rows: Rows
    if store is None:
        rows = uncertainty.features_of(pool, str(pool_file), progress)
    else:
        rows = uncertainty.stored_features(pool, uncertainty.open_store(store), str(pool_file), progress)
    selection = acquisition.select(method, uncertainty.posterior, rows, count, constraints, seed)
    scores = uncertainty.score_features(rows, pool)
    batch = _picked_frames(pool, selection, uncertainty, scores, coverage)
    sequential = method == "adaptntk"
    report = SelectionReport(
        batch,
        selection,
        scores,
        sum(excluded),
        _correlation_with_size(scores, pool),
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


def evaluate_uncertainty(
    ntk: PathLike,
    test_file: PathLike,
    output: PathLike,
    model: PathLike | None = None,
    keys: LabelKeys = STANDARD_KEYS,
    device: str = "auto",
    batch_size: int = 16,
    seed: int = 0,
    memory_budget: int = DEFAULT_BUDGET,
    progress: Progress = silent,
) -> Evaluation:
    """``adaptntk evaluate``: metrics on labelled structures; writes JSON, a CSV table and a figure."""
    check_folder(output)
    uncertainty = load_uncertainty(ntk, model=model, device=device, memory_budget=memory_budget)
    test = keys.read(test_file)
    check_species(uncertainty.potential, test, str(test_file))
    _announce(uncertainty, test, memory_budget)
    evaluation = evaluate(uncertainty, test, str(test_file), batch_size, seed, progress)
    folder = make_folder(output)
    write_table(folder / "evaluation.csv", evaluation.columns)
    text = json.dumps(evaluation.metrics, indent=1, allow_nan=False)
    write_atomically(folder / "evaluation.json", lambda temporary: temporary.write_text(text + "\n"))
    draw_evaluation(folder)
    return evaluation


def _correlation_with_size(scores: Scores, frames: Sequence[Atoms]) -> float:
    return metrics.spearman(scores.variance, structure_sizes(frames).astype(float))


def _announce(uncertainty: NTKUncertainty, frames: Sequence[Atoms], memory_budget: int, kept: bool = True) -> None:
    estimate = estimate_features(uncertainty.potential, frames, uncertainty.sketch, memory_budget, kept=kept)
    log.info("energy gradients of %s", estimate)
    estimate.check(memory_budget)


def _annotate(atoms: Atoms, uncertainty: NTKUncertainty, scores: Scores, index: int, coverage: float) -> Atoms:
    """The frame with its uncertainty in ``info``."""
    atoms.info["ntk_variance"] = float(scores.variance[index])
    if scores.sigma is None or scores.energy_sigma is None or uncertainty.calibration is None:
        return atoms
    atoms.info["forces_uncertainty"] = float(scores.sigma[index])
    atoms.info["energy_uncertainty"] = float(scores.energy_sigma[index])
    bound = float(uncertainty.calibration.error_bound(scores.variance[index : index + 1], coverage)[0])
    if np.isfinite(bound):  # a small calibration set bounds nothing at a high coverage
        atoms.info["forces_error_bound"] = bound
    return atoms


def _picked_frames(
    pool: Sequence[Atoms], selection: Selection, uncertainty: NTKUncertainty, scores: Scores, coverage: float
) -> list[Atoms]:
    batch = []
    for turn, (index, score) in enumerate(zip(selection.indices, selection.scores, strict=True), start=1):
        atoms = pool[index].copy()
        _annotate(atoms, uncertainty, scores, index, coverage)
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
