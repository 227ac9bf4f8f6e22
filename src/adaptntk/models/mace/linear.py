"""Linear layers of the fast twin: of atoms, of edges, and one for each element."""

import math
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adaptntk.models.mace.stock import o3
from adaptntk.models.mace.storage import Storage, merged_irreps, mix_channels
from adaptntk.models.mace.tape import Context, Gradient, Leaf, index_tensor


class Linear(Leaf):
    """e3nn's Linear for features of atoms.

    Args:
        last_in, last_out: whether features come and go channels last.
    """

    def __init__(self, stock: Any, context: Context, last_in: bool = False, last_out: bool = False) -> None:
        super().__init__(stock, context)
        self.inputs, self.outputs = Storage(stock.irreps_in, last_in), Storage(stock.irreps_out, last_out)
        runs = _runs(stock.irreps_in)
        self.paths: list[_Path | None] = []
        for number in range(len(stock.irreps_out)):
            feeding = _into(stock, number)
            if feeding:
                first, start, _ = feeding[0]
                self.paths.append(_Path(runs[first.i_in], start, feeding[-1][2], first.path_weight))
            else:
                self.paths.append(None)
        self.biases: dict[int, slice] = {}
        start = 0
        for entry in stock.instructions:
            if entry.i_in == -1:
                self.biases[entry.i_out] = slice(start, start + math.prod(entry.path_shape))
                start = self.biases[entry.i_out].stop

    @staticmethod
    def handles(stock: Any) -> bool:
        """Every output must come from one whole run of inputs, by weights that lie together."""
        if not isinstance(stock, o3.Linear) or not stock.internal_weights or stock.weight.ndim != 1:
            return False
        if len(merged_irreps(stock.irreps_out)) < len(stock.irreps_out):
            return False
        runs = _runs(stock.irreps_in)
        for number in range(len(stock.irreps_out)):
            feeding = _into(stock, number)
            if not feeding:
                continue
            inputs = [entry.i_in for entry, _, _ in feeding]
            run = [i for i, run in enumerate(runs) if run == runs[inputs[0]]]
            together = all(a[2] == b[1] for a, b in pairwise(feeding))
            if inputs != run or not together or len({entry.path_weight for entry, _, _ in feeding}) > 1:
                return False
        return True

    def forward(self, x: Tensor) -> Tensor:
        inputs = self.inputs.split(x)
        weight = self.frozen(self.stock.weight)
        outputs = []
        for number, (path, (mul, dim)) in enumerate(zip(self.paths, self.outputs.shapes, strict=True)):
            if path is None:
                out = x.new_zeros(len(x), dim, mul)
            else:
                out = mix_channels(inputs[path.run], weight[path.start : path.stop].view(-1, mul) * path.factor)
            if number in self.biases:
                out = out + self.frozen(self.stock.bias)[self.biases[number]]
            if path is not None or number in self.biases:
                out = self.watch(number, out, inputs[path.run] if path is not None else out)
            outputs.append(out)
        return self.outputs.join(outputs)

    def gradients(self) -> list[Gradient]:
        groups = self.context.layout.atoms_of_graph
        stock: Any = self.stock
        rows = stock.weight.new_zeros(groups.count, stock.weight.numel())
        bias = stock.bias.new_zeros(groups.count, stock.bias.numel())
        for number, (gradient, x) in self.watched():
            path = self.paths[number]
            if path is not None:
                g, x = groups.collect_padded(gradient).flatten(1, 2), groups.collect_padded(x).flatten(1, 2)
                rows[:, path.start : path.stop] = (x.transpose(1, 2) @ g).flatten(1) * path.factor
            if number in self.biases:
                bias[:, self.biases[number]] = groups.collect_padded(gradient).sum((1, 2))
        found = [Gradient(stock.weight, rows)]
        return [*found, Gradient(stock.bias, bias)] if stock.bias.numel() else found


class _Path(NamedTuple):
    """What feeds one output irrep of a Linear: a run of inputs, through these weights."""

    run: int
    start: int
    stop: int
    factor: float


def _runs(irreps: Any) -> list[int]:
    """For each irrep the number of the run of equal irreps it belongs to."""
    return [run for run, (_, members) in enumerate(groupby(ir for _, ir in irreps)) for _ in members]


def _into(stock: Any, output: int) -> list[tuple[Any, int, int]]:
    """The instructions of a Linear that feed one output, each with the range of its weights."""
    found, start = [], 0
    for entry in stock.instructions:
        stop = start + (math.prod(entry.path_shape) if entry.i_in != -1 else 0)
        if entry.i_out == output and stop > start:
            found.append((entry, start, stop))
        start = stop
    return found


