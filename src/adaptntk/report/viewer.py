"""The interactive viewer of a report: which candidates of a run it shows, as text that stands in the page itself."""

import base64
import gzip
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata, resources
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import ase.io
import numpy as np
from ase import Atoms

from adaptntk.campaign.layout import ROLES, RunSnapshot
from adaptntk.campaign.records import Pick
from adaptntk.files import damaged
from adaptntk.labelers.record import read_info
from adaptntk.uncertainty.method import OF_ATOMS as KEY_OF_ATOMS

Item = TypeVar("Item")

MAX_STRUCTURES = 2000
# An atom takes about 30 bytes in the page before compression: the browser holds 6 MB of structures at most.
MAX_ATOMS = 200_000
UNCERTAINTY = "uncertainty"
OF_ATOMS = "uncertainty of the atom"
VIEW = 3.5  # Å around an atom that is looked at
DECIMALS = 3  # Å: what an eye can see


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
        try:
            pool = list(_scan(entry.files.pool, entry.number)) if entry.files.pool.exists() else []
        except ValueError as error:
            raise damaged(entry.files.pool, error) from None
        for candidate in pool:
            pick = picks.get(candidate.hash)
            found.append(replace(candidate, pick=pick, fate=fate(candidate.hash, pick is not None)))
    return found


def _scan(pool: Path, in_round: int) -> Iterator[Candidate]:
    """Count lines and read comments only: a pool may hold a hundred thousand structures."""
    number = 0
    with pool.open("rb") as file:
        while (heading := file.readline()).strip():
            offset, atoms = file.tell() - len(heading), int(heading)
            info = read_info(file.readline().decode())
            for _ in range(atoms):
                file.readline()
            if "ntk_variance" in info:
                yield Candidate(pool, offset, atoms, number, in_round, info)
            number += 1


def worth_showing(candidates: list[Candidate], max_structures: int = MAX_STRUCTURES) -> list[Candidate]:
    """As many as a page can hold: picks first, then others, each evenly spaced over rounds and pools."""
    if not candidates:
        return []
    picked = [index for index, candidate in enumerate(candidates) if candidate.pick]
    others = [index for index, candidate in enumerate(candidates) if not candidate.pick]
    # By the mean size: a few structures more or less do not matter.
    room = min(max_structures, max(1, int(MAX_ATOMS / np.mean([candidate.atoms for candidate in candidates]))))
    shown = evenly(picked, room)
    shown += evenly(others, room - len(shown))
    return [candidates[index] for index in sorted(shown)]


def evenly(items: Sequence[Item], count: int) -> list[Item]:
    """As many of them at most, from the first to the last."""
    if len(items) <= count:
        return list(items)
    return [items[i] for i in np.linspace(0, len(items) - 1, count).round().astype(int)] if count > 0 else []


class Viewer(NamedTuple):
    """What the page needs; script and dataset are compressed, in base64."""

    script: str
    dataset: str
    shown: int
    picks_shown: int
    total: int
    picks_total: int
    licence: str
    version: str
    of_atoms: bool


def build_viewer(run: RunSnapshot, max_structures: int = MAX_STRUCTURES) -> Viewer | None:
    """Pool and picks of all rounds; None where no round has scored candidates yet."""
    candidates = list_candidates(run)
    shown = worth_showing(candidates, max_structures)
    if not shown:
        return None
    script = resources.files("chemiscope").joinpath("sphinx/static/chemiscope.min.js").read_bytes()
    content = viewer_dataset(run.name, shown)
    dataset = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    picks_shown, picks_total = (sum(c.pick is not None for c in part) for part in (shown, candidates))
    # Terms of the script and of what it contains must go wherever the page goes.
    licences = [path for path in metadata.files("chemiscope") or [] if "licen" in path.name.lower()]
    terms = "\n\n".join(path.read_text().strip() for path in licences), metadata.version("chemiscope")
    counts = len(shown), picks_shown, len(candidates), picks_total
    return Viewer(_packed(script), _packed(dataset), *counts, *terms, OF_ATOMS in content["properties"])


