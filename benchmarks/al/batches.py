"""``python -m benchmarks batches``: where the first batches of ``al --data t1x`` come from."""

import json

import numpy as np

from adaptntk.data.structures import reference_forces
from benchmarks.al.plan import PLANS
from benchmarks.al.sketch import first_batch
from benchmarks.data.tasks import Task
from benchmarks.harness.record import save_record
from benchmarks.settings import Batches


def run(settings: Batches) -> str:
    """All methods choose their first batch with the same network."""
    folder = settings.output
    results = json.loads((folder / "results.json").read_text())
    sizes = PLANS[results["preset"]].sizes["reactions"]
    task = Task("reactions", reactions=folder / "reactions" / "reactions.h5")
    batches: dict[str, list[int]] = {method: [] for method in results["methods"]}
    forces: dict[str, list[float]] = {}
    for seed in results["seeds"]:
        data = task.load(sizes, seed)
        for name, frames in data.tests.items():
            values = np.concatenate([f.ravel() for f in reference_forces(frames)])
            forces.setdefault(name, []).append(round(float(np.sqrt(np.mean(values**2))), 3))
        for method, found in batches.items():
            picked = first_batch(folder / "reactions" / f"seed-{seed}" / method)
            found.append(len({data.pool[index].info["reaction"] for index in picked}))
    return save_record(folder, "batches", {"reactions_in_first_batch": batches, "force_rms": forces}).read_text()
