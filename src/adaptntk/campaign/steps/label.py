"""Labels of a round: some drawn at random, the others picked by the selection from a pool of candidates."""

import itertools
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms

from adaptntk.campaign.config import Campaign
from adaptntk.campaign.layout import RoundDirectory, read_own
from adaptntk.campaign.records import Pick, Picks
from adaptntk.campaign.steps.driver import Driver, Timer, timed
from adaptntk.campaign.steps.learn import load_ntk
from adaptntk.core.blocks import TensorBlocks
from adaptntk.core.posterior import sequential_variances
from adaptntk.core.selection.problem import Constraints, Problem
from adaptntk.core.selection.registry import select
from adaptntk.data.geometry import fused_atoms
from adaptntk.data.structures import structure_hash
from adaptntk.errors import AdaptNTKError, require
from adaptntk.labelers.process import Request, label_structure
from adaptntk.labelers.record import GIVEN, Origin, Role, labels_bought

log = logging.getLogger(__name__)

DRAWN_AT_RANDOM: tuple[Role, ...] = ("valid", "holdout")
# Structures whose features are computed in one job: the same for every executor, because rows differ in their last
# digits with the structures they are computed beside.
SHARD = 128
# Failures before the first label after which a campaign pauses.
FIRST_FAILURES = 3


def label_round(driver: Driver, here: RoundDirectory, features: np.ndarray | None = None) -> None:
    """Choose a batch, label it, and replace what failed by the next best, until it is complete.

    ``features`` are those of the candidates, where they are known already.
    """
    with retried_after_a_pause(driver, here), timed(here) as step:
        supply = iter(read_own(here.random))
        with step("label"):
            for role in DRAWN_AT_RANDOM:
                origin = Origin(round=here.number, role=role, chosen_by="random", number=0)
                label_random(driver, origin, getattr(driver.config.round, role), supply)
        pool = read_own(here.pool)
        if pool:
            _label_picks(driver, here, pool, step, features)


class LabelerError(AdaptNTKError):
    """So many labels failed in a row that it cannot be the structures."""


@contextmanager
def retried_after_a_pause(driver: Driver, here: RoundDirectory) -> Iterator[None]:
    """Structures that failed while the labeler was down stay out of quarantine, and are asked for again."""
    try:
        yield
    except LabelerError:
        failed = {structure_hash(request.atoms) for request in driver.streak}
        waves = (here.picks.read() or Picks()).waves
        # Picks that took the place of others because of it are not wanted any more.
        while waves and all(pick.hash in failed for pick in waves[-1].picks):
            waves = waves[:-1]
        if here.picks.path.exists():
            here.picks.write(Picks(waves))
        for request in driver.streak:
            request.failure.remove()
        raise


def label_structures(driver: Driver, frames: Sequence[Atoms]) -> None:
    """Label structures, or put them into quarantine; those that are settled cost nothing.

    Pauses the campaign when failures in a row say that something is wrong with the labeler: a few of the first labels,
    or more of the later ones.
    """
    spec = driver.config.label.spec
    requests = [Request(spec, atoms, driver.run.path) for atoms in frames]
    while waiting := [request for request in requests if not request.settled]:
        proven = labels_bought(driver.run.label_records()) > 0
        limit = driver.config.label.pause_after if proven else min(FIRST_FAILURES, driver.config.label.pause_after)
        futures: dict[Future[Any], Request] = {}
        # Until one has worked each is tried alone: a labeler that is down shall not be asked a hundred times.
        work = _labelled(driver, waiting if proven else waiting[:1], futures)
        for request in driver.progress(work, "labels", len(waiting)):
            _count(driver, request)
            if len(driver.streak) >= limit:
                break
        # What has not begun may stay so; what has may yet show that the labeler is well.
        for future in [future for future in futures if not future.cancel()]:
            future.result()
            _count(driver, futures[future])
        if len(driver.streak) >= limit:
            last = driver.streak[-1].failure.get().attempts[-1].error
            raise LabelerError(
                f"the labeler failed {len(driver.streak)} times in a row (last: {last}): paused; mend it and go on "
                "with adaptntk run --resume, which tries these structures again"
            )


def _labelled(driver: Driver, requests: Sequence[Request], futures: dict[Future[Any], Request]) -> Iterator[Request]:
    """Each request once it is settled; those under way stand in ``futures``."""
    for request in requests:
        futures[driver.executor.submit(label_structure, request)] = request
        for future in [future for future in futures if future.done()]:  # at once, in this process
            future.result()
            yield futures.pop(future)
    for future in as_completed(list(futures)):
        future.result()
        yield futures.pop(future)


