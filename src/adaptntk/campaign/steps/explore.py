"""Candidates for a round: from simulations with the last model, or from a file."""

import itertools
from collections.abc import Collection, Sequence
from pathlib import Path

from ase import Atoms

from adaptntk.campaign.config import Explore
from adaptntk.campaign.layout import RoundDirectory, read_own
from adaptntk.campaign.records import Explored, TrajectoryRecord
from adaptntk.campaign.steps.begin import starting_structures
from adaptntk.campaign.steps.driver import SPARE, Driver, marked
from adaptntk.campaign.steps.learn import load_ntk
from adaptntk.core.calibration import Calibration
from adaptntk.data.structures import bare, read_structures, structure_hash, write_structures
from adaptntk.labelers.record import RecordFile
from adaptntk.md.dynamics import run_md
from adaptntk.md.exploration import collect, score_of


def explore(driver: Driver, here: RoundDirectory) -> None:
    """Write the candidates, and those drawn at random to tell the error among them."""
    if here.pool.exists():
        return
    config, wanted = driver.config.explore, driver.config.round
    known = driver.run.files.settled() | {structure_hash(atoms) for atoms in driver.test_structures()}
    if config.pool is not None:
        given = [bare(atoms) for atoms in read_structures(config.pool)]
        new = uncertain = collect(given, None, known, config.min_distance)
    else:
        before = driver.run.round(here.number - 1)
        met = _simulate(driver, here, before.ntk)
        calibration = load_ntk(before.ntk, driver.config.execution.device).calibration
        # Twice as many as are wanted, for some labels may fail.
        new = not_lost(met, config, calibration, known, 2 * wanted.total)
        anything = driver.config.select.method == "random"
        uncertain = new if anything else _uncertain(new, config, calibration, 2 * wanted.train)
    # Drawn from everything that is left, before anything is chosen: only so do they tell the error there.
    drawn = driver.rng(here.number, 1).permutation(len(new))[: SPARE * (wanted.valid + wanted.holdout)]
    write_structures(here.random, [marked(new[i]) for i in drawn])
    write_structures(here.pool, [marked(atoms) for atoms in uncertain])


def not_lost(
    frames: Sequence[Atoms], config: Explore, calibration: Calibration | None, known: Collection[str], wanted: int
) -> list[Atoms]:
    """New frames that the model met before it was lost; if it was from the start, the least uncertain ones it met."""
    found = collect(config.watch.not_lost(frames, calibration), None, known, config.min_distance)
    if len(found) >= wanted:
        return found
    return collect(sorted(frames, key=score_of), None, known, config.min_distance)[:wanted]


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
    found = run_md(uncertainty, start, config.dynamics(temperature), rules, seed)
    # Without velocities, and without what the model says of it, which is no label.
    frames = [bare(frame) for frame in found.frames]
    for kept, frame in zip(frames, found.frames, strict=True):
        kept.info = {**frame.info, "trajectory": name, "temperature": temperature}
    write_structures(output.structures, frames)
    ended = (None, None) if found.stopped is None else (found.stopped.rule, found.stopped.text)
    output.write(TrajectoryRecord(name, temperature, found.steps, len(frames), *ended))
