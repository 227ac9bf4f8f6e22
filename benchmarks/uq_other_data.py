"""Scores of single networks beside rMD17: acetylacetone (DFT), and molecules with GFN2-xTB, also hotter than trained.

python benchmarks/uq_other_data.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np

from adaptntk.core.metrics import force_rmse, spearman
from adaptntk.data.location import data_directory
from adaptntk.data.splits import split_structures
from adaptntk.data.structures import read_structures, reference_forces
from adaptntk.data.xtb_md import build_molecule, sample_md
from adaptntk.uncertainty.registry import fit_method
from adaptntk.uncertainty.workbench import FolderWorkbench
from benchmarks.record import save_result
from benchmarks.uq import PLANS

METHODS = {
    "NTK": ("ntk", {}),
    "NTK, d_lam = n/3": ("ntk", {"criterion": "effective_dimension"}),
    "last layer": ("last_layer", {}),
    "predicted energy": ("energy", {}),
    "error model": ("error_model", {}),
}


def acetylacetone():
    folder = data_directory() / "acac"
    train, test = (
        read_structures(folder / f"{name}_300K.xyz", "energy", "forces", labelled=True) for name in ("train", "test_MD")
    )
    return split_structures(train, {"train": 390, "valid": 100}, 0), {"300 K": test}


def with_xtb(molecule, temperature):
    frames = sample_md(build_molecule(molecule), 900, temperature, 10, seed=0)
    parts = split_structures(frames, {"train": 300, "valid": 100, "test": 500}, 0)
    hotter = sample_md(build_molecule(molecule), 300, 1.6 * temperature, 10, seed=1)
    return parts, {f"{temperature:.0f} K": parts["test"], f"{1.6 * temperature:.0f} K": hotter}


def main():
    folder = Path(sys.argv[1])
    cases = {
        "acac": acetylacetone(),
        "ethanol-300": with_xtb("ethanol", 300.0),
        "acetic acid-500": with_xtb("acetic acid", 500.0),
    }
    result = {}
    for name, (parts, tests) in cases.items():
        bench = FolderWorkbench(parts["train"], parts["valid"], folder / name, PLANS["cpu"].recipe, 0, "cpu")
        fitted = {label: fit_method(method, bench, options) for label, (method, options) in METHODS.items()}
        for test, frames in tests.items():
            errors = force_rmse(bench.member(0).predict(frames).forces, reference_forces(frames))
            found = {label: spearman(method.assess(frames).variance, errors) for label, method in fitted.items()}
            result[f"{name}, {test}"] = {"force_rmse": float(np.sqrt(np.mean(errors**2)))} | found
            print(f"{name}, {test}:", {label: round(value, 3) for label, value in found.items()})
    save_result(Path(__file__).parent / "results" / "uq", "other-data", {"spearman": result})


if __name__ == "__main__":
    main()
