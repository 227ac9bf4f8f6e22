"""How the next labels are chosen: a rule on gradients, or the highest scores of another method."""

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from adaptntk.core.selection.problem import Constraints, Problem
from adaptntk.core.selection.registry import LABELLED, SELECTORS, select
from adaptntk.core.sketch.registry import make_sketch
from adaptntk.errors import InputError
from adaptntk.evaluation import size_correlation
from adaptntk.uncertainty.candidates import Candidates
from adaptntk.uncertainty.folder_workbench import FolderWorkbench
from benchmarks.data.oracle import Oracle
from benchmarks.harness.fitting import PAPER, fit_with_price

# Methods whose scores are used with top-B, under the names they have in active learning.
SCORES = {"qbc": "ensemble", "mcd": "dropout", "swag": "swag", "edl": "evidential", "llpr": "last_layer"}


@dataclass(frozen=True)
class Choice:
    """A batch, the networks and the time it took, and what is worth knowing about how it was chosen."""

    indices: list[int]
    networks: tuple[str, ...]
    seconds: dict[str, float]
    details: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Chooser:
    """One way to choose so many labels.

    Args:
        method: a selector, ``SELECTOR@DIM`` for another sketch, or one of `SCORES`.
        count: labels at a time.
        seed: of the experiment.
        options: of the methods whose scores are used, by their names.
    """

    method: str
    count: int
    seed: int
    options: Mapping[str, Mapping[str, Any]]

    def choose(self, bench: FolderWorkbench, oracle: Oracle) -> Choice:
        """The next batch, from structures without labels."""
        bought = set(oracle.bought)
        constraints = Constraints([index in bought for index in range(len(oracle.pool))])
        seed = 1000 * self.seed + len(bench.train)
        if self.method == "random":
            began = time.perf_counter()
            problem = Problem.of_scores(torch.zeros(len(oracle.pool)), self.count, constraints, seed)
            picked = select("random", problem).indices
            return Choice(picked, ("member-0",), {"uncertainty": 0.0, "selection": time.perf_counter() - began})
        rule, method, options = self._how()
        fit = fit_with_price(bench, method, options)
        began = time.perf_counter()
        candidates = fit.fitted.candidates(oracle.pool)
        scored = time.perf_counter()
        picked = candidates.select(rule, self.count, constraints, seed).indices
        seconds = {"uncertainty": fit.seconds + scored - began, "selection": time.perf_counter() - scored}
        return Choice(picked, fit.networks, seconds, _details(candidates))

    def _how(self) -> tuple[str, str, Mapping[str, Any]]:
        """Rule, uncertainty method and its options."""
        if self.method in SCORES:
            return "topb", SCORES[self.method], self.options.get(SCORES[self.method], {})
        rule, _, dim = self.method.partition("@")
        if rule in LABELLED:
            return rule, "ntk", {"committee": 0} | ({"dim": int(dim)} if dim else {})
        if dim == "exact":
            return rule, "ntk", PAPER | {"sketch": "none"}
        return rule, "ntk", PAPER | ({"dim": int(dim)} if dim else {})


def _details(candidates: Candidates) -> dict[str, Any]:
    features = candidates.fitted.features
    if features is None:
        return {}
    return {
        "alpha": features.ridge.alpha,
        "effective_dimension": features.ridge.effective_dimension,
        "normalise": features.feature_map.normalise,
        "correlation_with_atoms": size_correlation(candidates.scores.variance, candidates.structures),
    }


def check_method(method: str) -> None:
    """Refuse an unknown name; ``adaptntk@256`` is a selector with another dimension of the sketch."""
    selector, _, dim = method.partition("@")
    if method in (*SELECTORS, *SCORES):
        return
    if selector not in SELECTORS or not (dim == "exact" or dim.isdigit()):
        known = ", ".join([*SELECTORS, *SCORES])
        raise InputError(f"unknown method {method!r}: choose among {known}; SELECTOR@DIM sets the sketch")
    if selector == "random":
        raise InputError(f"{method!r}: random picks need no sketch")
    if dim.isdigit():
        make_sketch("gaussian", int(dim), 0)  # refuses dimensions that it cannot have
    elif selector == "bait":
        raise InputError(f"{method!r}: BAIT needs a sketch, full gradients have too many dimensions")
