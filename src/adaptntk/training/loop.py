"""Training a network by a recipe: resumable, and its result is a file that its family loads."""

import copy
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from ase import Atoms

from adaptntk.errors import InputError
from adaptntk.files import check_writable
from adaptntk.models.family import Trainable, as_trainable
from adaptntk.models.protocol import Potential, check_species, choose_device
from adaptntk.models.registry import choose_dtype, load_potential
from adaptntk.training.checkpoint import Best, Checkpoint, Stage, snapshot_laps, training_identity, write_snapshots
from adaptntk.training.labelled import LabelledSet, check_sets, untrained_network
from adaptntk.training.limits import Point
from adaptntk.training.recipe import DEFAULT_PRESET, PRESETS, Recipe
from adaptntk.training.record import SetErrors, TrainingRecord, read_training_record, write_training_record
from adaptntk.training.reference import prepare
from adaptntk.training.schedule import Plan, last_gain
from adaptntk.training.steps import Stepper, ValidationErrors, centre_energies, validate
from adaptntk.training.weights import Weights

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LapReport:
    """What the steps between two validations achieved.

    The lap went from step ``first`` to step ``steps``; a training that has become flat goes back, so laps may begin
    before the last one ended. ``most_steps`` is the length of the training as things stood then; it may end earlier.
    While it is reported on, the network has the weights that were validated.
    """

    first: int
    steps: int
    most_steps: int
    train_loss: float
    validation: ValidationErrors
    improved: bool
    annealing: bool
    seconds: float
    potential: Trainable = field(repr=False)


@dataclass(frozen=True)
class TrainingOptions:
    """How `train` goes about a recipe.

    Args:
        dtype: ``float32`` or ``float64``; where not given that of ``start``, and ``float32`` without one.
        resume: go on from the checkpoint of an interrupted training. To resume a complete one changes nothing.
        snapshots: the share of the laps, at the end, of which up to 20 leave their weights in ``output.snapshots``,
            for `read_snapshots`; the schedule ``settle`` has none, for it ends when it pleases.
        start: begin with this network, whatever its architecture, instead of random weights; in its head, where it has
            several. All but its trainable weights stays: precision, cutoff, frozen parameters, energies of atoms.
        trust: run code that the file of ``start`` brought, when what was written is read again.
    """

    dtype: str | None = None
    resume: bool = False
    snapshots: float = 0.0
    start: Potential | None = None
    trust: bool = False

    @property
    def precision(self) -> str:
        """That of the network."""
        as_stored = "float32" if self.start is None else str(self.start.dtype).removeprefix("torch.")
        return self.dtype or as_stored

    def load(self, output: Path, device: str) -> Trainable:
        """The network that was written."""
        head = None if self.start is None else self.start.head
        return as_trainable(load_potential(output, device, head=head, trust=self.trust))


@dataclass(frozen=True)
class Trained:
    """A finished training: the network, its errors on the validation set, and the record (None if that is lost).

    ``stress_rmse`` (eV/Å^3) is None where no stress was learnt.
    """

    potential: Potential
    energy_rmse_per_atom: float
    force_rmse: float
    record: TrainingRecord | None
    stress_rmse: float | None = None


