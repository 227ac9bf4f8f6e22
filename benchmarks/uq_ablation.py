"""Why the NTK score is where it is: ridge, sketch, features and length of training, one at a time.

Reads the networks that ``adaptntk benchmark uq --preset cpu -o FOLDER`` left, and trains those of other lengths.

    python benchmarks/uq_ablation.py FOLDER MOLECULE SEED [--epochs 20 160]
"""

import argparse
import dataclasses
from pathlib import Path

import numpy as np
import torch

from adaptntk.core.metrics import force_rmse, spearman
from adaptntk.core.posterior import RidgePath
from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch
from adaptntk.data.rmd17 import load_rmd17
from adaptntk.data.splits import split_structures
from adaptntk.data.structures import reference_forces
from adaptntk.features.energy_gradients import extract_features
from adaptntk.uncertainty.registry import fit_method
from adaptntk.uncertainty.workbench import FolderWorkbench
from benchmarks.record import save_result
from benchmarks.uq import PLANS

ALPHAS = [10.0**exponent for exponent in np.arange(-9, 0.1, 0.5)]
PLAN = PLANS["cpu"]


def ridge_curve(train, queries, errors):
    """Spearman at alpha = 1e-4 and at the best alpha, and how many directions that resolves."""
    path = RidgePath(train)
    scores = path.variances(queries, [path.lam(alpha) for alpha in ALPHAS]).numpy()
    found = [spearman(row, errors) for row in scores]
    best = int(np.nanargmax(found))
    return {
        "at 1e-4": found[ALPHAS.index(min(ALPHAS, key=lambda a: abs(np.log10(a) + 4)))],
        "best": found[best],
        "best alpha": ALPHAS[best],
        "effective dimension": path.effective_dimension(path.lam(ALPHAS[best])),
    }


def feature_variants(model, train, queries):
    """Gradients as they are, sketched, centred, rescaled, and of single tensors."""
    yield "exact", train, queries
    for dim in (128, 512, 2048):
        sketch = GaussianSketch(dim, seed=0)
        yield f"sketch {dim}", sketch.apply(train), sketch.apply(queries)
    mean = train.mean(0)
    yield "centred", train - mean, queries - mean
    parameters = model.parameters()
    places = np.split(np.arange(train.shape[1]), np.cumsum([p.numel() for _, p in parameters])[:-1])
    scale = torch.ones(train.shape[1])
    for place in places:
        scale[place] = 1 / train[:, place].square().sum(1).mean().sqrt().clamp_min(1e-12)
    yield "each tensor of unit size", train * scale, queries * scale
    size = train.square().mean(0).sqrt()
    alive = size > 1e-8 * size.max()
    yield "each parameter of unit size", train[:, alive] / size[alive], queries[:, alive] / size[alive]
    weights = torch.cat([p.detach().flatten().abs() for _, p in parameters]).float()
    yield "times the weights", train * weights, queries * weights
    unit = torch.nn.functional.normalize
    yield "rows of unit length", unit(train, dim=1), unit(queries, dim=1)
    for (name, parameter), place in zip(parameters, places, strict=True):
        if parameter.numel() > 1 and bool((train[:, place] != 0).any()):
            yield f"only {name}", train[:, place], queries[:, place]


def lengths(parts, folder, molecule, seed, epochs):
    """The methods that need no other network, and the committee where it is cheap, for other lengths of training."""
    found = {}
    for count in epochs:
        recipe = dataclasses.replace(PLAN.recipe, epochs=count)
        bench = FolderWorkbench(
            parts["train"], parts["valid"], folder / f"{molecule}-{seed}-{count}-epochs", recipe, seed, "cpu"
        )
        reference = reference_forces(parts["evaluation"])
        errors = force_rmse(bench.member(0).predict(parts["evaluation"]).forces, reference)
        methods = [("ntk", {}), ("ntk", {"criterion": "effective_dimension"}), ("energy", {})]
        if count < PLAN.recipe.epochs:
            methods.append(("ensemble", {}))
        found[count] = {"force_rmse": float(np.sqrt(np.mean(errors**2)))}
        for name, options in methods:
            variance = fit_method(name, bench, options).assess(parts["evaluation"]).variance
            found[count][" ".join([name, *options.values()])] = spearman(variance, errors)
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("molecule")
    arguments.add_argument("seed", type=int)
    arguments.add_argument("--epochs", type=int, nargs="*", default=[])
    given = arguments.parse_args()
    parts = split_structures(load_rmd17(given.molecule), PLAN.sizes, given.seed)
    networks = given.folder / given.molecule / f"seed-{given.seed}" / "networks"
    bench = FolderWorkbench(parts["train"], parts["valid"], networks, PLAN.recipe, given.seed, "cpu")
    model = bench.member(0)
    train, queries = (extract_features(model, parts[name], NoSketch(), "none") for name in ("train", "evaluation"))
    errors = force_rmse(model.predict(parts["evaluation"]).forces, reference_forces(parts["evaluation"]))
    deviation = (train - train.mean(0)).square().sum() / train.square().sum()
    result = {
        "molecule": given.molecule,
        "seed": given.seed,
        "share of the squared length that is deviation from the mean": float(deviation),
        "features": {name: ridge_curve(a, b, errors) for name, a, b in feature_variants(model, train, queries)},
        "epochs": lengths(parts, given.folder / "lengths", given.molecule, given.seed, given.epochs),
    }
    for name, found in result["features"].items():
        print(f"{name:60s} at 1e-4 {found['at 1e-4']:.3f}  best {found['best']:.3f} at {found['best alpha']:.0e}")
    for count, found in result["epochs"].items():
        print(count, "epochs", {name: round(value, 4) for name, value in found.items()})
    save_result(Path(__file__).parent / "results" / "uq", f"ablation-{given.molecule}-{given.seed}", result)


if __name__ == "__main__":
    main()
