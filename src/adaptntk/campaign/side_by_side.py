"""Campaigns that differ only in how they select: ``adaptntk demo``, and the benchmark of whole campaigns."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ase import Atoms

from adaptntk.campaign.config import Overrides
from adaptntk.campaign.loop import run_campaign
from adaptntk.campaign.records import RoundSummary
from adaptntk.data.structures import write_structures
from adaptntk.data.xtb_md import build_molecule, sample_md
from adaptntk.errors import require
from adaptntk.files import write_text

log = logging.getLogger(__name__)

# Far from the seeds of campaigns.
FIRST_TEST_SEED = 1_000_000


@dataclass(frozen=True)
class Plan:
    """The size of the campaigns; test structures come from several trajectories."""

    temperature: float
    trajectories: int
    frames: int
    config: dict[str, Any]


PLANS = {
    "cpu": Plan(800.0, 10, 30, {
        "start": {"sampling": "normal_modes", "temperature": 800.0},
        "first": {"train": 20, "valid": 20, "holdout": 10},
        "round": {"train": 15, "valid": 2, "holdout": 3},
        "explore": {"temperatures": [800.0], "trajectories": 6, "steps": 500, "interval": 10, "patience": 10},
        "train": {"preset": "standard", "steps": 2000},
        "stop": {"rounds": 4},
    }),
    "smoke": Plan(400.0, 2, 10, {
        "start": {},
        "first": {"train": 8, "valid": 10, "holdout": 4},
        "round": {"train": 3, "valid": 1, "holdout": 2},
        "explore": {
            "temperatures": [400.0], "trajectories": 2, "steps": 60, "interval": 3, "coverage": 0.9,
            "patience": 12, "lost": 100.0, "min_distance": 0.01,
        },
        "train": {"preset": "tiny", "epochs": 3},
        "uncertainty": {"sketch_dim": 64},
        "stop": {"rounds": 2},
    }),
}  # fmt: skip


def find_plan(preset: str) -> Plan:
    """The plan of that name."""
    require(preset in PLANS, f"unknown preset {preset!r}: choose one of {', '.join(PLANS)}")
    return PLANS[preset]


@dataclass(frozen=True)
class Entrant:
    """One campaign of a comparison: a file that describes it, and the folder it runs in."""

    folder: Path
    method: str
    seed: int
    device: str

    @property
    def name(self) -> str:
        return f"{self.method}-{self.seed}"

    @property
    def config(self) -> Path:
        return self.folder / f"{self.name}.yaml"

    @property
    def run_folder(self) -> Path:
        return self.folder / "runs" / self.name

    @property
    def done(self) -> bool:
        """A finished campaign knows it by itself."""
        return False

    def run(self) -> None:
        """Run the campaign, or what is left of it."""
        run_campaign(self.config, True, Overrides("serial", device=self.device), on_round=self._report)

    def _report(self, summary: RoundSummary) -> None:
        assert summary.test is not None
        done, error = f"{self.name}, round {summary.round}", 1000 * summary.test.force_rmse
        log.info("%s: %d labels, force RMSE on the test structures %.0f meV/Å", done, summary.labels_spent, error)


def prepare_campaigns(plan: Plan, molecule: str, entrants: Sequence[Entrant]) -> None:
    """Write the file of each campaign and the test structures that all share and none sees."""
    for entrant in entrants:
        config = {"name": entrant.name, "seed": entrant.seed, "test": "test.xyz"} | plan.config
        config |= {"start": {"molecule": molecule, **plan.config["start"]}, "select": {"method": entrant.method}}
        path, text = entrant.config, yaml.safe_dump(config, sort_keys=False)
        same = not path.exists() or path.read_text() == text
        require(same, f"{path.parent}: holds campaigns of another plan (see {path.name}); choose another folder")
        write_text(path, text)
    test = entrants[0].folder / "test.xyz"
    if not test.exists():
        write_structures(test, _test_structures(plan, molecule))


def _test_structures(plan: Plan, molecule: str) -> list[Atoms]:
    count = plan.trajectories * plan.frames
    log.info("%d test structures: GFN2-xTB dynamics at %.0f K", count, plan.temperature)
    start = build_molecule(molecule)
    seeds = range(FIRST_TEST_SEED, FIRST_TEST_SEED + plan.trajectories)
    runs = [sample_md(start, plan.frames, plan.temperature, interval=20, seed=seed) for seed in seeds]
    return [frame for run in runs for frame in run]
