"""The heavy parts of a round as functions of plain values: they run in any worker of any executor."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms

from adaptntk.campaign.config import Campaign
from adaptntk.core.blocks import TensorBlocks
from adaptntk.core.posterior import sequential_variances
from adaptntk.core.selection.problem import Constraints
from adaptntk.core.selection.registry import select
from adaptntk.data.structures import write_structures
from adaptntk.errors import InputError
from adaptntk.files import write_json
from adaptntk.labelers.kinds import bare
from adaptntk.md.dynamics import MDSettings, run_md
from adaptntk.md.physical_rules import PHYSICAL_RULES
from adaptntk.md.rules import ConformalThreshold, ErrorLevel, Rule
from adaptntk.models.registry import load_potential
from adaptntk.training.checkpoint import checkpoint_file
from adaptntk.training.loop import TrainingOptions, train
from adaptntk.uncertainty.file import load_fitted, save_fitted
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.fitted import Fitted
from adaptntk.uncertainty.workbench import GivenModel

log = logging.getLogger(__name__)

# Structures whose features are computed in one job: the same for every executor, because rows differ in their last
# digits with the structures they are computed beside.
SHARD = 128


@dataclass(frozen=True)
class Trajectory:
    """One run of molecular dynamics."""

    ntk: Path
    start: Atoms
    name: str
    temperature: float
    seed: int
    output: Path
    """Frames go here, and why the run ended to the file beside it with the suffix ``.json``."""


def run_trajectory(job: Trajectory, config: Campaign) -> None:
    """Simulate with the current model, write the frames."""
    uncertainty = load_ntk(job.ntk, config.execution.device)
    settings = MDSettings(
        temperature=job.temperature,
        steps=config.explore.steps,
        timestep=config.explore.timestep,
        friction=config.explore.friction,
        interval=config.explore.interval,
    )
    found = run_md(uncertainty, job.start, settings, make_rules(config, uncertainty), job.seed)
    frames = []
    for frame in found.frames:
        # Without velocities, and without what the model says of it, which is no label.
        kept = bare(frame)
        kept.info = {**frame.info, "trajectory": job.name, "temperature": job.temperature}
        frames.append(kept)
    write_structures(job.output, frames)
    about = {
        "name": job.name,
        "temperature": job.temperature,
        "steps": found.steps,
        "frames": len(frames),
        "stopped_by": None if found.stopped is None else found.stopped.rule,
        "reason": None if found.stopped is None else found.stopped.text,
    }
    write_json(job.output.with_suffix(".json"), about)


def make_rules(config: Campaign, uncertainty: Fitted) -> list[Rule]:
    """What ends a simulation of this round."""
    explore = config.explore
    rules: list[Rule] = [*PHYSICAL_RULES, ConformalThreshold(explore.coverage, explore.patience, lost=explore.lost)]
    if explore.max_error is not None:
        level = ErrorLevel(explore.max_error, patience=explore.patience)
        try:
            level.check_calibration(uncertainty.calibration)
            rules.append(level)
        except InputError as error:
            # Early models cannot keep the level anywhere; the other rules still watch.
            log.warning("not watched in this round: %s", error)
    return rules


def shard_features(ntk: Path, frames: Sequence[Atoms], device: str) -> np.ndarray:
    """Feature blocks of a part of the pool."""
    fitted = load_ntk(ntk, device)
    assert fitted.features is not None
    return fitted.features.extract(fitted.potential, frames, "pool").tensor.cpu().numpy()


def choose(
    ntk: Path, blocks: np.ndarray, count: int, excluded: list[bool], picked: list[int], config: Campaign, seed: int
) -> list[dict[str, Any]]:
    """The next picks, given that some were picked and labelled already."""
    fitted = load_ntk(ntk, config.execution.device)
    features = fitted.features
    assert features is not None
    pool = TensorBlocks(torch.as_tensor(blocks, device=fitted.potential.device), features.blocks.asked)
    if picked:
        features = features.condition(pool.tensor[picked])
    found = select(config.select.method, features.problem(pool, count, Constraints(excluded), seed))
    # U given everything before the pick, whatever the rule maximises: what the label is expected to tell.
    picks = TensorBlocks(pool.tensor[found.indices], pool.asked)
    variances = sequential_variances(features.posterior, picks).tolist()
    return [
        {"index": index, "score": variance, "information": float(np.log1p(variance / features.posterior.lam))}
        for index, variance in zip(found.indices, variances, strict=True)
    ]


def train_model(
    output: Path, training: Sequence[Atoms], valid: Sequence[Atoms], start: Path | None, config: Campaign, seed: int
) -> None:
    """Train the network of a round; goes on where it was interrupted."""
    potential = None if start is None else load_potential(start, config.execution.device, config.train.dtype)
    options = TrainingOptions(config.train.dtype, checkpoint_file(output).exists(), start=potential)
    train(training, valid, output, config.train.recipe, seed, config.execution.device, options=options)


def fit_ntk(model: Path, output: Path, training: Sequence[Atoms], valid: Sequence[Atoms], config: Campaign) -> None:
    """Fit and calibrate the uncertainty of a round."""
    settings = config.uncertainty
    bench = GivenModel(training, valid, config.seed, potential=load_potential(model, config.execution.device))
    options = {"sketch": settings.sketch, "dim": settings.sketch_dim, "alpha": settings.alpha}
    save_fitted(fit(bench, "ntk", options), output)


def load_ntk(path: Path, device: str) -> Fitted:
    """The uncertainty of a round; a worker that has it in memory does not read it again."""
    return _load(path, path.stat().st_mtime_ns, device)


@lru_cache(maxsize=1)
def _load(path: Path, changed: int, device: str) -> Fitted:
    return load_fitted(path, device=device)