def train(
    train: Sequence[Atoms],
    valid: Sequence[Atoms],
    output: str | Path,
    recipe: Recipe = PRESETS[DEFAULT_PRESET],
    seed: int = 0,
    device: str = "auto",
    on_lap: Callable[[LapReport], None] = lambda report: None,
    options: TrainingOptions | None = None,
) -> Trained:
    """Train a network and write the best one, by validation loss, to ``output``, and beside it a record.

    Each lap ends with a checkpoint beside the output, from which an interrupted training can be resumed: it ends
    with the same weights as if it had not been interrupted. The checkpoint is removed when the training is complete.

    Args:
        train, valid: labelled structures, none in both.
        recipe: architecture, loss and optimiser: one of `PRESETS`, or your own.
        seed: of the first weights and of the order of the structures.
        on_lap: called after each lap, as which the steps from one validation to the next are known.
        options: how to go about it; see `TrainingOptions`.
    """
    output, options = Path(output), options or TrainingOptions()
    check_writable(output)
    dtype = choose_dtype(options.precision)
    train, valid, recipe = prepare(train, valid, recipe, options.start is not None)
    check_sets(train, valid)
    if options.snapshots and recipe.schedule == "settle":
        raise InputError("snapshots need a training of known length: a constant or cosine schedule")
    checkpoint = Checkpoint(output, training_identity(train, valid, recipe, seed, options.precision, options.start))
    if options.resume and output.exists() and not checkpoint.path.exists():
        log.info("%s is complete: nothing to resume", output)
        return _finished(output, options.load(output, device), valid, recipe)
    if options.start is None:
        potential = untrained_network(train, recipe, dtype, seed)
    else:
        # A copy, for a network is more than its weights: cutoff, energies of atoms, mean number of neighbours.
        check_species(options.start, [*train, *valid], "training or validation set")
        potential = as_trainable(options.start).copy()
        if options.dtype is not None:
            potential.module.to(dtype)
        for remark in potential.training_remarks:
            log.warning("%s", remark)
    potential.module.to(choose_device(device))
    if recipe.dropout:
        potential = potential.with_dropout(recipe.dropout)
    sets = LabelledSet.make(potential, train, recipe), LabelledSet.make(potential, valid, recipe)
    if options.start is not None and recipe.centre_energies:
        # Its energies may count from elsewhere than the labels: the steps would go into that constant first.
        centre_energies(potential, sets[0], recipe)
    stepper = Stepper(potential, Weights(potential, recipe), sets[0], recipe, seed)
    stage = _run_laps(stepper, sets[1], checkpoint, on_lap, options)
    potential.module.load_state_dict(stage.best.weights)
    if recipe.centre_energies:
        centre_energies(potential, sets[0], recipe)
    write_snapshots(output, stage.snapshots)
    potential.save(output)
    write_training_record(output, _record(potential, sets, recipe, seed, stage))
    checkpoint.path.unlink(missing_ok=True)
    return _finished(output, options.load(output, device), valid, recipe)


def _run_laps(
    stepper: Stepper,
    valid: LabelledSet,
    checkpoint: Checkpoint,
    on_lap: Callable[[LapReport], None],
    options: TrainingOptions,
) -> Stage:
    """All laps that are missing."""
    recipe, potential, weights = stepper.recipe, stepper.potential, stepper.weights
    plan, laps = Plan.first(recipe, stepper.batches), stepper.laps(len(valid))
    stage = Stage(0, plan, Best(0, math.inf, copy.deepcopy(potential.module.state_dict())), (), {})
    if options.resume:
        stage = _annealing_begun(stepper, checkpoint.load(weights) or stage)
    snapshots = _snapshot_steps(plan.stops(recipe, laps), options.snapshots) if options.snapshots else {}
    while stage.steps < stage.plan.steps:
        began = time.perf_counter()
        done = stage.plan.next_stop(recipe, stage.steps, laps)
        with torch.random.fork_rng(enabled=recipe.dropout > 0):
            train_loss = stepper.run(stage.plan, stage.steps, done)
        before, stage, errors = stage, *_validated(stepper, valid, stage, done)
        if done in snapshots:
            taken = {f"{snapshots[done]}/{name}": p.detach().clone() for name, p in potential.module.named_parameters()}
            stage = stage._replace(snapshots=stage.snapshots | taken)
        checkpoint.save(stage, weights)
        lap, annealing = (before.steps, done, before.plan.steps), before.plan.anneal_from is not None
        improved, seconds = stage.best is not before.best, time.perf_counter() - began
        with weights.averaged():
            on_lap(LapReport(*lap, train_loss, errors, improved, annealing, seconds, potential))
        stage = _annealing_begun(stepper, stage)
    return stage


def _snapshot_steps(stops: Sequence[int], share: float) -> dict[int, int]:
    """After which steps weights are kept, with the number of the lap."""
    return {stops[lap]: lap for lap in snapshot_laps(len(stops), share)}


