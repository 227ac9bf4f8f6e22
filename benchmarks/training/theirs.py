"""``mace_run_train`` with the settings that its documentation recommends, watched from outside.

It writes a checkpoint, with averaged weights, whenever its validation loss is the lowest so far (in stage two it begins
anew): what it would hand over. Both clocks are read while it runs, so that the time of such a file can be told in
seconds of the processor.
"""

import ctypes
import datetime
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adaptntk.data.structures import ENERGY, FORCES
from adaptntk.errors import InputError
from adaptntk.files import make_folder
from adaptntk.models.mace.family import MACEArchitecture
from adaptntk.models.mace.graph import mean_neighbours
from adaptntk.training.labelled import LabelledSet, untrained_network
from adaptntk.training.recipe import Recipe
from benchmarks.training.curve import Array, Frames, Point, Run, measure, moments

# Its README: ema, amsgrad (a default), a plateau scheduler (a default), and a second stage for the last quarter. What
# is not said here is left as it is: rate 0.01, decay 5e-7, weights 1 and 100, then 1000 and 100 at a rate of 0.001.
RECOMMENDED: dict[str, Any] = {"ema_decay": 0.99, "E0s": "average", "scaling": "rms_forces_scaling"}
FLAGS = ("ema", "amsgrad", "swa", "keep_checkpoints")
STAGE_TWO = 0.75
# Validating takes at most this share of the time; an evaluation costs a third of a step.
VALIDATION = 0.1
# Epochs of a run of which only the pace is wanted, and how long that may take.
ENDLESS, PACE_SECONDS = 1_000_000, 15.0
POLL = 0.2
# Of Linux (PR_SET_PDEATHSIG); looked up here, for between fork and exec little is allowed.
_process_control, _DEATH_SIGNAL = ctypes.CDLL(None).prctl, 1
STARTED = re.compile(r"^(\S+ \S+) INFO: Started training", re.MULTILINE)
ENDED = re.compile(r"^(\S+ \S+) INFO: Training complete", re.MULTILINE)
EPOCH = re.compile(r"^(\S+ \S+) INFO: Epoch (\d+):.*RMSE_F= *([\d.]+)", re.MULTILINE)
CHECKPOINT = re.compile(r"_epoch-(\d+)(?:_swa)?\.pt$")


@dataclass(frozen=True)
class Epoch:
    """A validation in its log: when, after which epoch, and the error of the forces."""

    when: float
    number: int
    force_rmse: float


def read_times(log: str) -> tuple[float | None, float | None, list[Epoch]]:
    """When its training began and ended on the clock (None if not yet), and its validations."""
    began, ended = (None if found is None else _stamp(found[1]) for found in (STARTED.search(log), ENDED.search(log)))
    return began, ended, [Epoch(_stamp(when), int(n), float(error)) for when, n, error in EPOCH.findall(log)]


def _stamp(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


@dataclass
class Clocks:
    """The clock on the wall and that of a process, side by side."""

    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def look(self, process: int) -> None:
        """Note both; the fields of ``stat`` after the name, which may hold blanks, begin with the third."""
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        self.wall.append(time.time())
        self.processor.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))

    def seconds(self, wall: float | Array) -> Array:
        """Of the processor, up to these moments."""
        return np.asarray(np.interp(wall, self.wall, self.processor))


def held(times: Array, looks: Array) -> list[int | None]:
    """Which of the networks that were written at ``times`` there was at each moment; None before the first."""
    places = np.searchsorted(times, looks, side="right") - 1
    return [int(place) if place >= 0 else None for place in places]


def superseded(times: Array, looks: Array) -> list[int]:
    """Which of them were followed by another before anybody looked."""
    next_look = np.searchsorted(looks, times)
    return np.flatnonzero(next_look[:-1] == next_look[1:]).tolist()


class Watch:
    """A run of ``mace_run_train`` in a folder of its own."""

    def __init__(self, options: dict[str, Any], folder: Path, looks: Array) -> None:
        self.folder, self.looks, self.clocks = make_folder(folder), looks, Clocks()
        words = [*(f"--{flag}" for flag in FLAGS), *(f"--{name}={value}" for name, value in options.items())]
        command = [sys.executable, "-W", "ignore", "-m", "mace.cli.run_train", *words, f"--work_dir={folder}"]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self.log_file = folder / "output.txt"
        with self.log_file.open("w") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, cwd=folder, env=os.environ | threads, preexec_fn=_end_with_parent
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def checkpoints(self) -> list[tuple[float, Path]]:
        """With the time on the clock at which each was there."""
        return sorted((path.stat().st_mtime, path) for path in self.folder.glob("checkpoints/*.pt"))

    def follow(self, limit: float = np.inf) -> None:
        """Until it has trained, or for so many seconds of the processor; what it does afterwards is not waited for."""
        try:
            while self.process.poll() is None:
                self.clocks.look(self.process.pid)
                began, ended, epochs = read_times(self.log)
                if began is not None:
                    self._thin(float(self.clocks.seconds(began)))
                    if ended or (len(epochs) >= 2 and self.spent(began) > limit):
                        return
                time.sleep(POLL)
        finally:
            self.process.kill()
            self.process.wait()
        if read_times(self.log)[1] is None:
            last = self.log.strip().splitlines() or ["no output"]
            raise InputError(f"mace_run_train failed: {last[-1]}")

    def spent(self, began: float) -> float:
        return self.clocks.processor[-1] - float(self.clocks.seconds(began))

    def _thin(self, began: float) -> None:
        """Remove checkpoints that were followed by another before anybody looked: they would fill the disk."""
        there = [(when, path) for when, path in self.checkpoints() if when <= self.clocks.wall[-1]]
        times = self.clocks.seconds(np.array([when for when, _ in there])) - began
        for place in superseded(times, self.looks):
            there[place][1].unlink()


