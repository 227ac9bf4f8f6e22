"""``python -m benchmarks other-data``: scores of single networks beside rMD17.

Acetylacetone (DFT), and molecules with GFN2-xTB, also hotter than they were trained.
"""

from typing import Any

from ase import Atoms

from adaptntk.core.metrics import spearman
from adaptntk.data.splits import split_structures
from adaptntk.data.xtb_md import build_molecule, sample_md
from adaptntk.evaluation import force_errors, summarise_errors
from adaptntk.files import make_folder
from adaptntk.uncertainty.fit import fit
from benchmarks.data import sets
from benchmarks.harness.fitting import PAPER
from benchmarks.harness.record import save_record
from benchmarks.settings import OtherData
from benchmarks.uq.ablation import workbench

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "NTK": ("ntk", PAPER),
    "NTK, d_lam = n/3": ("ntk", PAPER | {"criterion": "effective_dimension"}),
    "last layer": ("last_layer", {}),
    "predicted energy": ("energy", {}),
    "error model": ("error_model", {}),
}
Sets = dict[str, list[Atoms]]


def run(settings: OtherData) -> str:
    """Spearman of each score with the error, by data set; writes ``other-data.json``."""
    folder = make_folder(settings.output)
    cases = {
        "acac": acetylacetone(),
        "ethanol-300": with_xtb("ethanol", 300.0),
        "acetic acid-500": with_xtb("acetic acid", 500.0),
    }
    result = {}
    for name, (parts, tests) in cases.items():
        bench = workbench(parts, folder / name)
        fitted = {label: fit(bench, method, options) for label, (method, options) in METHODS.items()}
        for test, frames in tests.items():
            predicted = bench.member(0).predict(frames)
            errors = force_errors(predicted.forces, frames)
            found = {label: spearman(method.assess(frames).variance, errors) for label, method in fitted.items()}
            result[f"{name}, {test}"] = {"force_rmse": summarise_errors(predicted, frames).force_rmse} | found
    lines = [
        f"{case}: " + ", ".join(f"{label} {value:.3f}" for label, value in found.items())
        for case, found in result.items()
    ]
    return "\n".join([*lines, f"wrote {save_record(folder, 'other-data', {'spearman': result})}"])


def acetylacetone() -> tuple[Sets, Sets]:
    """Of the published data (see docs/data.md)."""
    train, test = sets.acetylacetone()
    return split_structures(train, {"train": 390, "valid": 100}, 0), {"300 K": test}


def with_xtb(molecule: str, temperature: float) -> tuple[Sets, Sets]:
    """A trajectory, and a hotter one to test on."""
    frames = sample_md(build_molecule(molecule), 900, temperature, 10, seed=0)
    parts = split_structures(frames, {"train": 300, "valid": 100, "test": 500}, 0)
    hotter = sample_md(build_molecule(molecule), 300, 1.6 * temperature, 10, seed=1)
    return parts, {f"{temperature:.0f} K": parts["test"], f"{1.6 * temperature:.0f} K": hotter}