def _validated(stepper: Stepper, valid: LabelledSet, stage: Stage, done: int) -> tuple[Stage, ValidationErrors]:
    """The stage after another lap, by the errors of the averaged weights."""
    recipe, potential, plan, best = stepper.recipe, stepper.potential, stage.plan, stage.best
    with stepper.weights.averaged():
        errors = validate(potential, valid, recipe, plan.energy_weight(recipe), centred=recipe.centre_energies)
        if not math.isfinite(errors.loss):
            advice = "check the units of the labels, or lower the learning rate"
            raise InputError(f"the training diverged before step {done}: {advice}")
        # The second stage has a loss of its own, and its weights are the better ones.
        if errors.loss < best.loss or stage.steps == plan.anneal_from:
            best = Best(done, errors.loss, copy.deepcopy(potential.module.state_dict()))
        path = stage.path
        # A falling rate lowers the error by itself: only steps at a constant one tell whether more would help.
        if recipe.schedule != "cosine" and plan.anneal_from is None:
            path = (*path, Point(done, errors.force_rmse))
        following = plan.after(recipe, done, path, lambda: validate(potential, stepper.data, recipe).force_rmse)
        constant = recipe.schedule == "settle" and plan.anneal_from is None
        # A wrong constant drowns what energies have to tell. The optimiser mends it slowly; to compute it costs a part
        # of a lap, so that is done after 1, 2, 4, 8, ... of them, and when energies begin to count.
        if recipe.centre_energies and constant and len(path).bit_count() == 1:
            centre_energies(potential, stepper.data, recipe)
    kept = stage.kept
    if constant and (kept is None or last_gain(path).steps == done):  # None: also in checkpoints of before
        kept = copy.deepcopy(stepper.weights.state())
    return Stage(done, following, best, path, stage.snapshots, kept), errors


def _annealing_begun(stepper: Stepper, stage: Stage) -> Stage:
    """The stage from which the next lap begins: where the plan begins to anneal, the moment that it anneals from.

    This comes after the checkpoint, so that a resumed training does the same.
    """
    begins, recipe = stage.plan.anneal_from, stepper.recipe
    if begins is None or stage.kept is None:
        return stage
    if begins < stage.steps:
        log.info("flat since step %s: going back there to anneal", f"{begins:,}")
        stepper.weights.load(stage.kept)
    if recipe.centre_energies:
        with stepper.weights.averaged():
            centre_energies(stepper.potential, stepper.data, recipe)
    return stage._replace(steps=begins, kept=None)


def _record(
    potential: Trainable, sets: tuple[LabelledSet, LabelledSet], recipe: Recipe, seed: int, stage: Stage
) -> TrainingRecord:
    """How it went."""
    found = [validate(potential, data, recipe) for data in sets]
    errors = [SetErrors(len(data), e.force_rmse, e.energy_rmse_per_atom) for data, e in zip(sets, found, strict=True)]
    spread = float((sets[1].energies / sets[1].sizes).double().std(correction=0))
    if errors[1].energy_rmse_per_atom > spread > 0:
        off, constant = (f"{1000 * value:.3g} meV/atom" for value in (errors[1].energy_rmse_per_atom, spread))
        why = f"energies of the validation set are off by {off}, and by no more than {constant} if all were the same"
        log.warning("%s: train longer, or give energies a larger weight", why)
    ended: Literal["flat", "steps"] = "flat" if stage.plan.flat else "steps"
    return TrainingRecord(
        settings=recipe.settings(),
        seed=seed,
        steps=stage.steps,
        ended=ended,
        path=stage.path,
        train=errors[0],
        valid=errors[1],
        energy_spread=spread,
    )


def _finished(output: Path, potential: Trainable, valid: Sequence[Atoms], recipe: Recipe) -> Trained:
    """The network as it was written, with its errors."""
    errors = validate(potential, LabelledSet.make(potential, valid, recipe), recipe)
    rmse = errors.energy_rmse_per_atom, errors.force_rmse
    return Trained(potential, *rmse, read_training_record(output), errors.stress_rmse)
