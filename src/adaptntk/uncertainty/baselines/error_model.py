"""Beyond the paper: the NTK score and what comes for free with it, combined on the validation set."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from adaptntk.core.error_model import LogErrorRegression
from adaptntk.data.structures import Structures, structure_sizes
from adaptntk.evaluation import force_errors
from adaptntk.models.protocol import Potential
from adaptntk.progress import Progress, silent
from adaptntk.representation import short_repr
from adaptntk.uncertainty.feature_method import NTK, LastLayer
from adaptntk.uncertainty.method import Array, Assessment, MethodState, NoOptions, ScoresOnly
from adaptntk.uncertainty.stored import ENERGY_GRADIENTS, LAST_LAYER, Positive, Stored
from adaptntk.uncertainty.workbench import Workbench

# Whether more of it must never mean less error, and whether it counts beyond the range seen in the validation set. At a
# given energy, smaller forces often go with larger errors (soft modes far from equilibrium rather than stiff ones near
# it), so the last one is free. The energy of another molecule is out of range and must not decide anything.
COVARIATES = {
    "log U": (True, True),
    "log of the last-layer score": (True, True),
    "predicted energy per atom": (True, False),
    "log of the root mean square force": (False, False),
}
_ARRAYS = ("means", "spreads", "lowest", "highest", "weights", "open_ended")


@short_repr
@dataclass(frozen=True)
class ErrorModel(ScoresOnly):
    """The score is the expected force error, from a regression on the four `COVARIATES`."""

    ntk: NTK
    last_layer: LastLayer
    regression: LogErrorRegression
    name = "error_model"
    stored = Stored(
        {"ntk": ENERGY_GRADIENTS.settings, "last_layer": LAST_LAYER.settings, "intercept": float, "ridge": Positive},
        {"ntk.blocks": "n 1 ntk.features.sketch.dim", "last_layer.blocks": "n 1 p"}
        | {name: "4 > 0" if name == "spreads" else "4" for name in _ARRAYS},
    )

    @classmethod
    def fit(cls, bench: Workbench, rng: np.random.Generator, options: NoOptions) -> "ErrorModel":
        """Fit both scores, then the regression on the validation set."""
        # Each with a generator of its own: none depends on how many numbers another has drawn.
        ntk = NTK.fit(bench, np.random.default_rng(bench.seed), NTK.Options())
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
        parts = {"ntk": self.ntk.state(), "last_layer": self.last_layer.state()}
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
        return cls(NTK.restore(part("ntk")), LastLayer.restore(part("last_layer")), regression)


def _covariates(
    ntk: NTK, last_layer: LastLayer, structures: Structures, batch_size: int = 16, progress: Progress = silent
) -> tuple[Array, Assessment]:
    assessed = ntk.assess(structures, batch_size, progress)
    other = last_layer.assess(structures, batch_size)
    force = np.array([np.sqrt(np.mean(forces**2)) for forces in assessed.forces])
    # The logarithms also where rounding has left nothing; of each structure by itself.
    logs = [np.log(np.maximum(values, 1e-30)) for values in (assessed.score, other.score, force)]
    per_atom = assessed.energies / structure_sizes(structures)
    return np.column_stack([*logs[:2], per_atom, logs[2]]), assessed
