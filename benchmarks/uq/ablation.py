"""``python -m benchmarks ablation``: why the NTK score is where it is. Ridge, sketch, features, length of training.

Reads the networks that ``python -m benchmarks uq --preset cpu`` left, and trains those of other lengths.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms
from numpy.typing import NDArray
from torch import Tensor

from adaptntk.core.metrics import spearman
from adaptntk.core.posterior import RidgePath
from adaptntk.core.sketch.gaussian import GaussianSketch, NoSketch
from adaptntk.data.published import load_rmd17
from adaptntk.data.splits import split_structures
from adaptntk.evaluation import force_errors, summarise_errors
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.models.protocol import Potential
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.folder_workbench import FolderWorkbench
from benchmarks.harness.fitting import with_options
from benchmarks.harness.record import save_record
from benchmarks.settings import Ablation, listed
from benchmarks.uq.run import PLANS

Array = NDArray[np.float64]

ALPHAS = [10.0**exponent for exponent in np.arange(-9, 0.1, 0.5)]
PLAN = PLANS["cpu"]


def run(settings: Ablation) -> str:
    """One thing at a time; writes ``ablation-MOLECULE-SEED.json``."""
    folder, molecule, seed = settings.output, settings.molecule, settings.seed
    parts = split_structures(load_rmd17(molecule), PLAN.sizes, seed)
    model = workbench(parts, folder / molecule / f"seed-{seed}" / "networks", seed).member(0)
    gradients = EnergyGradients(NoSketch())
    train, queries = (gradients.extract(model, parts[name])[:, 0] for name in ("train", "evaluation"))
    errors = force_errors(model.predict(parts["evaluation"]).forces, parts["evaluation"])
    deviation = (train - train.mean(0)).square().sum() / train.square().sum()
    result: dict[str, Any] = {
        "molecule": molecule,
        "seed": seed,
        "share of the squared length that is deviation from the mean": float(deviation),
        "features": {name: ridge_curve(a, b, errors) for name, a, b in feature_variants(model, train, queries)},
        "epochs": {
            count: of_length(parts, folder / "lengths" / f"{molecule}-{seed}-{count}-epochs", seed, count)
            for count in map(int, listed(settings.epochs))
        },
    }
    lines = [
        f"{name:60s} at 1e-4 {found['at 1e-4']:.3f}  best {found['best']:.3f} at {found['best alpha']:.0e}"
        for name, found in result["features"].items()
    ]
    lines += [
        f"{count} epochs: " + ", ".join(f"{name} {value:.4f}" for name, value in found.items())
        for count, found in result["epochs"].items()
    ]
    return "\n".join([*lines, f"wrote {save_record(folder, f'ablation-{molecule}-{seed}', result)}"])


def workbench(parts: dict[str, list[Atoms]], folder: Path, seed: int = 0, epochs: int | None = None) -> FolderWorkbench:
    """For networks of the plan, or trained for longer or shorter."""
    recipe = PLAN.recipe if epochs is None else dataclasses.replace(PLAN.recipe, epochs=epochs)
    return FolderWorkbench(parts["train"], parts["valid"], seed, folder=folder, recipe=recipe, device="cpu")


def ridge_curve(train: Tensor, queries: Tensor, errors: Array) -> dict[str, float]:
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


def feature_variants(model: Potential, train: Tensor, queries: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
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


def of_length(parts: dict[str, list[Atoms]], folder: Path, seed: int, epochs: int) -> dict[str, float]:
    """The methods that need no other network, and the committee where it is cheap, for another length of training."""
    bench, frames = workbench(parts, folder, seed, epochs), parts["evaluation"]
    predicted = bench.member(0).predict(frames)
    errors = force_errors(predicted.forces, frames)
    methods = ["ntk", "ntk:criterion=effective_dimension", "energy"]
    if epochs < (PLAN.recipe.epochs or 0):
        methods.append("ensemble")
    found = {"force_rmse": summarise_errors(predicted, frames).force_rmse}
    for method in methods:
        variance = fit(bench, *with_options(method)).assess(frames).variance
        found[method.replace(":criterion=", " ")] = spearman(variance, errors)
    return found
