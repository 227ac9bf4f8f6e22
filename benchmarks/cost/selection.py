"""``python -m benchmarks selection``: batches from large pools, against the naive rule and a peer, and peak memory."""

import importlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adaptntk.cli.console import show_progress
from adaptntk.core.posterior import Posterior
from adaptntk.core.selection.greedy import greedy
from adaptntk.core.selection.problem import Problem
from adaptntk.core.selection.registry import SELECTORS
from adaptntk.data.structures import write_structures
from adaptntk.data.xtb_md import build_molecule
from adaptntk.errors import InputError
from adaptntk.files import make_folder
from adaptntk.models.family import Architecture, EnergyReference
from adaptntk.models.registry import find_family, load_potential
from adaptntk.training.recipe import PRESETS
from adaptntk.uncertainty.file import save_fitted
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.workbench import GivenModel
from benchmarks.cost.figures import draw_selection_cost
from benchmarks.harness.experiment import find_plan
from benchmarks.harness.fitting import PAPER
from benchmarks.harness.record import save_record
from benchmarks.harness.stopwatch import show_range, time_in_turns
from benchmarks.settings import Selection


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    candidates: int
    dim: int
    picks: int
    rounds: int
    pools: tuple[int, ...]
    dims: tuple[int, ...]
    files: tuple[int, int]
    network: Architecture


PLANS = {
    "full": Plan(
        75_000, 512, 50, 5, (10_000, 30_000, 100_000, 300_000), (128, 256, 512, 1024), (3_000, 30_000),
        PRESETS["small"].architecture,
    ),
    "smoke": Plan(
        2_000, 64, 10, 1, (500, 1_000), (32, 64), (50, 500),
        PRESETS["tiny"].architecture,
    ),
}  # fmt: skip


def run(settings: Selection) -> str:
    """Measure, write ``selection.json`` and ``selection.png``."""
    plan = find_plan(PLANS, settings.preset)
    folder = make_folder(settings.output)
    result = {
        "preset": settings.preset,
        "candidates": plan.candidates,
        "dim": plan.dim,
        "picks": plan.picks,
        **_compare(plan),
        "by_pool": [
            {"candidates": n, **_seconds(n, plan.dim, plan)}
            for n in show_progress(plan.pools, "sizes of the pool", len(plan.pools))
        ],
        "by_dim": [
            {"dim": p, **_seconds(plan.pools[1], p, plan)}
            for p in show_progress(plan.dims, "dimensions", len(plan.dims))
        ],
        "selectors": _selectors(plan),
        "peak_memory": _peak_memory(plan) if sys.platform == "linux" else None,
    }
    save_record(folder, "selection", result)
    drawn = draw_selection_cost(folder)
    return "\n".join([*_shown(result), f"wrote {folder / 'selection.json'} and {drawn}"])


def _shown(result: dict[str, Any]) -> list[str]:
    """What is printed."""
    lines = [f"{result['picks']} picks of {result['candidates']:,} x {result['dim']}, seconds:"]
    lines += [f"  {name}: {show_range(found)}" for name, found in result["seconds"].items()]
    lines += [f"{name} = {show_range(found)}" for name, found in result["ratios"].items()]
    lines += [f"naive: {result['naive_seconds']:.2f} s, {result['naive / adaptntk']} times as long"]
    verdicts = [f"{who} {'yes' if same else 'NO'}" for who, same in result["same_picks"].items()]
    lines += [f"same picks: {', '.join(verdicts)}", "every rule, in a process of its own:"]
    for name, found in result["selectors"].items():
        peak = f", peak memory {found['peak_gibibytes']:.2f} GiB" if "peak_gibibytes" in found else ""
        lines.append(f"  {name}: {found['seconds']:.2f} s{peak}")
    if (memory := result["peak_memory"]) is not None:
        peaks = ", ".join(f"{int(n):,} structures {gib:.3f} GiB" for n, gib in memory["gibibytes"].items())
        lines.append(f"peak memory of select --store: {peaks} (ratio {memory['ratio']:.3f})")
    return lines


