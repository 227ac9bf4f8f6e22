"""Fits with their price."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.fitted import Fitted
from adaptntk.uncertainty.folder_workbench import FolderWorkbench
from adaptntk.uncertainty.registry import parse_options

# In all comparisons ``ntk`` alone is the score of the paper, whatever the default is.
PAPER = {"features": "energy"}


@dataclass(frozen=True)
class PricedFit:
    """A fitted method, the networks that it took, and the seconds beside their training."""

    fitted: Fitted
    networks: tuple[str, ...]
    seconds: float


def with_options(method: str) -> tuple[str, dict[str, Any]]:
    """Name and options of a method that is written as ``NAME`` or ``NAME:KEY=VALUE:KEY=VALUE``."""
    name, *texts = method.split(":")
    return name, (PAPER if name == "ntk" else {}) | parse_options(name, texts)


def fit_with_price(bench: FolderWorkbench, method: str, options: Mapping[str, Any] | None = None) -> PricedFit:
    """Fit on a workbench of its own: what one method has computed, another must not find there for nothing."""
    bench.member(0)
    before, began = bench.seconds_in_training, time.perf_counter()
    fitted = fit(bench, method, options)
    seconds = time.perf_counter() - began - (bench.seconds_in_training - before)
    # A network with dropout stands for the model itself, which is then only looked at to check labels.
    instead = {name for name in bench.used if name.startswith("dropout")}
    return PricedFit(fitted, tuple(sorted(instead or bench.used)), seconds)
