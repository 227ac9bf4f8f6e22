"""The radial networks of the fast twin: from the length of a pair to the weights of its message."""

from typing import Any

import torch
from torch import Tensor

from adaptntk.models.mace.stock import FullyConnectedNet
from adaptntk.models.mace.tape import Leaf, Rows, current_pass, index_tensor


class RadialNet(torch.nn.Module):
    """e3nn's FullyConnectedNet for features of pairs; ``columns`` is the order in which its outputs are wanted.

    A function of one number: so its slopes are carried forward, as more rows, rather than found by going back. They
    cost as much, but they are differentiated over the parameters in the same products as the values.
    """

    def __init__(self, stock: Any, columns: tuple[int, ...] | None = None) -> None:
        super().__init__()
        layers = [RadialLayer(layer) for layer in stock._modules.values()]
        layers[-1].columns = columns
        self.layers = torch.nn.ModuleList(layers)

    @staticmethod
    def handles(stock: Any) -> bool:
        return isinstance(stock, FullyConnectedNet)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        stretch = current_pass().stretch
        if stretch is None:
            return x
        values, slopes = x.chunk(2)
        return torch.addcmul(values, slopes, stretch)


class RadialLayer(Leaf):
    """A layer of e3nn's FullyConnectedNet."""

    columns: tuple[int, ...] | None = None

    def __init__(self, stock: Any) -> None:
        super().__init__(stock)
        variance = stock.h_in * stock.var_in / (1.0 if stock.act is not None else stock.var_out)
        self.factor = variance**-0.5
        self.numbers_per_edge = stock.weight.shape[1]

    def forward(self, x: Tensor) -> Tensor:
        stock: Any = self.stock
        weight = self.frozen(stock.weight) * self.factor
        if self.columns is not None:
            weight = weight.index_select(1, index_tensor(self.columns, weight.device))
        out = self.watch(x @ weight, x)
        if stock.act is None:
            return out
        out = stock.act(out) if current_pass().stretch is None else _SiLU.apply(out, stock.act.cst)
        return out if stock.var_out == 1 else out * stock.var_out**0.5

    def derive(self, rows: Rows, gradient: Tensor, x: Tensor, key: None) -> None:
        groups = self.layout.edges_of_graph
        found = (groups.collect(x).transpose(1, 2) @ groups.collect(gradient)) * self.factor
        wanted = slice(None) if self.columns is None else index_tensor(self.columns, found.device)
        rows(self.stock.weight)[:, :, wanted] += found


def carries_slopes(stock: Any) -> bool:
    """Whether we know the second derivative of its activation."""
    acts = [layer.act for layer in stock._modules.values() if layer.act is not None]
    return all(getattr(act, "f", None) is torch.nn.functional.silu for act in acts)


class _SiLU(torch.autograd.Function):
    """The activation of rows of values, and of as many rows of slopes below them; with a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        values, slopes = x.chunk(2)
        gate = torch.sigmoid(values)
        out = torch.empty_like(x)
        first, second = out.chunk(2)
        torch.mul(values, gate, out=first)
        # The first derivative: gate + values gate (1 - gate).
        derivative = torch.addcmul(gate, first, 1 - gate)
        torch.mul(derivative, slopes, out=second)
        ctx.save_for_backward(values, slopes, gate, derivative)
        ctx.factor = factor
        return out.mul_(factor)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        values, slopes, gate, derivative = ctx.saved_tensors
        found = gradient * ctx.factor
        first, second = found.chunk(2)
        # The second derivative: gate (1 - gate) (2 + values (1 - 2 gate)).
        curvature = torch.addcmul(torch.full_like(gate, 2.0), values, 1 - 2 * gate).mul_(gate * (1 - gate))
        first.mul_(derivative).addcmul_(curvature.mul_(slopes), second)
        second.mul_(derivative)
        return found, None