def _packed(content: bytes) -> str:
    # mtime=0: the same content gives the same page.
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def viewer_dataset(name: str, shown: Sequence[Candidate]) -> dict[str, Any]:
    """The input of chemiscope: a map of uncertainty against the step of the dynamics, and the structures."""
    from chemiscope import create_input, quick_settings

    properties = _viewer_properties(shown)
    # Species and rounded positions only, so that no other array swells the page.
    found = [candidate.read() for candidate in shown]
    of_atoms = _atom_properties(found)
    frames = [Atoms(a.numbers, a.positions.round(DECIMALS), cell=a.cell, pbc=a.pbc) for a in found]
    settings = quick_settings(
        x="MD step" if "MD step" in properties else "candidate",
        y=UNCERTAINTY,
        map_color=UNCERTAINTY,
        symbol="fate",
        periodic=any(atoms.pbc.any() for atoms in frames),
        map_settings={"color": {"property": UNCERTAINTY, "palette": "viridis"}},
        structure_settings={"color": {"property": OF_ATOMS, "palette": "viridis"}} if of_atoms else None,
    )
    # The first structure shown is the most uncertain one.
    settings["pinned"] = [int(np.argmax(properties[UNCERTAINTY]["values"]))]
    content: dict[str, Any] = {"metadata": {"name": name}, "properties": properties | of_atoms, "settings": settings}
    if of_atoms:  # every atom is one that can be coloured
        content["environments"] = [(s, a, VIEW) for s, atoms in enumerate(frames) for a in range(len(atoms))]
    dataset: dict[str, Any] = create_input(structures=frames, **content)
    return dataset


def _atom_properties(frames: Sequence[Atoms]) -> dict[str, dict[str, Any]]:
    """The uncertainty of each atom's force, where all structures have it."""
    if not all(KEY_OF_ATOMS in atoms.arrays for atoms in frames):
        return {}
    values = np.concatenate([1000 * atoms.arrays[KEY_OF_ATOMS] for atoms in frames]).round(1).tolist()
    description = "predicted root mean square error of a component of the force on the atom"
    return {OF_ATOMS: {"target": "atom", "values": values, "units": "meV/Å", "description": description}}


def _viewer_properties(shown: Sequence[Candidate]) -> dict[str, dict[str, Any]]:
    """What is known of every structure; a quantity that some of them lack is left out."""

    def column(key: str, factor: float = 1) -> list[Any]:
        values = [c.info.get(key) for c in shown]
        return [None if value is None else factor * np.asarray(value).item() for value in values]

    columns: dict[str, tuple[list[Any], str, str]] = {
        UNCERTAINTY: (column("forces_uncertainty", 1000), "meV/Å", "predicted root mean square force error"),
        "score U": (column("ntk_variance"), "", "NTK variance before the batch was chosen"),
        "round": ([c.round for c in shown], "", "round in which it was a candidate"),
        "candidate": ([c.number for c in shown], "", "position in the pool of its round"),
        "MD step": (column("step"), "", "step of the molecular dynamics"),
        "temperature": (column("temperature"), "K", "of the molecular dynamics"),
        "fate": ([c.fate for c in shown], "", "whether it was picked and labelled"),
        "trajectory": ([str(c.info.get("trajectory", "none")) for c in shown], "", "the dynamics that it came from"),
    }
    if None in columns[UNCERTAINTY][0]:
        # A round without calibration has scores only; they colour the map then.
        columns[UNCERTAINTY] = (columns.pop("score U")[0], "", "NTK variance (no calibrated uncertainty in some round)")
    return {
        name: {"target": "structure", "values": values, "description": description, **({"units": unit} if unit else {})}
        for name, (values, unit, description) in columns.items()
        if None not in values
    }