def _end_with_parent() -> None:
    """A study that is killed leaves nobody behind, who would slow down those that come after it."""
    _process_control(_DEATH_SIGNAL, signal.SIGKILL)


def options_of(recipe: Recipe, batch_size: int, frames: Frames, folder: Path, seed: int) -> dict[str, Any]:
    """Same network, structures and batch size as ours; everything else as recommended."""
    network = recipe.architecture
    assert isinstance(network, MACEArchitecture)
    share = len(frames["valid"]) / (3 * len(frames["train"]))
    return RECOMMENDED | {
        "name": "theirs",
        "train_file": folder / "train.xyz",
        "valid_file": folder / "valid.xyz",
        "energy_key": ENERGY,
        "forces_key": FORCES,
        "hidden_irreps": network.hidden_irreps,
        "MLP_irreps": network.readout_irreps,
        "max_ell": network.max_ell,
        "correlation": network.correlation,
        "num_interactions": network.interactions,
        "r_max": network.cutoff,
        "radial_MLP": list(network.radial_mlp),
        "num_radial_basis": network.bessel_functions,
        "num_cutoff_basis": network.polynomial_cutoff,
        "interaction_first": "RealAgnosticInteractionBlock",
        "use_reduced_cg": True,
        "compute_avg_num_neighbors": False,
        "avg_num_neighbors": mean_neighbours(frames["train"], network.cutoff),
        "batch_size": batch_size,
        "valid_batch_size": batch_size,
        "eval_interval": int(np.ceil(share / VALIDATION)),
        "plot": False,
        "device": "cpu",
        "default_dtype": "float32",
        "seed": seed,
    }


def lasting(options: dict[str, Any], epochs: int) -> dict[str, Any]:
    """So many epochs, the last quarter of them stage two."""
    return options | {"max_num_epochs": epochs, "start_swa": max(1, round(STAGE_TWO * epochs))}


def run_theirs(recipe: Recipe, frames: Frames, files: Path, seed: int, seconds: float, folder: Path) -> Run:
    """Train as many epochs as fit, by the pace of a run that is stopped early."""
    potential = untrained_network(frames["train"], recipe, torch.float32, seed)
    batch_size = LabelledSet.make(potential, frames["train"]).batch_size(recipe)
    options = options_of(recipe, batch_size, frames, files.absolute(), seed)
    pace = Watch(lasting(options, ENDLESS), folder / "pace", moments(seconds))
    pace.follow(min(PACE_SECONDS, seconds / 5))
    epochs = epochs_within(seconds, pace.clocks, read_times(pace.log)[2])
    watch = Watch(lasting(options, epochs), folder / "race", moments(seconds))
    watch.follow()
    began, ended, validations = read_times(watch.log)
    assert began is not None
    assert ended is not None
    kept = watch.checkpoints()
    start, end = watch.clocks.seconds(began), watch.clocks.seconds(ended) - watch.clocks.seconds(began)
    times = watch.clocks.seconds(np.array([when for when, _ in kept])) - start
    looks = np.append(watch.looks[watch.looks < end], end)
    walls = np.interp(looks + start, watch.clocks.processor, watch.clocks.wall) - began
    errors: dict[int, dict[str, float]] = {}
    points = []
    for look, wall, place in zip(looks, walls, held(times, looks), strict=True):
        if place is not None:
            if place not in errors:
                load_weights(potential.module, kept[place][1])
                errors[place] = measure(potential, frames["test"])
            points.append(Point(float(look), float(wall), **errors[place]))
    _check_same_network(kept[-1][1], measure(potential, frames["valid"])["force_rmse"], validations)
    return Run(
        points,
        measure(potential, frames["train"]),
        epochs * (len(frames["train"]) // batch_size),
        sum(parameter.numel() for parameter in potential.module.parameters()),
        {"epochs": epochs, "options": {name: str(value) for name, value in lasting(options, epochs).items()}},
    )


def load_weights(module: torch.nn.Module, checkpoint: Path) -> None:
    """Of a checkpoint into the same network; energies of atoms have a dimension more there, for several heads."""
    weights, shapes = torch.load(checkpoint, weights_only=True)["model"], module.state_dict()
    module.load_state_dict({name: value.reshape(shapes[name].shape) for name, value in weights.items()})


def epochs_within(seconds: float, clocks: Clocks, validations: list[Epoch]) -> int:
    """How many fit, by the pace between the first validation and the last; up to it everything is being compiled."""
    first, last = validations[0], validations[-1]
    spent = clocks.seconds(last.when) - clocks.seconds(first.when)
    return max(2, round(seconds * (last.number - first.number) / float(spent)))


def _check_same_network(checkpoint: Path, error: float, validations: list[Epoch]) -> None:
    """What we measure of its last checkpoint must be what it measured itself."""
    found = CHECKPOINT.search(checkpoint.name)
    assert found is not None
    told = next(epoch.force_rmse for epoch in validations if epoch.number == int(found[1]))
    if not abs(error - told) <= 0.01 + 1e-3 * told:
        raise InputError(f"{checkpoint.name}: the force RMSE is {error:.2f} meV/Å here, but {told:.2f} in its log")
