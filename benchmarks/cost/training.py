"""``python -m benchmarks training``: an epoch of ours against one of ``mace_run_train``, same network and data."""

import dataclasses
import datetime
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ase import Atoms

from adaptntk.cli.console import show_progress
from adaptntk.data.structures import ENERGY, FORCES, write_structures
from adaptntk.errors import InputError
from adaptntk.files import make_folder
from adaptntk.models.mace.family import PAPER, SMALL, TINY, MACEArchitecture
from adaptntk.training.loop import LapReport, train
from adaptntk.training.recipe import Recipe
from benchmarks.data.sources import given_frames
from benchmarks.harness.experiment import find_plan
from benchmarks.harness.record import save_record
from benchmarks.settings import Training


@dataclasses.dataclass(frozen=True)
class Case:
    """One network and how long it is trained."""

    architecture: MACEArchitecture
    train: int
    valid: int
    batch_size: int
    epochs: int
    learning_rate: float


PLANS = {
    "full": {"small": Case(SMALL, 96, 24, 8, 40, 0.01), "paper": Case(PAPER, 64, 16, 8, 4, 0.002)},
    "smoke": {
        "small": Case(
            TINY,
            24, 8, 8, 3, 0.01,
        )
    },
}  # fmt: skip
# Both sides minimise the same loss with AdamW (theirs with its own defaults, amsgrad among them), at a constant rate.
_ENERGY_WEIGHT, _FORCES_WEIGHT = 1.0, 100.0


def run(settings: Training) -> str:
    """Measure, write ``training.json``."""
    plan = find_plan(PLANS, settings.preset)
    structures = given_frames(settings, max(case.train + case.valid for case in plan.values()))
    folder = make_folder(settings.output)
    networks = {name: _compare(plan[name], structures) for name in show_progress(list(plan), "networks", len(plan))}
    result = {"preset": settings.preset, "unit": "seconds per epoch, validation included", "networks": networks}
    lines = []
    for name, network in networks.items():
        seconds, errors = network["seconds_per_epoch"], network["best_validation_force_rmse_mev"]
        lines += [
            f"{name}: {seconds['mace_run_train']:.2f} s per epoch with mace_run_train, {seconds['adaptntk']:.2f} s "
            f"with adaptntk train, ratio {network['ratio']:.2f}",
            f"  best validation force RMSE within {network['epochs']} epochs: {errors['mace_run_train']:.0f} and "
            f"{errors['adaptntk']:.0f} meV/Å",
        ]
    return "\n".join([*lines, f"wrote {save_record(folder, 'training', result)}"])


def _compare(case: Case, structures: Sequence[Atoms]) -> dict[str, Any]:
    if len(structures) < case.train + case.valid:
        raise InputError(f"{case.train + case.valid} labelled structures are needed, not {len(structures)}")
    parts = structures[: case.train], structures[case.train : case.train + case.valid]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for label, frames in zip(("train", "valid"), parts, strict=True):
            write_structures(folder / f"{label}.xyz", frames)
        theirs = _mace_run_train(case, folder)
        ours = _train(case, parts, folder)
    # The first epochs pay for set-up on both sides.
    seconds = {"mace_run_train": theirs, "adaptntk": ours}
    medians = {who: statistics.median(s for s, _ in epochs[1:]) for who, epochs in seconds.items()}
    return {
        "training_structures": case.train,
        "validation_structures": case.valid,
        "batch_size": case.batch_size,
        "epochs": case.epochs,
        "seconds_per_epoch": {who: round(median, 3) for who, median in medians.items()},
        "ratio": round(medians["mace_run_train"] / medians["adaptntk"], 2),
        "ratio_range": [
            round(min(s for s, _ in theirs[1:]) / max(s for s, _ in ours[1:]), 2),
            round(max(s for s, _ in theirs[1:]) / min(s for s, _ in ours[1:]), 2),
        ],
        "validation_force_rmse_mev": {
            who: [round(error, 1) for _, error in epochs][:: max(1, case.epochs // 8)]
            for who, epochs in seconds.items()
        },
        "best_validation_force_rmse_mev": {
            who: round(min(error for _, error in epochs), 1) for who, epochs in seconds.items()
        },
    }


def _train(case: Case, parts: tuple[Sequence[Atoms], Sequence[Atoms]], folder: Path) -> list[tuple[float, float]]:
    recipe = Recipe(
        case.architecture,
        case.learning_rate,
        "constant",
        epochs=case.epochs,
        batch_size=case.batch_size,
        energy_weight=_ENERGY_WEIGHT,
        forces_weight=_FORCES_WEIGHT,
        weight_decay=5e-7,
        element_energies=True,
    )
    reports: list[LapReport] = []
    train(*parts, folder / "ours.model", recipe, on_lap=reports.append, device="cpu")
    return [(report.seconds, 1e3 * report.validation.force_rmse) for report in reports]


def _mace_run_train(case: Case, folder: Path) -> list[tuple[float, float]]:
    """Seconds and validation error (meV/Å) of each epoch, from the times in its log."""
    architecture = case.architecture
    options = {
        "name": "theirs",
        "train_file": folder / "train.xyz",
        "valid_file": folder / "valid.xyz",
        "energy_key": ENERGY,
        "forces_key": FORCES,
        "E0s": "average",
        "hidden_irreps": architecture.hidden_irreps,
        "MLP_irreps": architecture.readout_irreps,
        "max_ell": architecture.max_ell,
        "correlation": architecture.correlation,
        "r_max": architecture.cutoff,
        "radial_MLP": list(architecture.radial_mlp),
        "num_radial_basis": architecture.bessel_functions,
        "num_cutoff_basis": architecture.polynomial_cutoff,
        "interaction_first": "RealAgnosticInteractionBlock",
        "batch_size": case.batch_size,
        "valid_batch_size": case.batch_size,
        "max_num_epochs": case.epochs,
        "eval_interval": 1,
        "lr": case.learning_rate,
        "optimizer": "adamw",
        "scheduler_patience": 10 * case.epochs,
        "energy_weight": _ENERGY_WEIGHT,
        "forces_weight": _FORCES_WEIGHT,
        "device": "cpu",
        "default_dtype": "float32",
        "seed": 0,
        "work_dir": folder / "theirs",
    }
    command = [sys.executable, "-W", "ignore", "-m", "mace.cli.run_train", *(f"--{k}={v}" for k, v in options.items())]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    log = finished.stdout + finished.stderr
    pattern = r"^(\S+ \S+) INFO: (Started training|Initial|Epoch)(?:.*RMSE_F= *([\d.]+))?"
    lines = re.findall(pattern, log, flags=re.MULTILINE)
    times = [datetime.datetime.fromisoformat(when) for when, _, _ in lines]
    epochs = [
        ((times[number] - times[number - 1]).total_seconds(), float(error))
        for number, (_, what, error) in enumerate(lines)
        if what.startswith("Epoch") and error
    ]
    if finished.returncode != 0 or len(epochs) < 2:
        raise InputError(f"mace_run_train failed: {log.strip().splitlines()[-1] if log.strip() else 'no output'}")
    return epochs
