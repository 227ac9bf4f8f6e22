"""The weights of a network while it is trained: the optimiser that moves them, and their moving average."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from adaptntk.models.family import Trainable
from adaptntk.training.recipe import Recipe


class Weights:
    """Weights under AdamW, with an average over about the last ``recipe.average`` of the steps so far.

    After t steps an average in which each step enters with weight 1 / (1 + a t) reaches back a t steps. Early it
    forgets the beginning quickly, late it is long and smooth, whatever the length of the training.
    """

    def __init__(self, potential: Trainable, recipe: Recipe) -> None:
        self.module, self.recipe = potential.module, recipe
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        # What only other heads use has no gradient, and decay must not touch it either: no readout is chosen.
        choose = recipe.chosen_decay or len(potential.heads) > 1
        decayed = potential.decayed_parameters() if choose else self.parameters
        chosen = {id(parameter) for parameter in decayed}
        groups = [
            {
                "params": [p for p in self.parameters if (id(p) in chosen) is kept],
                "weight_decay": kept * recipe.weight_decay,
            }
            for kept in (True, False)
        ]
        # Fused: one call for all parameters.
        self.optimiser = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            recipe.learning_rate,
            betas=(0.9, recipe.memory),
            fused=True,
        )
        self.average = [p.detach().clone() for p in self.parameters] if recipe.average else []

    def step(self, loss: Tensor, step: int, rate: float) -> None:
        """Descend from ``loss``, with that share of the recipe's learning rate."""
        self.optimiser.zero_grad(set_to_none=True)
        # Not over the positions too, of which forces were differentiated.
        loss.backward(inputs=self.parameters)
        self._descend(step, rate)

    def step_along(self, gradient: Sequence[Tensor | None], step: int, rate: float) -> None:
        """The same where the gradient of the loss is there already, over each of the parameters."""
        for parameter, part in zip(self.parameters, gradient, strict=True):
            # In the layout of the parameter, as backward() leaves it: the fused optimiser takes memory as it lies.
            parameter.grad = None if part is None else torch.empty_like(parameter).copy_(part)
        self._descend(step, rate)

    def _descend(self, step: int, rate: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.learning_rate * rate
        if self.recipe.gradient_clip:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.recipe.gradient_clip)
        self.optimiser.step()
        if self.average:
            weight = 1 / (1 + self.recipe.average * step)
            torch._foreach_lerp_(self.average, [p.detach() for p in self.parameters], weight)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within it the network has the averaged weights."""
        moving = [p.detach().clone() for p in self.parameters] if self.average else []
        _copy(self.average, self.parameters)
        try:
            yield
        finally:
            _copy(moving, self.parameters)

    def state(self) -> dict[str, Any]:
        """All of it, for a checkpoint."""
        return {"weights": self.module.state_dict(), "optimiser": self.optimiser.state_dict(), "average": self.average}

    def load(self, state: dict[str, Any]) -> None:
        """Put everything back to where it was."""
        self.module.load_state_dict(state["weights"])
        self.optimiser.load_state_dict(state["optimiser"])
        _copy(state.get("average", []), self.average)


def _copy(source: Sequence[Tensor], target: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for old, new in zip(target, source, strict=bool(source)):
            old.copy_(new)
