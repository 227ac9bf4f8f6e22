"""The interactive viewer of a report: chemiscope's script and data as text that stands in the page itself."""

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from typing import Any

import numpy as np
from ase import Atoms

from adaptntk.campaign.snapshot import RunSnapshot
from adaptntk.report.candidates import MAX_STRUCTURES, Candidate, list_candidates, worth_showing

UNCERTAINTY = "uncertainty"
DECIMALS = 3  # Å: what an eye can see


@dataclass(frozen=True)
class Viewer:
    """What the page needs; script and dataset are compressed, in base64."""

    script: str
    dataset: str
    shown: int
    picks_shown: int
    total: int
    picks_total: int
    licence: str
    version: str


def build_viewer(run: RunSnapshot, max_structures: int = MAX_STRUCTURES) -> Viewer | None:
    """Pool and picks of all rounds; None where no round has scored candidates yet."""
    candidates = list_candidates(run)
    shown = worth_showing(candidates, max_structures)
    if not shown:
        return None
    dataset = viewer_dataset(run.name, shown)
    return Viewer(
        _packed(resources.files("chemiscope").joinpath("sphinx/static/chemiscope.min.js").read_bytes()),
        _packed(json.dumps(dataset, allow_nan=False, separators=(",", ":")).encode()),
        len(shown),
        sum(candidate.pick is not None for candidate in shown),
        len(candidates),
        sum(candidate.pick is not None for candidate in candidates),
        _licence(),
        metadata.version("chemiscope"),
    )


def viewer_dataset(name: str, shown: Sequence[Candidate]) -> dict[str, Any]:
    """The input of chemiscope: a map of uncertainty against the step of the dynamics, and the structures."""
    from chemiscope import create_input, quick_settings

    frames = [_bare(candidate.read()) for candidate in shown]
    properties = viewer_properties(shown)
    settings = quick_settings(
        x="MD step" if "MD step" in properties else "candidate",
        y=UNCERTAINTY,
        map_color=UNCERTAINTY,
        symbol="fate",
        periodic=any(atoms.pbc.any() for atoms in frames),
        map_settings={"color": {"property": UNCERTAINTY, "palette": "viridis"}},
    )
    # The first structure shown is the most uncertain one.
    settings["pinned"] = [int(np.argmax(properties[UNCERTAINTY]["values"]))]
    dataset: dict[str, Any] = create_input(
        structures=frames, metadata={"name": name}, properties=properties, settings=settings
    )
    return dataset


def viewer_properties(shown: Sequence[Candidate]) -> dict[str, dict[str, Any]]:
    """What is known of every structure; a quantity that some of them lack is left out."""
    columns: dict[str, tuple[list[Any], str, str]] = {
        UNCERTAINTY: (
            _thousandfold(_column(shown, "forces_uncertainty")),
            "meV/Å",
            "predicted root mean square force error",
        ),
        "score U": (_column(shown, "ntk_variance"), "", "NTK variance before the batch was chosen"),
        "round": ([candidate.round for candidate in shown], "", "round in which it was a candidate"),
        "candidate": ([candidate.number for candidate in shown], "", "position in the pool of its round"),
        "MD step": (_column(shown, "step"), "", "step of the molecular dynamics"),
        "temperature": (_column(shown, "temperature"), "K", "of the molecular dynamics"),
        "fate": ([candidate.fate for candidate in shown], "", "whether it was picked and labelled"),
        "trajectory": (
            [str(candidate.info.get("trajectory", "none")) for candidate in shown],
            "",
            "the dynamics that it came from",
        ),
    }
    if not all(value is not None for value in columns[UNCERTAINTY][0]):
        # A round without calibration has scores only; they colour the map then.
        columns[UNCERTAINTY] = (columns.pop("score U")[0], "", "NTK variance (no calibrated uncertainty in some round)")
    return {
        name: {"target": "structure", "values": values, "description": description, **({"units": unit} if unit else {})}
        for name, (values, unit, description) in columns.items()
        if all(value is not None for value in values)
    }


def _column(shown: Sequence[Candidate], key: str) -> list[Any]:
    values = [candidate.info.get(key) for candidate in shown]
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _thousandfold(values: list[Any]) -> list[Any]:
    return [None if value is None else 1000 * value for value in values]


def _bare(atoms: Atoms) -> Atoms:
    """Species and rounded positions only, so that no other array swells the page."""
    return Atoms(atoms.numbers, atoms.positions.round(DECIMALS), cell=atoms.cell, pbc=atoms.pbc)


def _packed(content: bytes) -> str:
    # mtime=0: the same content gives the same page.
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def _licence() -> str:
    """Terms of the script and of what it contains; they must go wherever the page goes."""
    files = [path for path in metadata.files("chemiscope") or [] if "licen" in path.name.lower()]
    return "\n\n".join(path.read_text().strip() for path in files)
