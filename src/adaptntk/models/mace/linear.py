"""Linear layers of the fast twin for features of atoms: one for all, and one for each element."""

import math
from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate, groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from adaptntk.models.mace.stock import o3
from adaptntk.models.mace.tape import Leaf, Rows, divided, index_tensor, joined


class Storage:
    """How features of given irreps lie in a row: runs of equal irreps, channels first (e3nn) or last.

    e3nn stores a run of equal irreps as if it were one with more channels. With channels last, every run is padded to
    as many ``channels`` as the largest has, and a row is (components, channels).
    """

    def __init__(self, irreps: Any, last: bool) -> None:
        self.last = last
        self.shapes = merged_irreps(irreps)
        self.channels = max(mul for mul, _ in self.shapes)
        self.components = sum(dim for _, dim in self.shapes)
        borders = accumulate((dim for _, dim in self.shapes), initial=0)
        self.runs = [range(*span) for span in pairwise(borders)]
        # Where each channel of each component stands in e3nn's order; what only pads may stand anywhere.
        places, first = np.zeros((self.components, self.channels), dtype=int), 0
        for run, (mul, dim) in zip(self.runs, self.shapes, strict=True):
            places[run.start : run.stop, :mul] = first + np.arange(mul * dim).reshape(mul, dim).T
            first += mul * dim
        self._places = places

    def read(self, rows: Tensor, components: tuple[int, ...]) -> Tensor:
        """(atoms, flat) to (atoms, components, channels)."""
        if self.last:
            rows = rows.view(-1, self.components, self.channels)
            first, count = components[0], len(components)
            if components == tuple(range(first, first + count)):
                return rows.narrow(1, first, count)
            return rows.index_select(1, index_tensor(components, rows.device))
        wanted = tuple(self._places[list(components)].ravel().tolist())
        if wanted != tuple(range(rows.shape[1])):
            rows = rows.index_select(1, index_tensor(wanted, rows.device))
        return rows.view(-1, len(components), self.channels)

    def write(self, rows: Tensor) -> Tensor:
        """(atoms, components, channels) to (atoms, flat), where nothing is padded."""
        flat = rows.flatten(1)
        if self.last or self.components == 1:
            return flat
        return flat.index_select(1, index_tensor(tuple(np.argsort(self._places, axis=None).tolist()), rows.device))


def merged_irreps(irreps: Any) -> list[tuple[int, int]]:
    """(multiplicity, components) of each run of equal irreps."""
    return [(sum(mul for mul, _ in run), ir.dim) for ir, run in groupby(irreps, key=lambda entry: entry[1])]


class _Path(NamedTuple):
    """What feeds one output irrep: a run of inputs, by these weights, (channels in, elements, channels out)."""

    run: int
    weights: slice
    shape: tuple[int, ...]
    factor: float


class _AtomLayer(Leaf):
    """Each output irrep is an input times a matrix over the channels, which may be another for each element.

    All components are one batched product: the matrices of each are rows of the weights times the constant, which
    is zero where nothing feeds. ``paths`` and ``biases`` (their place among all biases) are by number of the output.
    """

    def __init__(
        self,
        stock: Any,
        storages: tuple[Storage, Storage],
        paths: dict[int, _Path],
        biases: dict[int, slice],
        elements: int = 1,
    ) -> None:
        super().__init__(stock)
        self.inputs, self.outputs = storages
        self.paths, self.biases, self.elements = paths, biases, elements
        width = self.outputs.channels
        shape = self.outputs.components, self.inputs.channels
        rows, factors, takes = np.zeros((elements, *shape), dtype=int), np.zeros(shape), np.zeros(shape[0], dtype=int)
        for number, path in paths.items():
            run, count = self.outputs.runs[number], path.shape[0]
            here = slice(run.start, run.stop), slice(count)
            takes[here[0]] = self.inputs.runs[path.run]
            factors[here] = path.factor
            of_path = path.weights.start // width + np.arange(count * elements).reshape(count, elements).T
            rows[:, *here] = of_path[:, None]
        self.constant = torch.as_tensor(factors.reshape(-1, 1))
        self._takes = tuple(takes.tolist())
        self._rows = [tuple(of_element.ravel().tolist()) for of_element in rows]

    @staticmethod
    def uniform(irreps: Any) -> bool:
        """No two irreps alike, and all with as many channels."""
        return len(merged_irreps(irreps)) == len(irreps) and len({mul for mul, _ in irreps}) == 1

    def forward(self, x: Tensor, attributes: Tensor | None = None) -> Tensor:
        if not self.paths:
            return x.new_zeros(len(x), self.stock.irreps_out.dim)
        order = self.layout.order(self.elements)
        inputs = self.inputs.read(order.sort(x), self._takes)
        rows = sum((self._rows[element] for element in order.values), ())
        width = self.outputs.channels
        weight = self.frozen(self.stock.weight).view(-1, width).index_select(0, index_tensor(rows, x.device))
        weight = weight.view(len(order.values), -1, width) * self.constant_like(x)
        matrices = weight.view(len(order.values), self.outputs.components, self.inputs.channels, width).unbind(0)
        parts = []
        for element, matrix, part in zip(order.values, matrices, divided(inputs, order.sizes), strict=True):
            product = torch.bmm(part.transpose(0, 1), matrix)
            for number, place in self.biases.items():
                run = self.outputs.runs[number]
                bias = self.frozen(self.stock.bias)[place].expand(len(run), 1, -1)
                product = product + pad(bias, (0, 0, 0, 0, run.start, len(product) - run.stop))
            parts.append(self.watch(product, part, element))
        return order.restore(self.outputs.write(joined(parts, 1).transpose(0, 1)))

    def derive(self, rows: Rows, gradient: Tensor, x: Tensor, element: int) -> None:
        groups = self.layout.groups(self.elements, element)
        gradient, x = groups.collect(gradient.transpose(0, 1)), groups.collect(x)
        for number, path in self.paths.items():
            run = self.outputs.runs[number]
            g = gradient[:, :, run.start : run.stop].flatten(1, 2)
            entering = x[:, :, run.start : run.stop, : path.shape[0]].flatten(1, 2)
            weights = rows(self.stock.weight)[:, path.weights].unflatten(1, path.shape)
            weights[:, :, element] += (entering.transpose(1, 2) @ g) * path.factor
            if number in self.biases:
                rows(self.stock.bias)[:, self.biases[number]] += g.sum(1)