def _compare(plan: Plan) -> dict[str, Any]:
    train, candidates = random_features(1000, plan.candidates, plan.dim)
    lam = 1e-4 * float(train.square().sum(1).mean())
    posterior = Posterior.fit(train, lam)
    vector = candidates[0].clone()
    work: dict[str, tuple[Callable[[], object], float]] = {
        "passes over the pool": (lambda: [candidates @ vector for _ in range(plan.picks)], 1),
        "scores": (lambda: posterior.variance(candidates), 1),
        "adaptntk": (lambda: greedy(Problem.of_features(posterior, train, candidates, plan.picks)), 1),
    }
    peer = bmdal_maxdet(posterior, candidates, plan.picks)
    if peer is not None:
        work["bmdal_reg MaxDet"] = (peer, 1)
    times = time_in_turns(work, plan.rounds)
    picks = greedy(Problem.of_features(posterior, train, candidates, plan.picks)).indices
    began = time.perf_counter()
    reference = naive(train, candidates, lam, plan.picks)
    naive_seconds = time.perf_counter() - began
    ours = times["adaptntk"]
    ratios = {"adaptntk / passes": ours.over(times["passes over the pool"]).summary()}
    same = {"naive": picks == reference}
    if peer is not None:
        ratios["bmdal_reg / adaptntk"] = times["bmdal_reg MaxDet"].over(ours).summary()
        same["bmdal_reg"] = picks == peer()
    return {
        "seconds": {name: timing.summary() for name, timing in times.items()},
        "ratios": ratios,
        "naive_seconds": round(naive_seconds, 2),
        "naive / adaptntk": round(naive_seconds / ours.median, 1),
        "same_picks": same,
    }


def random_features(train: int, candidates: int, dim: int) -> tuple[Tensor, Tensor]:
    """Rows with a decaying spectrum, as gradients have."""
    generator = torch.Generator().manual_seed(0)
    spectrum = torch.logspace(0, -2, dim, dtype=torch.float64)
    rows = torch.randn(train + candidates, dim, generator=generator, dtype=torch.float64).mul_(spectrum)
    return rows[:train], rows[train:]


def naive(train: Tensor, candidates: Tensor, lam: float, picks: int) -> list[int]:
    """Refit the posterior and score the whole pool after every pick."""
    chosen: list[int] = []
    for _ in range(picks):
        scores = Posterior.fit(torch.cat([train, candidates[chosen]]), lam).variance(candidates)
        scores[chosen] = -torch.inf
        chosen.append(int(scores.argmax()))
    return chosen


def bmdal_maxdet(posterior: Posterior, candidates: Tensor, picks: int) -> Callable[[], list[int]] | None:
    """MaxDet of ``bmdal_reg`` on the whitened rows, which hold the posterior; None where it is not installed."""
    if not hasattr(np, "Inf"):
        setattr(np, "Inf", np.inf)  # noqa: B010  (the package was written for NumPy 1)
    try:
        bmdal = {
            name: importlib.import_module(f"bmdal_reg.bmdal.{name}")
            for name in ("feature_data", "feature_maps", "features", "selection")
        }
    except ImportError:
        return None

    def wrap(rows: Tensor) -> Any:
        feature_map = bmdal["feature_maps"].IdentityFeatureMap(n_features=rows.shape[1])
        return bmdal["features"].Features(feature_map, bmdal["feature_data"].TensorFeatureData(rows))

    def run() -> list[int]:
        # Its own work begins with the raw rows: whitening counts, as it does for ours.
        whitened = posterior.whiten(candidates)
        method = bmdal["selection"].MaxDetSelectionMethod(
            wrap(whitened), wrap(whitened[:1]), noise_sigma=posterior.lam**0.5, verbosity=0
        )
        return method.select(picks).tolist()

    return run


