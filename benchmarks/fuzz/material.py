"""What cases are made from: a tiny network of water, its uncertainty, a store, a finished campaign."""

import csv
import gzip
import shutil
from dataclasses import dataclass
from pathlib import Path

import ase.io
import numpy as np
import yaml
from typer.testing import CliRunner

from adaptntk.cli.app import app
from benchmarks.fuzz.case import WrongOutputError

CAMPAIGN = {
    "name": "water",
    "start": {"molecule": "water"},
    "first": {"train": 6, "valid": 10, "holdout": 4},
    "round": {"train": 2, "valid": 1, "holdout": 1},
    "explore": {
        "temperatures": [300.0], "trajectories": 1, "steps": 30, "interval": 3, "coverage": 0.9, "patience": 12,
        "min_distance": 0.01,
    },
    "train": {"preset": "tiny", "epochs": 1},
    "uncertainty": {"sketch_dim": 16},
    "stop": {"rounds": 1},
    "execution": {"executor": "serial", "device": "cpu"},
}  # fmt: skip
PARTS = {"train": 16, "valid": 14, "test": 24, "pool": 8}
SCORES = ("ntk_variance", "forces_uncertainty", "energy_uncertainty", "forces_error_bound")


@dataclass(frozen=True)
class Material:
    """Files that cases copy and change."""

    folder: Path

    def copy(self, folder: Path, *names: str) -> None:
        """Copies of files or folders."""
        for name in names:
            source = self.folder / name
            if source.is_dir():
                shutil.copytree(source, folder / name, symlinks=True)
            else:
                shutil.copyfile(source, folder / name)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()

    def bytes(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def frames(self, part: str) -> list[ase.Atoms]:
        return ase.io.read(self.folder / f"{part}.xyz", ":")


def prepare(folder: Path) -> Material:
    """Make everything, in some seconds."""

    def succeed(*words: object) -> None:
        result = CliRunner().invoke(app, [str(word) for word in words])
        if result.exit_code:
            raise RuntimeError(f"adaptntk {' '.join(map(str, words))}: {result.output}") from result.exception

    parts = [word for part, size in PARTS.items() for word in (f"--{part}", size)]
    succeed("data", "md", "water", "-o", folder, "--interval", 10, *parts)
    (folder / "pool.xyz.gz").write_bytes(gzip.compress((folder / "pool.xyz").read_bytes()))
    sets = "--train", folder / "train.xyz", "--valid", folder / "valid.xyz", "--device", "cpu"
    model = folder / "water.model"
    succeed("train", *sets, "-o", model, "--preset", "tiny", "--epochs", 4)
    succeed("fit", model, *sets, "-o", folder / "water.ntk", "--sketch-dim", 16)
    succeed("fit", model, *sets, "-o", folder / "water.uq", "--method", "last_layer")
    scored = "score", folder / "water.ntk", folder / "pool.xyz", "-o", folder / "scored.xyz"
    succeed(*scored, "--store", folder / "store")
    (folder / "campaign.yaml").write_text(yaml.safe_dump(CAMPAIGN, sort_keys=False))
    succeed("run", folder / "campaign.yaml")
    return Material(folder)


def check_scores(path: Path, count: int | None, like: Path | None = None) -> None:
    """Scores of so many frames, all finite, and the same as in another file."""
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            found = list(csv.DictReader(file))
    else:
        found = [frame.info for frame in ase.io.read(path, ":")]
    if count is not None and len(found) != count:
        raise WrongOutputError(f"{len(found)} frames in {path.name}, {count} in the input")
    for index, info in enumerate(found):
        for name in SCORES:
            if name in info and not np.isfinite(float(info[name])):
                raise WrongOutputError(f"frame {index}: {name} is {info[name]}")
    if like is not None:
        wanted = [frame.info for frame in ase.io.read(like, ":")]
        for name in SCORES[:2]:
            if not np.allclose(
                [float(info[name]) for info in found], [info[name] for info in wanted], rtol=1e-3, atol=0
            ):
                raise WrongOutputError(f"{name} differs from what an undamaged file gives")
