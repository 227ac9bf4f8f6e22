"""SWAG (Maddox et al., 2019): a Gaussian over the weights, from where the training wandered in its last epochs."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from adaptntk.data.structures import Structures
from adaptntk.errors import InputError
from adaptntk.models.protocol import Potential
from adaptntk.progress import Progress, silent
from adaptntk.representation import short_repr
from adaptntk.uncertainty.method import Assessment, MethodState, ScoresOnly
from adaptntk.uncertainty.stored import Positive, Seed, Several, Stored
from adaptntk.uncertainty.workbench import Workbench


@short_repr
@dataclass(frozen=True)
class WeightDistribution:
    """``N(mean, scale (diag(variance) + D D^T / (K - 1)))`` with the K deviations of the snapshots in the columns of D.

    The halves of the covariance are weighted equally with ``scale = 1/2``, as in the paper of SWAG.
    """

    mean: Tensor
    variance: Tensor
    deviations: Tensor
    scale: float = 0.5

    def __post_init__(self) -> None:
        if len(self.deviations) < 2:
            raise InputError(f"SWAG needs at least two snapshots of the weights, not {len(self.deviations)}")

    @classmethod
    def fit(cls, snapshots: Tensor, scale: float = 0.5) -> "WeightDistribution":
        """From flat weights, one row per snapshot."""
        rows = snapshots.double()
        mean = rows.mean(0)
        return cls(mean, (rows.square().mean(0) - mean.square()).clamp_min(0.0), rows - mean, scale)

    def draw(self, generator: torch.Generator) -> Tensor:
        """Weights drawn from the distribution."""
        diagonal = torch.randn(len(self.mean), dtype=torch.float64, generator=generator)
        low_rank = torch.randn(len(self.deviations), dtype=torch.float64, generator=generator)
        correlated = low_rank @ self.deviations / math.sqrt(len(self.deviations) - 1)
        return self.mean + math.sqrt(self.scale) * (self.variance.sqrt() * diagonal + correlated)


@dataclass(frozen=True)
class SWAGOptions:
    """Of the method: how many draws of the weights, and the scale of their covariance."""

    draws: int = 30
    scale: float = 0.5

    def __post_init__(self) -> None:
        if self.draws < 2:
            raise InputError(f"SWAG needs at least two draws, not {self.draws}")
        if not self.scale > 0:
            raise InputError(f"the scale of SWAG must be positive, not {self.scale}")


@short_repr
@dataclass(frozen=True)
class SWAG(ScoresOnly):
    """The score is the standard deviation of the forces over drawn weights; the mean weights predict."""

    potential: Potential
    weights: WeightDistribution
    draws: int
    seed: int
    name = "swag"
    stored = Stored(
        {"scale": Positive, "draws": Several, "seed": Seed},
        {"mean": "P", "variance": "P >= 0", "deviations": "snapshots P"},
    )
    Options = SWAGOptions

    @classmethod
    def fit(cls, bench: Workbench, rng: np.random.Generator, options: SWAGOptions) -> "SWAG":
        """From snapshots of the training of the model itself."""
        base = bench.member(0)
        rows = torch.stack([_flat(snapshot, base) for snapshot in bench.snapshots()])
        weights = WeightDistribution.fit(rows, options.scale)
        return cls(_network(base, weights), weights, options.draws, bench.seed)

    def assess(self, structures: Structures, batch_size: int = 16, progress: Progress = silent) -> Assessment:
        generator = torch.Generator().manual_seed(self.seed)
        drawn = []
        for _ in progress(range(self.draws), "draws of the weights", self.draws):
            self.potential.set_weights(self.weights.draw(generator))
            drawn.append(self.potential.predict(structures, batch_size))
        self.potential.set_weights(self.weights.mean)
        mean = self.potential.predict(structures, batch_size)
        return Assessment(Assessment.of_committee(drawn).score, "std", mean.energies, mean.forces)

    def state(self) -> MethodState:
        tensors = {name: value for name, value in vars(self.weights).items() if isinstance(value, Tensor)}
        settings = {"scale": self.weights.scale, "draws": self.draws, "seed": self.seed}
        return MethodState((self.potential,), tensors, settings)

    @classmethod
    def restore(cls, state: MethodState) -> "SWAG":
        weights = WeightDistribution(**state.tensors, scale=state.settings["scale"])
        return cls(_network(state.networks[0], weights), weights, state.settings["draws"], state.settings["seed"])


def _network(base: Potential, weights: WeightDistribution) -> Potential:
    """A network of its own, with the mean weights: others are put into it, and the model itself must not change."""
    own = base.copy()
    own.set_weights(weights.mean)
    return own


def _flat(snapshot: dict[str, Tensor], potential: Potential) -> Tensor:
    return torch.cat([snapshot[name].double().cpu().flatten() for name, _ in potential.parameters()])
