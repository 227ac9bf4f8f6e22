"""Where the first batches of ``adaptntk benchmark al --data t1x`` come from, and how large the forces are.

    python benchmarks/al_batches.py FOLDER

FOLDER is what that command left. All methods choose their first batch with the same network.
"""

import json
import sys
from pathlib import Path

import numpy as np

from adaptntk.data.structures import reference_forces
from benchmarks.al import PLANS
from benchmarks.al_data import Task
from benchmarks.record import save_result


def main(folder: Path) -> None:
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
            record = folder / "reactions" / f"seed-{seed}" / method / f"{sizes.initial:05d}" / "checkpoint.json"
            picked = json.loads(record.read_text())["picked"]
            found.append(len({data.pool[index].info["reaction"] for index in picked}))
    here = Path(__file__).parent / "results" / "al-reactions"
    print(save_result(here, "batches", {"reactions_in_first_batch": batches, "force_rms": forces}).read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
