"""Candidates for a round: from simulations with the last model, or from a file."""

import itertools
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from ase import Atoms

from adaptntk.campaign.config import Explore
from adaptntk.campaign.layout import RoundDirectory, read_own
from adaptntk.campaign.records import Explored, FrameCounts, TrajectoryRecord
from adaptntk.campaign.steps.begin import starting_structures
from adaptntk.campaign.steps.driver import SPARE, Driver, marked
from adaptntk.campaign.steps.label import pool_features
from adaptntk.campaign.steps.learn import BOUND_COVERAGE, load_ntk
from adaptntk.core.blocks import TensorBlocks
from adaptntk.core.calibration import Calibration
from adaptntk.data.structures import bare, read_structures, structure_hash, write_structures
from adaptntk.labelers.record import RecordFile
from adaptntk.md.dynamics import run_md
from adaptntk.md.exploration import Sifted, score_of, sift
from adaptntk.progress import counted
from adaptntk.uncertainty.method import ATOM_KEYS

log = logging.getLogger(__name__)


def explore(driver: Driver, here: RoundDirectory) -> np.ndarray | None:
    """Write the candidates, and those drawn at random to tell the error among them.

    Returns feature blocks of the candidates where they had to be computed, so that nobody need do so again.
    """
    if here.pool.exists():
        return None
    config, wanted = driver.config.explore, driver.config.round
    known = driver.run.files.settled() | {structure_hash(atoms) for atoms in driver.test_structures()}
    before, features = driver.run.round(here.number - 1), None
    if config.pool is not None:
        found = sift(_pool_of(config.pool), None, known, config.min_distance)
        met = new = candidates = found.taken
        features = _scored(driver, before.ntk, new)
    else:
        met = _simulate(driver, here, before.ntk)
        calibration = load_ntk(before.ntk, driver.config.execution.device).calibration
        found = not_lost(met, config, calibration, known)
        new = candidates = found.taken
        if driver.config.select.method != "random":
            candidates = _uncertain(new, config, calibration, 2 * wanted.train)
        if len(new) < wanted.total:
            # With some to spare, for labels may fail.
            candidates = least_lost(new, met, known, config.min_distance, wanted.total + wanted.train)
            _tell_lost(here.number, len(new), len(candidates) - len(new))
    told = tuple(load_ntk(before.ntk, driver.config.execution.device).remarks_of(met))
    for text in (found, *told):
        log.info("round %d: %s", here.number, text)
    explored = here.explored.read() or Explored()
    here.explored.write(replace(explored, frames=FrameCounts(len(found.taken), found.dropped), remarks=told))
    # Drawn from everything that is left, before anything is chosen: only so do they tell the error there.
    drawn = driver.rng(here.number, 1).permutation(len(new))[: SPARE * (wanted.valid + wanted.holdout)]
    write_structures(here.random, [marked(new[i]) for i in drawn])
    write_structures(here.pool, [marked(atoms) for atoms in candidates])
    return features


def _tell_lost(number: int, met: int, beyond: int) -> None:
    text = f"round {number}: the model was lost after {counted(met, 'different frame')}"
    log.warning("%s; %d of the least uncertain beyond may be learnt from, none is drawn at random", text, beyond)


def not_lost(
    frames: Sequence[Atoms], config: Explore, calibration: Calibration | None, known: Collection[str]
) -> Sifted:
    """New frames that the model met before it was lost; what became of the others."""
    within = config.watch.not_lost(frames, calibration)
    return sift(within, None, known, config.min_distance).with_lost(len(frames) - len(within), config.lost)


def least_lost(
    new: Sequence[Atoms], met: Sequence[Atoms], known: Collection[str], min_distance: float, enough: int
) -> list[Atoms]:
    """To learn from where a model is lost from the start: the frames it knows, then the least uncertain of all."""
    within = sorted((atoms for atoms in met if np.isfinite(score_of(atoms))), key=score_of)
    return sift([*new, *within], None, known, min_distance).taken[: max(enough, len(new))]


def _pool_of(path: Path) -> list[Atoms]:
    """The structures of a file to the digits that are written of them: those who resume get the same scores."""
    frames = [bare(atoms) for atoms in read_structures(path)]
    for atoms in frames:
        atoms.positions = np.round(atoms.positions, 8)
    return frames


def _scored(driver: Driver, ntk: Path, pool: Sequence[Atoms]) -> np.ndarray | None:
    """Write scores into the candidates of a file, as those of a simulation have them; their feature blocks."""
    if not pool:
        return None
    blocks = pool_features(driver, ntk, pool)
    fitted = load_ntk(ntk, driver.config.execution.device)
    assert fitted.features is not None
    rows = torch.as_tensor(blocks, device=fitted.potential.device)
    scores = fitted.scores_of_variance(fitted.features.variance(TensorBlocks(rows, fitted.features.blocks.asked)), pool)
    for index, atoms in enumerate(pool):
        atoms.info |= fitted.entries(scores, index, BOUND_COVERAGE)
    return blocks


def _uncertain(frames: list[Atoms], config: Explore, calibration: Calibration | None, enough: int) -> list[Atoms]:
    """Frames above the threshold; all of them where those are too few."""
    threshold = config.watch.threshold(calibration)
    if threshold is None:
        return frames
    found = [atoms for atoms in frames if score_of(atoms) > threshold]
    return found if len(found) >= enough else frames


def _simulate(driver: Driver, here: RoundDirectory, ntk: Path) -> list[Atoms]:
    config, device = driver.config.explore, driver.config.execution.device
    starts = starting_structures(driver)
    chosen = sorted(driver.rng(here.number, 0).permutation(len(starts))[: config.starts].tolist())
    plan = list(itertools.product(chosen, config.temperatures, range(config.trajectories)))
    outputs = [here.trajectory(number) for number in range(len(plan))]
    work = []
    for number, (start, temperature, repeat) in enumerate(plan):
        if not outputs[number].path.exists():
            name = f"start {start}, {temperature:g} K" + (f", {repeat}" if config.trajectories > 1 else "")
            seed = driver.seed(here.number, 100 + number)
            work.append((outputs[number], ntk, starts[start], name, temperature, seed, config, device))
    driver.map(run_trajectory, work, "simulations")
    here.explored.write(Explored(tuple(output.get() for output in outputs)))
    return [atoms for output in outputs for atoms in read_own(output.structures)]


def run_trajectory(
    output: RecordFile[TrajectoryRecord],
    ntk: Path,
    start: Atoms,
    name: str,
    temperature: float,
    seed: int,
    config: Explore,
    device: str,
) -> None:
    """Simulate with the current model, write the frames."""
    uncertainty = load_ntk(ntk, device)
    rules = config.watch.rules(uncertainty.calibration)
    per_atom = uncertainty.method.committee is not None
    found = run_md(uncertainty, start, config.dynamics(temperature), rules, seed, per_atom=per_atom)
    # Without velocities, and without what the model says of it, which is no label.
    frames = [bare(frame) for frame in found.frames]
    for kept, frame in zip(frames, found.frames, strict=True):
        kept.info = {**frame.info, "trajectory": name, "temperature": temperature}
        for key in ATOM_KEYS:
            if key in frame.arrays:
                kept.arrays[key] = frame.arrays[key]
    write_structures(output.structures, frames)
    ended = (None, None) if found.stopped is None else (found.stopped.rule, found.stopped.text)
    output.write(TrajectoryRecord(name, temperature, found.steps, len(frames), *ended))
