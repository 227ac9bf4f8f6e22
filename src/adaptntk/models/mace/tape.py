"""What the fast modules of a network share: the order of the batch, and what is remembered for gradients."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adaptntk.models.mace.layout import Layout


@cache
def index_tensor(numbers: tuple[int, ...], device: torch.device) -> Tensor:
    """A constant list of rows, on the device."""
    with torch.inference_mode(False):  # a tensor made in that mode could not enter a gradient later
        return torch.tensor(numbers, dtype=torch.int64, device=device)


class Gradient(NamedTuple):
    """Derivatives of the energy of each structure with respect to one parameter: (structures, numel)."""

    parameter: Tensor
    rows: Tensor


class Record(NamedTuple):
    """The output of a parametric operation and the input that its gradient needs."""

    leaf: "Leaf"
    key: Any
    output: Tensor
    saved: Tensor


@dataclass
class Context:
    """The state of one forward pass, shared by all fast modules of a network.

    ``records`` is None in an ordinary pass. Otherwise parameters are taken as constants, and the operations
    that they enter are remembered.
    """

    batch: Layout | None = None
    records: list[Record] | None = None
    gradients: dict[tuple["Leaf", Any], tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        assert self.batch is not None, "the network was called without the layout of its batch"
        return self.batch


class Leaf(torch.nn.Module):
    """A module that stands in for a parametric module of the stock network and uses its parameters.

    The stock module is kept out of torch's sight: its parameters must not be listed twice.
    """

    def __init__(self, stock: Any, context: Context) -> None:
        super().__init__()
        self._hidden = (stock, context)

    @property
    def stock(self) -> Any:
        return self._hidden[0]

    @property
    def context(self) -> Context:
        return self._hidden[1]

    def frozen(self, weight: Tensor) -> Tensor:
        """The weight, as a constant when gradients are taken by structure."""
        return weight if self.context.records is None else weight.detach()

    def watch(self, key: Any, output: Tensor, saved: Tensor) -> Tensor:
        """Remember an output that depends linearly on a parameter, and the factor it depends through."""
        if self.context.records is None:
            return output
        if not output.requires_grad:
            output = output.detach().requires_grad_(True)
        self.context.records.append(Record(self, key, output, saved.detach()))
        return output

    def watched(self) -> list[tuple[Any, tuple[Tensor, Tensor]]]:
        """Key, gradient of the output and saved input of all that was watched in this module."""
        return [(key, pair) for (leaf, key), pair in self.context.gradients.items() if leaf is self]

    def gradients(self) -> list[Gradient]:
        """Derivatives by structure of every parameter of the stock module."""
        raise NotImplementedError