def _seconds(candidates: int, dim: int, plan: Plan) -> dict[str, Any]:
    train, rows = random_features(1000, candidates, dim)
    lam = 1e-4 * float(train.square().sum(1).mean())
    posterior = Posterior.fit(train, lam)
    vector = rows[0].clone()
    work: dict[str, tuple[Callable[[], object], float]] = {
        "adaptntk": (lambda: greedy(Problem.of_features(posterior, train, rows, plan.picks)), 1),
        "passes over the pool": (lambda: [rows @ vector for _ in range(plan.picks)], 1),
    }
    times = time_in_turns(work, max(1, plan.rounds // 2))
    return {"seconds": {name: timing.summary() for name, timing in times.items()}}


def _selectors(plan: Plan) -> dict[str, dict[str, float]]:
    """Time and peak memory of every rule on the same rows in float32, as features are stored."""
    train, candidates = random_features(1000, plan.candidates, plan.dim)
    found = {}
    with tempfile.TemporaryDirectory() as name:
        rows = Path(name) / "rows.npy"
        np.save(rows, torch.cat([train, candidates]).float().numpy())
        for selector in show_progress(list(SELECTORS), "rules", len(SELECTORS)):
            command = [sys.executable, "-c", _SELECT + _PRINT_PEAK, str(rows), selector, str(plan.picks)]
            lines = _run(command, f"the rule {selector}")
            found[selector] = {"seconds": round(float(lines[-2]), 3)}
            if sys.platform == "linux":
                found[selector]["peak_gibibytes"] = round(int(lines[-1]) / 2**20, 3)
    return found


def _run(command: list[str], what: str) -> list[str]:
    """The lines that a process of its own wrote to its error stream: peak memory can be told of a process only."""
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise InputError(f"{what} failed: {finished.stderr.strip()}")
    return finished.stderr.split()


def _peak_memory(plan: Plan) -> dict[str, Any]:
    """Peak memory of ``adaptntk select --store`` for a pool and for one ten times as large."""
    molecule = build_molecule("ethanol")
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frames = [_rattled(molecule, rng) for _ in range(40)]
        reference = EnergyReference((1, 6, 8), (0.0, 0.0, 0.0), 1.0, 0.0)
        family = find_family(plan.network.family)
        family.build(plan.network, reference, frames, torch.float32, seed=0).save(folder / "net.model")
        save_fitted(
            fit(GivenModel(frames, potential=load_potential(folder / "net.model")), "ntk", PAPER), folder / "net.ntk"
        )
        peaks = {}
        for size in plan.files:
            write_structures(folder / "pool.xyz", (_rattled(molecule, rng) for _ in range(size)))
            command = [
                sys.executable, "-c", _COMMAND_LINE + _PRINT_PEAK, "select", str(folder / "net.ntk"),
                str(folder / "pool.xyz"), "-n", "20",
                "-o", str(folder / "batch.xyz"), "--store", str(folder / f"store-{size}"), "--memory", "0.1",
            ]  # fmt: skip
            peaks[size] = int(_run(command, "select")[-1]) / 2**20
    small, large = plan.files
    return {
        "gibibytes": {str(size): round(peak, 4) for size, peak in peaks.items()},
        "ratio": round(peaks[large] / peaks[small], 4),
    }


_COMMAND_LINE = """
from adaptntk.cli.app import app
app(standalone_mode=False)
"""
_SELECT = """
import sys, time
import numpy, torch
from adaptntk.core.posterior import Posterior
from adaptntk.core.selection.problem import Problem
from adaptntk.core.selection.registry import select
rows = torch.from_numpy(numpy.load(sys.argv[1]))
train, candidates = rows[:1000], rows[1000:]
posterior = Posterior.fit(train, 1e-4 * float(train.square().sum(1).mean()))
began = time.perf_counter()
select(sys.argv[2], Problem.of_features(posterior, train, candidates, int(sys.argv[3])))
print(time.perf_counter() - began, file=sys.stderr)
"""
# The peak memory of the process in KiB. (Not from getrusage: a new process begins with the peak of the one that
# started it.)
_PRINT_PEAK = """
import pathlib, sys
status = pathlib.Path("/proc/self/status")
print(status.read_text().split("VmHWM:")[1].split()[0] if status.exists() else 0, file=sys.stderr)
"""


def _rattled(molecule: Any, rng: np.random.Generator) -> Any:
    moved = molecule.copy()
    moved.rattle(0.05, rng=rng)
    return moved