class Linear(_AtomLayer):
    """e3nn's Linear for features of atoms, which come and go channels last or first."""

    def __init__(self, stock: Any, last_in: bool = False, last_out: bool = False) -> None:
        runs, paths = _runs(stock.irreps_in), {}
        for number, feeding in _feeding(stock).items():
            (first, span), (_, last) = feeding[0], feeding[-1]
            mul = stock.irreps_out[number].mul
            shape = (last.stop - span.start) // mul, 1, mul
            paths[number] = _Path(runs[first.i_in], slice(span.start, last.stop), shape, first.path_weight)
        storages = Storage(stock.irreps_in, last_in), Storage(stock.irreps_out, last_out)
        super().__init__(stock, storages, paths, _biases(stock))

    @staticmethod
    def handles(stock: Any) -> bool:
        """Every output must come from one whole run of inputs, by weights that lie together; or be zero."""
        if not isinstance(stock, o3.Linear) or not stock.internal_weights or stock.weight.ndim != 1:
            return False
        if not Linear.uniform(stock.irreps_out):
            return False
        runs, paths = _runs(stock.irreps_in), _feeding(stock)
        for feeding in paths.values():
            inputs = [entry.i_in for entry, _ in feeding]
            run = [i for i, run in enumerate(runs) if run == runs[inputs[0]]]
            together = all(a.stop == b.start for (_, a), (_, b) in pairwise(feeding))
            if inputs != run or not together or len({entry.path_weight for entry, _ in feeding}) > 1:
                return False
        return _biases(stock).keys() <= paths.keys()


def _runs(irreps: Any) -> list[int]:
    """For each irrep the number of the run of equal irreps it belongs to."""
    return [run for run, (_, members) in enumerate(groupby(ir for _, ir in irreps)) for _ in members]


def _spans(entries: Iterable[Any]) -> list[tuple[Any, slice]]:
    """Instructions of e3nn, each with the place of its weights among those of all."""
    entries = list(entries)
    borders = accumulate((math.prod(entry.path_shape) for entry in entries), initial=0)
    return [(entry, slice(*span)) for entry, span in zip(entries, pairwise(borders), strict=True)]


def _feeding(stock: Any) -> dict[int, list[tuple[Any, slice]]]:
    """For each output of a Linear that is fed, the instructions that do."""
    found = defaultdict(list)
    for entry, span in _spans(entry for entry in stock.instructions if entry.i_in != -1):
        if span.stop > span.start:
            found[entry.i_out].append((entry, span))
    return found


def _biases(stock: Any) -> dict[int, slice]:
    return {entry.i_out: span for entry, span in _spans(entry for entry in stock.instructions if entry.i_in == -1)}


class SelfConnection(_AtomLayer):
    """e3nn's FullyConnectedTensorProduct of features with the one-hot element: a Linear for each element."""

    def __init__(self, stock: Any, last: bool) -> None:
        paths = {}
        for entry, span in _spans(stock.instructions):
            # The coupling with a scalar is a unit matrix over the root of the number of components.
            factor = entry.path_weight / math.sqrt(stock.irreps_out[entry.i_out].ir.dim)
            paths[entry.i_out] = _Path(entry.i_in1, span, entry.path_shape, factor)
        storages = Storage(stock.irreps_in1, last), Storage(stock.irreps_out, last)
        super().__init__(stock, storages, paths, {}, elements=stock.irreps_in2.dim)

    @staticmethod
    def handles(stock: Any) -> bool:
        """Each output fed by one input at most, all through the one-hot scalars."""
        return (
            isinstance(stock, o3.TensorProduct)
            and stock.internal_weights
            and len(stock.irreps_in2) == 1
            and stock.irreps_in2[0].ir.is_scalar()
            and all(entry.connection_mode == "uvw" for entry in stock.instructions)
            and all(SelfConnection.uniform(irreps) for irreps in (stock.irreps_in1, stock.irreps_out))
            and len({entry.i_out for entry in stock.instructions}) == len(stock.instructions)
        )
