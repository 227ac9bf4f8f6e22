"""Linear layers of the fast twin for features of atoms: one for all, and one for each element."""

import math
from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate, groupby, pairwise
from typing import Any, NamedTuple

from torch import Tensor

from adaptntk.models.mace.stock import o3
from adaptntk.models.mace.tape import Leaf, Rows, divided, joined


class Storage:
    """How features of given irreps lie in a row: runs of equal irreps, channels first (e3nn) or last.

    e3nn stores a run of equal irreps as if it were one with more channels.
    """

    def __init__(self, irreps: Any, last: bool) -> None:
        self.last = last
        self.shapes = merged_irreps(irreps)
        self.sizes = [mul * dim for mul, dim in self.shapes]

    def split(self, rows: Tensor) -> list[Tensor]:
        """(atoms, flat) to (atoms, components, channels) for each run."""
        parts = zip(divided(rows, self.sizes, dim=1), self.shapes, strict=True)
        if self.last:
            return [part.view(-1, dim, mul) for part, (mul, dim) in parts]
        return [part.view(-1, mul, dim).transpose(1, 2) for part, (mul, dim) in parts]

    def join(self, parts: list[Tensor]) -> Tensor:
        """The inverse of `split`."""
        return joined([(part if self.last else part.transpose(1, 2)).flatten(1) for part in parts], dim=1)


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

    ``paths`` and ``biases`` (their place among all biases) are by the number of the output.
    """

    def __init__(self, stock: Any, irreps_in: Any, last_in: bool, last_out: bool, elements: int = 1) -> None:
        super().__init__(stock)
        self.inputs, self.outputs = Storage(irreps_in, last_in), Storage(stock.irreps_out, last_out)
        self.elements = elements
        self.paths: dict[int, _Path] = {}
        self.biases: dict[int, slice] = {}

    def forward(self, x: Tensor, attributes: Tensor | None = None) -> Tensor:
        order = self.layout.order(self.elements)
        inputs = self.inputs.split(order.sort(x))
        weight = self.frozen(self.stock.weight)
        outputs = []
        for number, (mul, dim) in enumerate(self.outputs.shapes):
            if number not in self.paths:
                outputs.append(x.new_zeros(len(x), dim, mul))
                continue
            path = self.paths[number]
            matrices = (weight[path.weights].view(path.shape) * path.factor).unbind(1)
            parts = []
            for element, part in zip(order.values, divided(inputs[path.run], order.sizes), strict=True):
                # Over all atoms and components as one plain product.
                product = part.reshape(-1, part.shape[2]) @ matrices[element]
                product = product.view(*part.shape[:2], mul)
                if number in self.biases:
                    product = product + self.frozen(self.stock.bias)[self.biases[number]]
                parts.append(self.watch(product, part, (number, element)))
            outputs.append(joined(parts))
        return order.restore(self.outputs.join(outputs))

    def derive(self, rows: Rows, gradient: Tensor, x: Tensor, key: tuple[int, int]) -> None:
        number, element = key
        path, groups = self.paths[number], self.layout.groups(self.elements, element)
        g, x = groups.collect(gradient).flatten(1, 2), groups.collect(x).flatten(1, 2)
        weights = rows(self.stock.weight)[:, path.weights].unflatten(1, path.shape)
        weights[:, :, element] += (x.transpose(1, 2) @ g) * path.factor
        if number in self.biases:
            rows(self.stock.bias)[:, self.biases[number]] += g.sum(1)


class Linear(_AtomLayer):
    """e3nn's Linear for features of atoms, which come and go channels last or first."""

    def __init__(self, stock: Any, last_in: bool = False, last_out: bool = False) -> None:
        super().__init__(stock, stock.irreps_in, last_in, last_out)
        self.biases = _biases(stock)
        runs = _runs(stock.irreps_in)
        for number, feeding in _feeding(stock).items():
            (first, span), (_, last) = feeding[0], feeding[-1]
            mul = stock.irreps_out[number].mul
            shape = (last.stop - span.start) // mul, 1, mul
            self.paths[number] = _Path(runs[first.i_in], slice(span.start, last.stop), shape, first.path_weight)

    @staticmethod
    def handles(stock: Any) -> bool:
        """Every output must come from one whole run of inputs, by weights that lie together; or be zero."""
        if not isinstance(stock, o3.Linear) or not stock.internal_weights or stock.weight.ndim != 1:
            return False
        if len(merged_irreps(stock.irreps_out)) < len(stock.irreps_out):
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
        super().__init__(stock, stock.irreps_in1, last, last, elements=stock.irreps_in2.dim)
        for entry, span in _spans(stock.instructions):
            # The coupling with a scalar is a unit matrix over the root of the number of components.
            factor = entry.path_weight / math.sqrt(stock.irreps_out[entry.i_out].ir.dim)
            self.paths[entry.i_out] = _Path(entry.i_in1, span, entry.path_shape, factor)

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