class RadialLayer(Leaf):
    """A layer of e3nn's FullyConnectedNet, for features of edges.

    Args:
        columns: the order in which the outputs are wanted; as the stock network has it when None.
    """

    def __init__(self, stock: Any, context: Context, columns: list[int] | None = None) -> None:
        super().__init__(stock, context)
        variance = stock.h_in * stock.var_in / (1.0 if stock.act is not None else stock.var_out)
        self.factor = variance**-0.5
        self.columns = tuple(columns) if columns is not None else None

    @property
    def numbers_per_edge(self) -> int:
        return self.stock.weight.shape[1]

    def forward(self, x: Tensor) -> Tensor:
        stock: Any = self.stock
        weight = self.frozen(stock.weight) * self.factor
        if self.columns is not None:
            weight = weight.index_select(1, index_tensor(self.columns, weight.device))
        out = self.watch(0, x @ weight, x)
        if stock.act is None:
            return out
        out = stock.act(out)
        return out if stock.var_out == 1 else out * stock.var_out**0.5

    def gradients(self) -> list[Gradient]:
        if not self.watched():
            return []
        ((_, (gradient, x)),) = self.watched()
        groups = self.context.layout.edges_of_graph
        found = (groups.collect_padded(x).transpose(1, 2) @ groups.collect_padded(gradient)) * self.factor
        rows = found
        if self.columns is not None:
            rows = torch.empty_like(found)
            rows[:, :, index_tensor(self.columns, found.device)] = found
        return [Gradient(self.stock.weight, rows.flatten(1))]


class SelfConnection(Leaf):
    """e3nn's FullyConnectedTensorProduct of features with the one-hot element: a Linear for each element.

    Args:
        last: whether features come and go channels last.
    """

    def __init__(self, stock: Any, context: Context, last: bool) -> None:
        super().__init__(stock, context)
        self.inputs, self.outputs = Storage(stock.irreps_in1, last), Storage(stock.irreps_out, last)
        self.paths: dict[int, tuple[int, slice, tuple[int, ...], float]] = {}
        """For each output irrep that is fed: the input, and the range, shape and factor of its weights."""
        start = 0
        for entry in stock.instructions:
            span = slice(start, start + math.prod(entry.path_shape))
            # The coupling with a scalar is a unit matrix over the root of the number of components.
            factor = entry.path_weight / math.sqrt(stock.irreps_out[entry.i_out].ir.dim)
            self.paths[entry.i_out] = entry.i_in1, span, entry.path_shape, factor
            start = span.stop

    @staticmethod
    def handles(stock: Any) -> bool:
        """No two irreps alike, each output fed by one input at most, all through the one-hot scalars."""
        return (
            isinstance(stock, o3.TensorProduct)
            and stock.internal_weights
            and len(stock.irreps_in2) == 1
            and stock.irreps_in2[0].ir.is_scalar()
            and all(entry.connection_mode == "uvw" for entry in stock.instructions)
            and all(len(merged_irreps(irreps)) == len(irreps) for irreps in (stock.irreps_in1, stock.irreps_out))
            and len({entry.i_out for entry in stock.instructions}) == len(stock.instructions)
        )

    def forward(self, x: Tensor, attributes: Tensor) -> Tensor:
        order = self.context.layout.by_element
        inputs = self.inputs.split(order.sort(x))
        weight = self.frozen(self.stock.weight)
        outputs = []
        for number, (mul, dim) in enumerate(self.outputs.shapes):
            if number not in self.paths:
                outputs.append(x.new_zeros(len(x), dim, mul))
                continue
            i_in, span, shape, factor = self.paths[number]
            weights = (weight[span].view(shape) * factor).unbind(1)
            parts = [
                self.watch((number, element), mix_channels(part, weights[element]), part)
                for element, part in zip(order.values, inputs[i_in].split(order.sizes), strict=True)
            ]
            outputs.append(torch.cat(parts))
        return order.restore(self.outputs.join(outputs))

    def gradients(self) -> list[Gradient]:
        layout = self.context.layout
        weight: Any = self.stock.weight
        rows = weight.new_zeros(layout.graphs, weight.numel())
        for (number, element), (gradient, x) in self.watched():
            _, span, shape, factor = self.paths[number]
            groups = layout.graphs_of_element(element)
            g, x = groups.collect_padded(gradient).flatten(1, 2), groups.collect_padded(x).flatten(1, 2)
            rows[:, span].unflatten(1, shape)[:, :, element] = (x.transpose(1, 2) @ g) * factor
        return [Gradient(weight, rows)]
