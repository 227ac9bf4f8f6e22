"""Labels of a round: some drawn at random, the others picked by the selection."""

import logging
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from ase import Atoms

from adaptntk.campaign.layout import RoundDirectory, read_own
from adaptntk.campaign.records import Pick, Picks
from adaptntk.campaign.steps.driver import Clock, Driver, timed
from adaptntk.campaign.steps.select import choose, pool_features
from adaptntk.data.structures import structure_hash
from adaptntk.labelers.record import Origin, Role

log = logging.getLogger(__name__)

DRAWN_AT_RANDOM: tuple[Role, ...] = ("valid", "holdout")


def label_round(driver: Driver, here: RoundDirectory) -> None:
    """Choose a batch, label it, and replace what failed by the next best, until it is complete."""
    with timed(here) as clock:
        supply = iter(read_own(here.random))
        with clock.of("label"):
            for role in DRAWN_AT_RANDOM:
                origin = Origin(round=here.number, role=role, chosen_by="random", number=0)
                label_random(driver, origin, getattr(driver.config.round, role), supply)
        pool = read_own(here.pool)
        if pool:
            _label_picks(driver, here, pool, clock)


def label_random(driver: Driver, origin: Origin, wanted: int, supply: Iterator[Atoms]) -> None:
    """Label structures in the order in which they were drawn, until so many of this round and role are there."""
    done = driver.run.given(origin.role) if origin.round == 0 else 0
    taken = 0
    while done < wanted:
        part: list[Atoms] = []
        for atoms in supply:
            part.append(replace(origin, number=taken + len(part)).mark(atoms))
            if len(part) == wanted - done:
                break
        if not part:
            log.warning("round %d: only %d of %d %s labels could be had", origin.round, done, wanted, origin.role)
            return
        taken += len(part)
        driver.label(part)
        done += sum(driver.run.files.label(atoms.info["hash"]).exists() for atoms in part)


def _label_picks(driver: Driver, here: RoundDirectory, pool: list[Atoms], clock: Clock) -> None:
    hashes = [structure_hash(atoms) for atoms in pool]
    place = {identity: index for index, identity in enumerate(hashes)}
    files, ntk = driver.run.files, driver.run.round(here.number - 1).ntk
    picks = here.picks.read() or Picks()
    features: np.ndarray | None = None
    while True:
        for wave in picks.waves:
            with clock.of("label"):
                driver.label([_asked_for(pool[place[pick.hash]], pick, driver, here) for pick in wave.picks])
        labelled = [place[pick.hash] for pick in picks.all if files.label(pick.hash).exists()]
        settled = files.settled() | {pick.hash for pick in picks.all}
        excluded = [identity in settled for identity in hashes]
        missing = min(driver.config.round.train - len(labelled), excluded.count(False))
        if missing <= 0:
            return
        with clock.of("select"):
            features = features if features is not None else pool_features(driver, ntk, pool)
            seed = driver.seed(here.number, len(picks.waves))
            found = driver.do(choose, ntk, features, missing, excluded, labelled, driver.config, seed)
        first = len(picks.all)
        picks = picks.followed_by(
            Pick(hashes[c.index], first + n, c.variance, c.information) for n, c in enumerate(found)
        )
        here.picks.write(picks)


def _asked_for(atoms: Atoms, pick: Pick, driver: Driver, here: RoundDirectory) -> Atoms:
    return Origin(
        round=here.number,
        role="train",
        chosen_by=driver.config.select.method,
        number=pick.number,
        score=pick.score,
        information=pick.information,
    ).mark(atoms)
