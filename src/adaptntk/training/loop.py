"""Training a network by a recipe: resumable, and its result is a file that its family loads."""

import copy
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from ase import Atoms

from adaptntk.errors import InputError
from adaptntk.files import check_writable
from adaptntk.models.family import Trainable, as_trainable
from adaptntk.models.protocol import Potential, check_species, choose_device
from adaptntk.models.registry import choose_dtype, load_potential
from adaptntk.training.checkpoint import Best, Checkpoint, Stage, snapshot_epochs, training_identity, write_snapshots
from adaptntk.training.epoch import ValidationErrors, centre_energies, run_epoch, validate
from adaptntk.training.labelled import LabelledSet, check_sets, untrained_network
from adaptntk.training.recipe import PRESETS, Recipe

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EpochReport:
    """What an epoch achieved."""

    epoch: int
    epochs: int
    train_loss: float
    validation: ValidationErrors
    improved: bool
    seconds: float


@dataclass(frozen=True)
class TrainingOptions:
    """How `train` goes about a recipe.

    Args:
        dtype: ``float32`` or ``float64``.
        resume: go on from the checkpoint of an interrupted training. To resume a complete one changes nothing.
        snapshots: the share of the epochs, at the end, of which up to 20 leave their weights in ``output.snapshots``,
            for `read_snapshots`.
        start: begin with this network, whatever its architecture, instead of random weights.
    """

    dtype: str = "float32"
    resume: bool = False
    snapshots: float = 0.0
    start: Potential | None = None


@dataclass(frozen=True)
class Trained:
    """A finished training: the network of the best epoch (None if not known) and its errors on the validation set."""

    potential: Potential
    best_epoch: int | None
    energy_rmse_per_atom: float
    force_rmse: float


def train(
    train: Sequence[Atoms],
    valid: Sequence[Atoms],
    output: str | Path,
    recipe: Recipe = PRESETS["small"],
    seed: int = 0,
    device: str = "auto",
    on_epoch: Callable[[EpochReport], None] = lambda report: None,
    options: TrainingOptions | None = None,
) -> Trained:
    """Train a network and write the best one, by validation loss, to ``output``.

    Each epoch ends with a checkpoint beside the output, from which an interrupted training can be resumed: it ends
    with the same weights as if it had not been interrupted. The checkpoint is removed when the training is complete.

    Args:
        train, valid: labelled structures, none in both.
        recipe: architecture, loss and optimiser: one of `PRESETS`, or your own.
        seed: of the first weights and of the order of the structures.
        on_epoch: called after each epoch.
        options: how to go about it; see `TrainingOptions`.
    """
    output, options = Path(output), options or TrainingOptions()
    check_writable(output)
    dtype = choose_dtype(options.dtype)
    check_sets(train, valid)
    checkpoint = Checkpoint(output, training_identity(train, valid, recipe, seed, options.dtype, options.start))
    if options.resume and output.exists() and not checkpoint.path.exists():
        log.info("%s is complete: nothing to resume", output)
        return _finished(output, device, valid, recipe, best_epoch=None)
    if options.start is None:
        potential = untrained_network(train, recipe, dtype, seed)
    else:
        # A copy, for a network is more than its weights: cutoff, energies of atoms, mean number of neighbours.
        check_species(options.start, [*train, *valid], "training or validation set")
        potential = as_trainable(options.start).copy()
        potential.module.to(dtype)
    potential.module.to(choose_device(device))
    if recipe.dropout:
        potential = potential.with_dropout(recipe.dropout)
    sets = LabelledSet.make(potential, train), LabelledSet.make(potential, valid)
    stage = _run_epochs(potential, sets, recipe, seed, checkpoint, on_epoch, options)
    potential.module.load_state_dict(stage.best.weights)
    if recipe.centre_energies:
        centre_energies(potential, sets[0], recipe)
    write_snapshots(output, stage.snapshots)
    potential.save(output)
    checkpoint.path.unlink(missing_ok=True)
    return _finished(output, device, valid, recipe, stage.best.epoch)


def _run_epochs(
    potential: Trainable,
    sets: tuple[LabelledSet, LabelledSet],
    recipe: Recipe,
    seed: int,
    checkpoint: Checkpoint,
    on_epoch: Callable[[EpochReport], None],
    options: TrainingOptions,
) -> Stage:
    """All epochs that are missing."""
    module, (train_set, valid_set) = potential.module, sets
    parameters, decay = module.parameters(), recipe.weight_decay
    optimiser = torch.optim.AdamW(parameters, recipe.learning_rate, weight_decay=decay, fused=True)
    stage = Stage(0, Best(0, math.inf, copy.deepcopy(module.state_dict())), {})
    if options.resume:
        stage = checkpoint.load(module, optimiser) or stage
    kept = snapshot_epochs(recipe.epochs, options.snapshots) if options.snapshots else []
    for epoch in range(stage.epochs, recipe.epochs):
        began = time.perf_counter()
        with torch.random.fork_rng(enabled=recipe.dropout > 0):
            train_loss = run_epoch(potential, optimiser, train_set, recipe, epoch, seed)
        errors = validate(potential, valid_set, recipe, centred=recipe.centre_energies)
        if not math.isfinite(errors.loss):
            advice = "check the units of the labels, or lower the learning rate"
            raise InputError(f"the training diverged in epoch {epoch + 1}: {advice}")
        improved = errors.loss < stage.best.loss
        best = Best(epoch + 1, errors.loss, copy.deepcopy(module.state_dict())) if improved else stage.best
        weights = dict(module.named_parameters()) if epoch in kept else {}
        taken = {f"{epoch}/{name}": tensor.detach().clone() for name, tensor in weights.items()}
        stage = Stage(epoch + 1, best, stage.snapshots | taken)
        checkpoint.save(stage, module, optimiser)
        seconds = time.perf_counter() - began
        on_epoch(EpochReport(epoch + 1, recipe.epochs, train_loss, errors, improved, seconds))
    return stage


def _finished(output: Path, device: str, valid: Sequence[Atoms], recipe: Recipe, best_epoch: int | None) -> Trained:
    """The network as it was written, with its errors."""
    potential = as_trainable(load_potential(output, device))
    errors = validate(potential, LabelledSet.make(potential, valid), recipe)
    return Trained(potential, best_epoch, errors.energy_rmse_per_atom, errors.force_rmse)
