"""Beyond the paper: the NTK score and what comes for free with it, combined on the validation set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adaptntk.core.error_model import LogErrorRegression
from adaptntk.data.structures import Structures, structure_sizes
from adaptntk.evaluation import force_errors
from adaptntk.models.protocol import Potential
from adaptntk.progress import Progress, silent
from adaptntk.representation import short_repr
from adaptntk.uncertainty.feature_method import NTK, LastLayer
from adaptntk.uncertainty.method import Array, Assessment, MethodState, ScoresOnly
from adaptntk.uncertainty.stored import ENERGY_GRADIENTS, LAST_LAYER, Positive, Stored, record
from adaptntk.uncertainty.workbench import Workbench

# Whether more of it must never mean less error, and whether it counts beyond the range seen in the validation set. At a
# given energy, smaller forces often go with larger errors (soft modes far from equilibrium rather than stiff ones near
# it), so the last one is free. The energy of another molecule is out of range and must not decide anything.
COVARIATES = {
    "log U": (True, True),
    "log of the last-layer score, or of the variance of the committee's forces": (True, True),
    "predicted energy per atom": (True, False),
    "log of the root mean square force": (False, False),
}
_ARRAYS = ("means", "spreads", "lowest", "highest", "weights", "open_ended")


@dataclass(frozen=True)
class ErrorModelOptions:
    """Of the method ``error_model``.

    Args:
        committee: members that are drawn from the posterior of joint features, whose forces take the place of the
            last-layer score; 0 for that score, and energy features.
    """

    committee: int = 0


@dataclass(frozen=True)
class _Contents(Stored):
    """With the last layer, or with a committee in its place."""

    def check(self, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], sizes: Mapping[str, int]) -> None:
        super().check(settings, tensors, sizes)
        held, told = "last_layer.blocks" in tensors, settings.get("last_layer") is not None
        if not told and settings["ntk"].get("committee") is None:
            raise ValueError("settings.last_layer: there is neither that nor a committee")
        if held != told:
            raise ValueError(f"tensor last_layer.blocks is {'missing' if told else 'unknown'}")


_STORED: Stored = _Contents(
    {
        "ntk": ENERGY_GRADIENTS.settings,
        "last_layer": (record("last_layer", LAST_LAYER.settings or {}) | None, None),
        "intercept": float,
        "ridge": Positive,
    },
    {
        "ntk.blocks": "n 1 ntk.features.sketch.dim",
        "ntk.further": "m ntk.features.sketch.dim",
        "last_layer.blocks": "n 1 p",
    }
    | {name: "4 > 0" if name == "spreads" else "4" for name in _ARRAYS},
    frozenset({"ntk.further", "last_layer.blocks"}),
)


@short_repr
@dataclass(frozen=True)
class ErrorModel(ScoresOnly):
    """The score is the expected force error, from a regression on the four `COVARIATES`."""

    ntk: NTK
    last_layer: LastLayer | None
    regression: LogErrorRegression
    name = "error_model"
    Options = ErrorModelOptions
    stored = _STORED

    @classmethod
    def fit(cls, bench: Workbench, rng: np.random.Generator, options: ErrorModelOptions) -> "ErrorModel":
        """Fit both scores, then the regression on the validation set."""
        # Each with a generator of its own: none depends on how many numbers another has drawn.
        joint: Any = {"committee": options.committee} if options.committee else {}
        ntk = NTK.fit(bench, np.random.default_rng(bench.seed), NTK.Options(**joint or {"features": "energy"}))
        last_layer = None
        if not joint:
            last_layer = LastLayer.fit(bench, np.random.default_rng(bench.seed), LastLayer.Options())
        covariates, assessed = _covariates(ntk, last_layer, bench.valid)
        errors = force_errors(assessed.forces, bench.valid)
        monotone, open_ended = zip(*COVARIATES.values(), strict=True)
        folds = np.random.default_rng(bench.seed)
        return cls(ntk, last_layer, LogErrorRegression.fit(covariates, errors, monotone, open_ended, folds))

    @property
    def potential(self) -> Potential:
        return self.ntk.potential

    def assess(self, structures: Structures, batch_size: int = 16, progress: Progress = silent) -> Assessment:
        covariates, assessed = _covariates(self.ntk, self.last_layer, structures, batch_size, progress)
        return Assessment(self.regression.predict(covariates), "std", assessed.energies, assessed.forces)

    def state(self) -> MethodState:
        parts = {"ntk": self.ntk.state()} | ({} if self.last_layer is None else {"last_layer": self.last_layer.state()})
        tensors = {f"{part}.{name}": tensor for part, held in parts.items() for name, tensor in held.tensors.items()}
        tensors |= {name: torch.from_numpy(getattr(self.regression, name)) for name in _ARRAYS}
        settings: dict[str, Any] = {part: held.settings for part, held in parts.items()}
        settings |= {"intercept": self.regression.intercept, "ridge": self.regression.ridge}
        return MethodState(parts["ntk"].networks, tensors, settings)

    @classmethod
    def restore(cls, state: MethodState) -> "ErrorModel":
        def part(name: str) -> MethodState:
            prefix = name + "."
            tensors = {k.removeprefix(prefix): v for k, v in state.tensors.items() if k.startswith(prefix)}
            return MethodState(state.networks, tensors, state.settings[name], state.memory_budget)

        arrays = {name: state.tensors[name].numpy() for name in _ARRAYS}
        regression = LogErrorRegression(**arrays, intercept=state.settings["intercept"], ridge=state.settings["ridge"])
        last_layer = LastLayer.restore(part("last_layer")) if state.settings.get("last_layer") else None
        return cls(NTK.restore(part("ntk")), last_layer, regression)


def _covariates(
    ntk: NTK, last_layer: LastLayer | None, structures: Structures, batch_size: int = 16, progress: Progress = silent
) -> tuple[Array, Assessment]:
    assessed = ntk.assess(structures, batch_size, progress)
    if last_layer is not None:
        other = last_layer.assess(structures, batch_size).score
    else:
        assert ntk.committee is not None
        other = ntk.committee.spread(structures, batch_size, progress).mean_forces
    force = np.array([np.sqrt(np.mean(forces**2)) for forces in assessed.forces])
    # The logarithms also where rounding has left nothing; of each structure by itself.
    logs = [np.log(np.maximum(values, 1e-30)) for values in (assessed.score, other, force)]
    per_atom = assessed.energies / structure_sizes(structures)
    return np.column_stack([*logs[:2], per_atom, logs[2]]), assessed