def _count(driver: Driver, request: Request) -> None:
    if request.label_file.exists():
        driver.streak.clear()
    elif fused_atoms(request.atoms, request.spec.closest) is None:  # else nobody was asked
        driver.streak.append(request)


def label_random(driver: Driver, origin: Origin, wanted: int, supply: Iterator[Atoms]) -> None:
    """Label structures in the order in which they were drawn, until so many of this round and role are there."""
    had = [label.chosen_by == GIVEN and label.role == origin.role for label in driver.run.label_records()]
    done, taken = sum(had) if origin.round == 0 else 0, itertools.count()
    while done < wanted:
        drawn = itertools.islice(supply, wanted - done)
        part = [replace(origin, number=next(taken)).mark(atoms) for atoms in drawn]
        if not part:
            log.warning("round %d: only %d of %d %s labels could be had", origin.round, done, wanted, origin.role)
            return
        label_structures(driver, part)
        done += sum(driver.run.files.label(atoms.info["hash"]).exists() for atoms in part)


def _label_picks(
    driver: Driver, here: RoundDirectory, pool: list[Atoms], step: Timer, features: np.ndarray | None
) -> None:
    hashes = [structure_hash(atoms) for atoms in pool]
    place = {identity: index for index, identity in enumerate(hashes)}
    files, ntk = driver.run.files, driver.run.round(here.number - 1).ntk
    picks = here.picks.read() or Picks()
    known = all(pick.hash in place for pick in picks.all)
    require(known, f"{here.picks.path}: names a structure that {here.pool.name} does not hold; put the old files back")
    while True:
        for wave in picks.waves:
            with step("label"):
                label_structures(
                    driver, [_asked_for(pool[place[pick.hash]], pick, driver, here) for pick in wave.picks]
                )
        labelled = [place[pick.hash] for pick in picks.all if files.label(pick.hash).exists()]
        settled = files.settled() | {pick.hash for pick in picks.all}
        excluded = [identity in settled for identity in hashes]
        missing = min(driver.config.round.train - len(labelled), excluded.count(False))
        if missing <= 0:
            return
        with step("select"):
            features = features if features is not None else pool_features(driver, ntk, pool)
            seed = driver.seed(here.number, len(picks.waves))
            found = driver.do(choose, ntk, features, missing, excluded, labelled, driver.config, seed)
        numbers = itertools.count(len(picks.all))
        picks = picks.followed_by(Pick(hashes[index], next(numbers), *values) for index, *values in found)
        here.picks.write(picks)


def _asked_for(atoms: Atoms, pick: Pick, driver: Driver, here: RoundDirectory) -> Atoms:
    asked = Origin(round=here.number, role="train", chosen_by=driver.config.select.method, number=pick.number)
    return replace(asked, score=pick.score, information=pick.information).mark(atoms)


def pool_features(driver: Driver, ntk: Path, pool: Sequence[Atoms]) -> np.ndarray:
    """Feature blocks of all candidates, computed side by side."""
    device = driver.config.execution.device
    shards = [(ntk, pool[i : i + SHARD], device) for i in range(0, len(pool), SHARD)]
    return np.concatenate(driver.map(shard_features, shards, "features"))


def shard_features(ntk: Path, frames: Sequence[Atoms], device: str) -> np.ndarray:
    """Feature blocks of a part of the pool: structures x rows x width."""
    fitted = load_ntk(ntk, device)
    assert fitted.features is not None
    return fitted.features.extract(fitted.potential, frames, "pool").tensor.cpu().numpy()


def choose(
    ntk: Path, blocks: np.ndarray, count: int, excluded: list[bool], labelled: list[int], config: Campaign, seed: int
) -> list[tuple[int, float, float]]:
    """The next picks, given that some were picked and labelled already.

    Of each its place in the pool, its U given all picks before it, and what its label is expected to tell.
    """
    fitted = load_ntk(ntk, config.execution.device)
    features = fitted.features
    assert features is not None
    pool = TensorBlocks(torch.as_tensor(blocks, device=fitted.potential.device), features.blocks.asked)
    if labelled:
        features = features.condition(pool.tensor[labelled])
    problem = Problem.of_features(features.posterior, features.blocks, pool, count, Constraints(excluded), seed)
    found = select(config.select.method, problem)
    # U given everything before the pick, whatever the rule maximises: what the label is expected to tell.
    picks = TensorBlocks(pool.tensor[found.indices], pool.asked)
    variances = sequential_variances(features.posterior, picks).tolist()
    told = [float(np.log1p(variance / features.posterior.lam)) for variance in variances]
    return list(zip(found.indices, variances, told, strict=True))
