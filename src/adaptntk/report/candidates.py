"""Which candidates of a run are worth showing in the viewer, and reading only those."""

import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ase.io
import numpy as np
from ase import Atoms

from adaptntk.campaign.layout import ROLES
from adaptntk.campaign.records import Pick
from adaptntk.campaign.snapshot import RunSnapshot
from adaptntk.files import damaged
from adaptntk.labelers.record import read_info

MAX_STRUCTURES = 2000
# An atom takes about 30 bytes in the page before compression: the browser holds 6 MB of structures at most.
MAX_ATOMS = 200_000


@dataclass(frozen=True)
class Candidate:
    """One structure of a pool: where it stands in the file, and what became of it."""

    path: Path
    offset: int
    atoms: int
    number: int
    round: int
    info: dict[str, Any]
    pick: Pick | None = None
    fate: str = ""

    @property
    def hash(self) -> str:
        """Its identity, as in the names of label files."""
        return str(self.info.get("hash", ""))

    def read(self) -> Atoms:
        """The structure itself."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            text = b"".join(file.readline() for _ in range(self.atoms + 2))
        return ase.io.read(io.StringIO(text.decode()), format="extxyz")


def list_candidates(run: RunSnapshot) -> list[Candidate]:
    """All candidates of all rounds that have an uncertainty."""
    roles = {label.hash: label.role for label in run.labels}
    quarantined = {entry.hash for entry in run.quarantine}

    def fate(name: str, picked: bool) -> str:
        if name in roles:
            return "picked" if picked else f"labelled for {ROLES[roles[name]]}"
        if name in quarantined:
            return "label failed"
        return "waits for its label" if picked else "not picked"

    found = []
    for entry in run.rounds:
        picks = {pick.hash: pick for pick in entry.picks}
        for candidate in _readable(entry.files.pool, entry.number):
            pick = picks.get(candidate.hash)
            found.append(replace(candidate, pick=pick, fate=fate(candidate.hash, pick is not None)))
    return found


def worth_showing(
    candidates: list[Candidate], max_structures: int = MAX_STRUCTURES, max_atoms: int = MAX_ATOMS
) -> list[Candidate]:
    """As many as a page can hold: picks first, then others, each evenly spaced over rounds and pools."""
    if not candidates:
        return []
    picked = [index for index, candidate in enumerate(candidates) if candidate.pick]
    others = [index for index, candidate in enumerate(candidates) if not candidate.pick]
    # By the mean size: a few structures more or less do not matter.
    room = min(max_structures, max(1, int(max_atoms / np.mean([candidate.atoms for candidate in candidates]))))
    shown = _evenly(picked, room)
    shown += _evenly(others, room - len(shown))
    return [candidates[index] for index in sorted(shown)]


def _evenly(indices: list[int], count: int) -> list[int]:
    if len(indices) <= count:
        return indices
    return [indices[i] for i in np.linspace(0, len(indices) - 1, count).round().astype(int)] if count > 0 else []


def _readable(pool: Path, in_round: int) -> list[Candidate]:
    try:
        return list(_scan(pool, in_round)) if pool.exists() else []
    except ValueError as error:
        raise damaged(pool, error) from None


def _scan(pool: Path, in_round: int) -> Iterator[Candidate]:
    """Count lines and read comments only: a pool may hold a hundred thousand structures."""
    with pool.open("rb") as file:
        number = 0
        while True:
            offset = file.tell()
            heading = file.readline()
            if not heading.strip():
                return
            atoms = int(heading)
            info = read_info(file.readline().decode())
            for _ in range(atoms):
                file.readline()
            if "ntk_variance" in info:
                yield Candidate(pool, offset, atoms, number, in_round, info)
            number += 1
