"""Trajectories of a network with the labels that its forces should have had."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import ase.io
import numpy as np
from ase import Atoms
from ase.calculators.calculator import CalculationFailed
from numpy.typing import NDArray

from adaptntk import (
    Fitted,
    build_molecule,
    load_fitted,
    read_structures,
    sample_md,
    verbs,
    write_structures,
)
from adaptntk.data.structures import FORCES
from adaptntk.evaluation import force_errors, summarise_errors
from adaptntk.md.dynamics import MDSettings, Monitor, run_md
from adaptntk.md.physical_rules import PHYSICAL_RULES
from adaptntk.md.rules import Observation, UncertaintyRule
from benchmarks.harness.experiment import log

# Trajectories of the reference, and labelled frames of each. A calibration speaks for structures drawn like its own, so
# it takes many independent trajectories, none of which the training saw.
TRAJECTORIES = {"train": (20, 20), "valid": (5, 20), "calibration": (80, 25), "test": (20, 1)}
# Steps between labelled frames of the reference.
SPACING = 40
COLD, HOT = 300, 1200
STEPS = 2000
PRESET = "small"
INTERVAL = 5


def prepare(folder: Path) -> Fitted:
    """Data, network and uncertainty, from the folder where they are there already."""
    model, ntk = folder / "ethanol.model", folder / "ethanol.ntk"
    seeds = itertools.count()
    for name, (trajectories, frames) in TRAJECTORIES.items():
        own = list(itertools.islice(seeds, trajectories))
        if not (folder / f"{name}.xyz").exists():
            log.info("%s: %d trajectories", name, trajectories)
            sampled = [sample_md(build_molecule("ethanol"), frames, COLD, interval=SPACING, seed=seed) for seed in own]
            write_structures(folder / f"{name}.xyz", [frame for run in sampled for frame in run])
    if not model.exists():
        verbs.train(train=folder / "train.xyz", valid=folder / "valid.xyz", output=model, preset=PRESET, resume=True)
    if not ntk.exists():
        train, valid, calibration = (folder / f"{name}.xyz" for name in ("train", "valid", "calibration"))
        verbs.fit(model=model, train=train, valid=valid, calibration=calibration, output=ntk)
    return load_fitted(ntk)


def typical_error(uncertainty: Fitted, frames: Sequence[Atoms]) -> float:
    """Root mean square force error over labelled structures like those of the training."""
    return summarise_errors(uncertainty.potential.predict(frames), frames).force_rmse


def recording(folder: Path, temperature: int, seed: int) -> Path:
    """Where a labelled trajectory is kept."""
    return folder / f"md-{temperature}-{seed}.xyz"


def record(folder: Path, uncertainty: Fitted, temperature: int, seed: int) -> list[Atoms]:
    """One labelled trajectory from a structure of the test set; frames that xTB cannot label end it."""
    path = recording(folder, temperature, seed)
    if not path.exists():
        start = read_structures(folder / "test.xyz")[seed]
        run = run_md(uncertainty, start, MDSettings(temperature, STEPS, interval=INTERVAL), PHYSICAL_RULES, seed)
        log.info("%s K, run %d: %s", temperature, seed, run.stopped or f"{run.steps} steps")
        write_structures(path, labelled(run.frames))
    return ase.io.read(path, ":")


def labelled(frames: Sequence[Atoms]) -> list[Atoms]:
    """Frames with xTB forces beside those of the network."""
    from tblite.ase import TBLite

    done = []
    reference = TBLite(method="GFN2-xTB", verbosity=0)
    for frame in frames:
        atoms = Atoms(numbers=frame.numbers, positions=frame.positions, calculator=reference)
        try:
            frame.arrays[FORCES] = atoms.get_forces()
        except CalculationFailed:
            log.info("xTB failed at step %d", frame.info["step"])
            break
        done.append(frame)
    return done


@dataclass(frozen=True)
class Recorded:
    """A labelled trajectory."""

    frames: Sequence[Atoms]

    @cached_property
    def errors(self) -> NDArray[np.float64]:
        """Root mean square force error of each frame, eV/Å."""
        return force_errors([frame.get_forces() for frame in self.frames], self.frames)

    @cached_property
    def observations(self) -> list[Observation]:
        """What a monitor would have seen."""
        return [
            Observation(
                i["step"],
                i["time"],
                frame,
                self.frames[0],
                i["temperature"],
                variance=i["ntk_variance"],
                sigma=i.get("forces_uncertainty"),
            )
            for frame in self.frames
            for i in [frame.info]
        ]

    def stopped_by(self, rule: UncertaintyRule, uncertainty: Fitted, stride: int) -> int | None:
        """The frame at which the rule ends the run, if it sees each ``stride``-th."""
        monitor = Monitor([rule], uncertainty.calibration)
        places = range(0, len(self.observations), stride)
        return next((n for n in places if monitor.observe(self.observations[n]) is not None), None)
