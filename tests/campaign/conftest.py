"""A small campaign, and the run that nobody interrupted."""

import json
from pathlib import Path

import pytest
import yaml

from adaptntk.campaign.loop import run_campaign
from adaptntk.models.registry import load_potential
from tests.report.conftest import run_folder  # noqa: F401

SMALL = {
    "name": "water",
    "start": {"molecule": "water"},
    "first": {"train": 8, "valid": 10, "holdout": 4},
    "round": {"train": 3, "valid": 1, "holdout": 2},
    "explore": {
        "temperatures": [200.0, 400.0], "trajectories": 1, "steps": 60, "interval": 3, "coverage": 0.9, "patience": 12,
        "min_distance": 0.01,
    },
    "train": {"preset": "tiny", "epochs": 4},
    "uncertainty": {"sketch_dim": 64},
    "stop": {"rounds": 2},
    "execution": {"executor": "serial", "device": "cpu"},
}  # fmt: skip


def write_config(folder: Path, **changes) -> Path:
    """The small campaign with some sections changed field by field."""
    content = dict(SMALL)
    for section, fields in changes.items():
        content[section] = {**content.get(section, {}), **fields} if isinstance(fields, dict) else fields
    path = folder / "campaign.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def outcome(run: Path) -> dict:
    """What must be the same: picks, labels, errors, and the last model, to the byte."""
    rounds = sorted((run / "rounds").iterdir())
    return {
        "picks": [json.loads(p.read_text()) for r in rounds if (p := r / "picks.json").exists()],
        "rounds": [json.loads((r / "round.json").read_text()) for r in rounds],
        "labels": sorted(path.name for path in (run / "labels").glob("*.xyz")),
        "quarantine": sorted(path.name for path in (run / "quarantine").glob("*.json")),
        "weights": [tensor.tolist() for _, tensor in load_potential(rounds[-1] / "model.model", "cpu").parameters()],
        "model": (rounds[-1] / "model.model").read_bytes(),
        "verdict": json.loads((run / "verdict.json").read_text()),
    }


@pytest.fixture(scope="session")
def reference(shared) -> Path:
    """The run directory of the small campaign."""
    folder = shared("campaign", lambda folder: run_campaign(write_config(folder)))
    return folder / "runs" / "water"
