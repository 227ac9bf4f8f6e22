"""MACE's symmetric contraction as one matrix product per element and channel.

The contraction is a polynomial: for an atom of element e, channel c and features ``x_1 .. x_I``

    out_m = sum_k w1[e,k,c] U1[m,i,k] x_i + sum_k w2[e,k,c] U2[m,i,j,k] x_i x_j + (up to degree 3).

MACE contracts the sparse tensors U with weights and features atom by atom, through intermediates of I^2 numbers
per atom and channel. But the coefficients of the polynomial depend on element and channel only, and parity
leaves few of them. An even output of degree 3 always holds at least one even factor, an odd one at least one
odd factor, and what remains is an even product of degree 2 at most. So with the even products of degree 0, 1
and 2 as a basis b (83 of them for l <= 3, from 16 features)

    out_m = t_m + sum_l t_{m,l} x_l,      t = V[e,c] b,

where V collects U and w, t has a handful of rows, and ``V b`` is a matrix product over all atoms of an element.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adaptntk.models.mace_tape import Context, Gradient, Leaf, index_tensor

MAX_DEGREE = 3

Product = tuple[int, ...]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Output:
    """One output irrep: ``out_m = t_m + sum_f t_{m,f} x_f`` over the features in ``factors``.

    ``spread`` (paths x columns x rows) turns the weights of all paths into V. Its columns are (component m, term),
    the terms being the bare product, if ``bare``, and one for each factor.
    """

    components: int
    bare: bool
    factors: tuple[int, ...]
    spread: Array


@dataclass(frozen=True)
class Polynomial:
    """Which products occur, and how U spreads the weights over them."""

    singles: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    outputs: tuple[Output, ...]

    @classmethod
    def build(cls, parities: list[int], tensors: list[tuple[int, list[Array]]]) -> "Polynomial":
        """From the parity of each feature, and for each output its parity and ``U_1, U_2, ...``.

        Each U is (components, I, .., I, paths).
        """
        terms = [_terms(parities, parity, by_degree) for parity, by_degree in tensors]
        rows = sorted({rest for output in terms for _, rest in output}, key=lambda row: (len(row), row))
        rows = [(), *(row for row in rows if row)]
        outputs = []
        for (_, by_degree), output in zip(tensors, terms, strict=True):
            bare = any(factor is None for factor, _ in output)
            factors = sorted({factor for factor, _ in output if factor is not None})
            columns: list[int | None] = [None, *factors] if bare else [*factors]
            components, paths = by_degree[0].shape[0], sum(u.shape[-1] for u in by_degree)
            spread = np.zeros((paths, components, len(columns), len(rows)))
            for (factor, rest), values in output.items():
                spread[:, :, columns.index(factor), rows.index(rest)] += values.T
            outputs.append(Output(components, bare, tuple(factors), spread.reshape(paths, -1, len(rows))))
        singles = tuple(row[0] for row in rows if len(row) == 1)
        pairs = tuple((row[0], row[1]) for row in rows if len(row) == 2)
        return cls(singles, pairs, tuple(outputs))

    def basis(self, x: Tensor) -> Tensor:
        """The even products but the constant one, of features (I, ...): (rows - 1, ...)."""
        parts = [x.index_select(0, index_tensor(self.singles, x.device))] if self.singles else []
        if self.pairs:
            first, second = (index_tensor(column, x.device) for column in zip(*self.pairs, strict=True))
            parts.append(x.index_select(0, first) * x.index_select(0, second))
        return torch.cat(parts)


def _terms(parities: list[int], parity: int, by_degree: list[Array]) -> dict[tuple[int | None, Product], Array]:
    """Coefficients (components x paths of all degrees) of each (factor, remaining product)."""
    paths = sum(u.shape[-1] for u in by_degree)
    terms: dict[tuple[int | None, Product], Array] = defaultdict(lambda: np.zeros((by_degree[0].shape[0], paths)))
    first = 0
    for u in by_degree:
        flat = u.reshape(u.shape[0], -1, u.shape[-1])
        for place in np.flatnonzero(np.abs(flat).max(axis=(0, 2))):
            indices = np.unravel_index(place, u.shape[1:-1])
            split = _split(tuple(sorted(int(i) for i in indices)), parities, parity)
            terms[split][:, first : first + u.shape[-1]] += flat[:, place]
        first += u.shape[-1]
    return dict(terms)


def _split(product: Product, parities: list[int], parity: int) -> tuple[int | None, Product]:
    """A product as a single factor, or none, times an even product of degree two at most."""
    if parity > 0 and len(product) < MAX_DEGREE:
        return None, product
    factor = next(i for i in product if parities[i] == parity)
    rest = list(product)
    rest.remove(factor)
    return factor, tuple(rest)


class Contraction(Leaf):
    """The function of MACE's SymmetricContraction, with its weights.

    Features arrive as (atoms, I, channels) and leave flat, channels last.
    """

    def __init__(self, stock: Any, context: Context) -> None:
        super().__init__(stock, context)
        first = stock.contractions[0]
        parities = [ir.p for _, ir in first.coupling_irreps for _ in range(ir.dim)]
        irreps = [ir for _, ir in stock.irreps_out]
        tensors = [
            (ir.p, [_components_first(u, ir.dim) for u in _tensors(part)])
            for ir, part in zip(irreps, stock.contractions, strict=True)
        ]
        self.polynomial = Polynomial.build(parities, tensors)
        self.elements = int(first.weights_max.shape[0])
        self._spread: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}

    @staticmethod
    def handles(stock: Any) -> bool:
        return all(part.correlation <= MAX_DEGREE for part in stock.contractions)

    def forward(self, x: Tensor, attributes: Tensor) -> Tensor:
        order = self.context.layout.by_element if self.elements > 1 else self.context.layout.alike
        # (features, channels, atoms): products of features are then products of long contiguous rows.
        x = order.sort(x).permute(1, 2, 0).contiguous()
        weights = [torch.cat(parts, dim=1) for parts in self._weights()]
        spread = self._spread_like(x)
        results: list[list[Tensor]] = [[] for _ in weights]
        for element, part in zip(order.values, x.split(order.sizes, dim=2), strict=True):
            basis = self.polynomial.basis(part).transpose(0, 1)
            for number, output in enumerate(self.polynomial.outputs):
                weight = self.frozen(weights[number][element])
                v = (weight.T @ spread[number].flatten(1)).view(weight.shape[1], *spread[number].shape[1:])
                t = torch.baddbmm(v[:, :, :1], v[:, :, 1:], basis)
                t = self.watch((element, number), t, basis)
                results[number].append(_multiply_factors(output, t, part))
        # (channels, components, atoms) of each output.
        joined = [torch.cat(parts, dim=2) for parts in results]
        flat = [out.permute(2, 1, 0).flatten(1) for out in joined]
        return order.restore(torch.cat(flat, dim=1))

    def gradients(self) -> list[Gradient]:
        layout = self.context.layout
        found: dict[tuple[int, int], Tensor] = {}
        for (element, number), (gradient, basis) in self.watched():
            groups = layout.graphs_of_element(element) if self.elements > 1 else layout.atoms_of_graph
            # Sums over the atoms of a structure, for each channel: (graphs, channels, columns, rows).
            g = groups.collect_padded(gradient.permute(2, 0, 1)).permute(0, 2, 3, 1)
            ones = torch.ones_like(basis[:, :1])
            b = groups.collect(torch.cat([ones, basis], dim=1).permute(2, 0, 1)).permute(0, 2, 1, 3)
            coefficients = (g @ b).flatten(2)
            spread = self._spread_like(gradient)[number].flatten(1)
            found[element, number] = (coefficients @ spread.T).transpose(1, 2)
        result = []
        for number, parts in enumerate(self._weights()):
            first = 0
            for weight in parts:
                rows = weight.new_zeros(layout.graphs, *weight.shape)
                for element in range(self.elements):
                    if (element, number) in found:
                        rows[:, element] = found[element, number][:, first : first + weight.shape[1]]
                result.append(Gradient(weight, rows.flatten(1)))
                first += weight.shape[1]
        return result

    def _weights(self) -> list[list[Tensor]]:
        """For each output its weights by rising degree, each (elements, paths, channels)."""
        parts = self.stock.contractions
        return [[*reversed(list(part.weights)), part.weights_max] for part in parts]

    def _spread_like(self, x: Tensor) -> list[Tensor]:
        key = x.dtype, x.device
        if key not in self._spread:
            outputs = self.polynomial.outputs
            self._spread[key] = [torch.as_tensor(out.spread, dtype=x.dtype, device=x.device) for out in outputs]
        return self._spread[key]


def _multiply_factors(output: Output, t: Tensor, x: Tensor) -> Tensor:
    """``t_m + sum_f t_{m,f} x_f``: (channels, columns, atoms) to (channels, components, atoms)."""
    t = t.view(t.shape[0], output.components, output.bare + len(output.factors), t.shape[2])
    if output.bare and not output.factors:
        return t[:, :, 0]
    features = x.index_select(0, index_tensor(output.factors, x.device)).transpose(0, 1).unsqueeze(1)
    if not output.bare:
        return (t * features).sum(2)
    bare, multiplied = t.split([1, len(output.factors)], dim=2)
    return bare.squeeze(2) + (multiplied * features).sum(2)


def _tensors(part: Any) -> list[Tensor]:
    return [part.U_tensors(degree) for degree in range(1, part.correlation + 1)]


def _components_first(u: Tensor, components: int) -> Array:
    """MACE leaves out the axis of components when there is only one."""
    array = u.detach().double().cpu().numpy()
    return array[None] if components == 1 else array
