"""``python -m benchmarks sketch``: AdaptNTK with sketches of several dimensions."""

import dataclasses
import json
from pathlib import Path

import numpy as np

from adaptntk.core.sketch.quality import jaccard
from benchmarks.al import run as learning_curves
from benchmarks.settings import LearningCurves, SketchDimension, listed


def run(settings: SketchDimension) -> str:
    """Learning curves, and how much the first batches have in common."""
    dims = listed(settings.dims or "128,256,512,1024,2048" + ("" if settings.preset == "paper" else ",exact"))
    methods = ",".join([*(f"adaptntk@{dim}" for dim in dims), "random"])
    options = dataclasses.asdict(settings) | {"methods": methods}
    del options["dims"]
    lines = [learning_curves.run(LearningCurves(**options))]
    for task, overlaps in batch_overlaps(settings.output).items():
        for method, overlap in overlaps.items():
            lines.append(f"{task}: first batch of {method} and of {dims[-1]} have {overlap:.2f} in common")
    return "\n".join(lines)


def batch_overlaps(folder: Path) -> dict[str, dict[str, float]]:
    """How much the first batch of each method has in common with that of the last one but random (Jaccard).

    The first batch is chosen with the same model by all, so that nothing else differs; mean over seeds.
    """
    results = json.loads((folder / "results.json").read_text())
    methods = [method for method in results["methods"] if method != "random"]
    found: dict[str, dict[str, float]] = {}
    for task in results["tasks"]:
        batches = {
            method: [first_batch(folder / task / f"seed-{seed}" / method) for seed in results["seeds"]]
            for method in methods
        }
        found[task] = {
            method: float(np.mean([jaccard(a, b) for a, b in zip(batches[method], batches[methods[-1]], strict=True)]))
            for method in methods[:-1]
        }
    return found


def first_batch(folder: Path) -> list[int]:
    """Indices into the pool, of what a method chose first."""
    return list(json.loads(min(folder.glob("*/checkpoint.json")).read_text())["picked"])
