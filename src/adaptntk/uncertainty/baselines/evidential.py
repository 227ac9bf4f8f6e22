"""Evidential regression (Amini et al., 2020), fitted after the training on the frozen features of the network."""

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from adaptntk.data.structures import Structures, reference_energies, structure_sizes
from adaptntk.errors import InputError
from adaptntk.features.last_layer import mean_invariants
from adaptntk.models.protocol import Potential, Predictions
from adaptntk.representation import short_repr
from adaptntk.uncertainty.method import Array, MethodState, ScoresOnly
from adaptntk.uncertainty.stored import Stored
from adaptntk.uncertainty.workbench import Workbench


def nig_loss(parameters: tuple[Tensor, Tensor, Tensor, Tensor], target: Tensor, coefficient: float) -> Tensor:
    """Negative log-likelihood of a normal-inverse-gamma prior's marginal, plus the penalty on wrong evidence.

    The marginal of ``N(mu, s2)`` with ``mu ~ N(gamma, s2/nu)`` and ``s2 ~ InvGamma(alpha, beta)`` is Student's t with
    2 alpha degrees of freedom; with ``omega = 2 beta (1 + nu)`` its negative logarithm is

        log(pi/nu)/2 - alpha log omega + (alpha + 1/2) log((y - gamma)^2 nu + omega)
        + log(Gamma(alpha)/Gamma(alpha + 1/2)).

    The penalty is ``|y - gamma| (2 nu + alpha)``: evidence where the prediction is wrong.
    """
    gamma, nu, alpha, beta = parameters
    omega = 2 * beta * (1 + nu)
    likelihood = (
        0.5 * torch.log(torch.pi / nu)
        - alpha * torch.log(omega)
        + (alpha + 0.5) * torch.log((target - gamma).square() * nu + omega)
        + torch.lgamma(alpha)
        - torch.lgamma(alpha + 0.5)
    )
    penalty = (target - gamma).abs() * (2 * nu + alpha)
    return (likelihood + coefficient * penalty).mean()


class EvidentialHead(nn.Module):
    """Features to ``(gamma, nu, alpha, beta)``, with nu, beta > 0 and alpha > 1."""

    def __init__(self, inputs: int, width: int = 64) -> None:
        super().__init__()
        first, second, third = (nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, 4))
        self.layers = nn.Sequential(first, nn.SiLU(), second, nn.SiLU(), third)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        gamma, nu, alpha, beta = self.layers(features).unbind(-1)
        positive = nn.functional.softplus
        return gamma, positive(nu) + 1e-6, positive(alpha) + 1 + 1e-6, positive(beta) + 1e-6


_HEAD = {
    "head.layers.0.weight": "64 f",
    "head.layers.0.bias": "64",
    "head.layers.2.weight": "64 64",
    "head.layers.2.bias": "64",
    "head.layers.4.weight": "4 64",
    "head.layers.4.bias": "4",
}


@dataclass(frozen=True)
class EvidentialOptions:
    """Of the method: the weight of the penalty on wrong evidence, and the training of the head."""

    coefficient: float = 0.1
    steps: int = 1000
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        if self.steps < 10 or not self.learning_rate > 0 or self.coefficient < 0:
            needed = "at least 10 steps, a positive learning rate and a coefficient that is not negative"
            raise InputError(f"evidential needs {needed}")


@short_repr
@dataclass(frozen=True)
class Evidential(ScoresOnly):
    """The score is the epistemic variance ``beta / (nu (alpha - 1))`` of the energy per atom."""

    potential: Potential
    head: EvidentialHead
    centre: Tensor
    scale: Tensor
    name = "evidential"
    stored = Stored({}, {"centre": "f", "scale": "f > 0"} | _HEAD)
    Options = EvidentialOptions

    @classmethod
    def fit(cls, bench: Workbench, rng: np.random.Generator, options: EvidentialOptions) -> "Evidential":
        """Fit the head on the training set; of all steps, keep the best on the validation set."""
        potential = bench.member(0)
        features, targets = zip(*(_inputs(potential, frames) for frames in (bench.train, bench.valid)), strict=True)
        # Without this the likelihood is smallest at nu -> 0, and the score is nearly the same for all.
        centre, scale = features[0].mean(0), features[0].std(0).clamp_min(1e-8)
        standard = [(part - centre) / scale for part in features]
        shift, unit = targets[0].mean(), targets[0].std().clamp_min(1e-12)
        goals = [(part - shift) / unit for part in targets]
        with torch.random.fork_rng():
            torch.manual_seed(bench.seed)
            head = EvidentialHead(features[0].shape[1]).double()
        optimiser = torch.optim.Adam(head.parameters(), lr=options.learning_rate)
        best, kept = float("inf"), copy.deepcopy(head.state_dict())
        for step in range(options.steps):
            optimiser.zero_grad()
            nig_loss(head(standard[0]), goals[0], options.coefficient).backward()
            optimiser.step()
            if step % 10 == 9:
                with torch.no_grad():
                    loss = float(nig_loss(head(standard[1]), goals[1], options.coefficient))
                if loss < best:
                    best, kept = loss, copy.deepcopy(head.state_dict())
        head.load_state_dict(kept)
        return cls(potential, head, centre, scale)

    def score(self, structures: Structures, predicted: Predictions) -> Array:
        features = torch.as_tensor(mean_invariants(self.potential, predicted))
        with torch.no_grad():
            _, nu, alpha, beta = self.head((features - self.centre) / self.scale)
        return (beta / (nu * (alpha - 1))).numpy()

    def state(self) -> MethodState:
        tensors = {"centre": self.centre, "scale": self.scale}
        return MethodState((self.potential,), tensors | {f"head.{k}": v for k, v in self.head.state_dict().items()})

    @classmethod
    def restore(cls, state: MethodState) -> "Evidential":
        centre, scale = state.tensors["centre"], state.tensors["scale"]
        head = EvidentialHead(len(centre)).double()
        head.load_state_dict({k.removeprefix("head."): v for k, v in state.tensors.items() if k.startswith("head.")})
        return cls(state.networks[0], head, centre, scale)


def _inputs(potential: Potential, frames: Structures) -> tuple[Tensor, Tensor]:
    features = mean_invariants(potential, potential.predict(frames))
    per_atom = reference_energies(frames) / structure_sizes(frames)
    return torch.as_tensor(features), torch.as_tensor(per_atom)
