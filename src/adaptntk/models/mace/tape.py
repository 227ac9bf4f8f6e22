"""What the fast modules of a network share: the batch of a pass, and what is remembered for its gradients."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adaptntk.models.mace.layout import Layout

Rows = Callable[[Tensor], Tensor]
"""Where the derivatives over a parameter are added up: (structures, *shape of the parameter)."""


class Record(NamedTuple):
    """The output of a parametric operation, the input that its gradient needs, and which one of the leaf it is."""

    leaf: "Leaf"
    output: Tensor
    saved: Tensor
    key: Any


@dataclass
class Pass:
    """A batch on its way through the network."""

    layout: Layout
    tape: list[Record] | None
    slopes: bool
    stretch: Tensor | None = None
    """By how much each pair is longer than it is, zero: set where radial functions come with their slopes as rows."""


_PASS: ContextVar[Pass] = ContextVar("pass")


@contextmanager
def forward_pass(layout: Layout, tape: list[Record] | None = None, slopes: bool = False) -> Iterator[None]:
    """Within it, fast modules may be called with a batch of that layout, in this thread.

    With a tape, parameters are taken as constants, and the operations that they enter are remembered on it. With
    ``slopes``, results can be differentiated over the geometry, once.
    """
    token = _PASS.set(Pass(layout, tape, slopes))
    try:
        yield
    finally:
        _PASS.reset(token)


def current_pass() -> Pass:
    """The pass that this thread is within."""
    return _PASS.get()


@cache
def index_tensor(numbers: tuple[int, ...], device: torch.device) -> Tensor:
    """A constant list of rows, on the device."""
    with torch.inference_mode(False):  # a tensor made in that mode could not enter a gradient later
        return torch.tensor(numbers, dtype=torch.int64, device=device)


def joined(parts: list[Tensor], dim: int = 0) -> Tensor:
    """All parts in one tensor, without a copy if there is only one."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)


def divided(rows: Tensor, sizes: list[int], dim: int = 0) -> Sequence[Tensor]:
    """The inverse of `joined`."""
    return [rows] if len(sizes) == 1 else rows.split(sizes, dim=dim)


class Leaf(torch.nn.Module):
    """A module that stands in for a module of the stock network and uses its parameters."""

    numbers_per_edge = 0
    numbers_per_atom = 0
    """How many numbers it holds for each, about."""
    stock: Any
    constant: Tensor

    def __init__(self, stock: Any) -> None:
        super().__init__()
        # Not as torch registers modules: its parameters must not be listed twice.
        self.__dict__["stock"] = stock
        self._constants: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    @property
    def layout(self) -> Layout:
        return _PASS.get().layout

    def constant_like(self, x: Tensor) -> Tensor:
        """The constant of the module, in the precision and on the device of ``x``."""
        key = x.dtype, x.device
        if key not in self._constants:
            with torch.inference_mode(False):
                self._constants[key] = self.constant.to(x, copy=True)
        return self._constants[key]

    def frozen(self, weight: Tensor) -> Tensor:
        """The weight, as a constant when gradients are taken by structure."""
        return weight if _PASS.get().tape is None else weight.detach()

    def watch(self, output: Tensor, saved: Tensor, key: Any = None) -> Tensor:
        """Remember an output that depends linearly on a parameter, and the factor it depends through."""
        tape = _PASS.get().tape
        if tape is None:
            return output
        if not output.requires_grad:
            output = output.detach().requires_grad_(True)
        tape.append(Record(self, output, saved.detach(), key))
        return output

    def derive(self, rows: Rows, gradient: Tensor, saved: Tensor, key: Any) -> None:
        """Add the derivatives by structure over parameters, from that over an output that was watched."""
        raise NotImplementedError
