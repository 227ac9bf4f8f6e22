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

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from adaptntk.models.mace.tape import Leaf, Rows, divided, index_tensor, joined

MAX_DEGREE = 3

Product = tuple[int, ...]
Array = NDArray[np.float64]


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

    Features arrive as (atoms, I, channels) and leave flat, channels last. The constant turns the weights of each output
    into its part of V, by a block (paths x columns x rows). Columns are (component m, term), the terms being the bare
    product and one for each factor, padded to as many ``terms`` for all outputs; rows are the products of the basis.
    A feature that is always one stands for what is missing in a product, and for the factor of a bare one.
    """

    def __init__(self, stock: Any) -> None:
        super().__init__(stock)
        first = stock.contractions[0]
        parities = [ir.p for _, ir in first.coupling_irreps for _ in range(ir.dim)]
        tensors = []
        for (_, ir), part in zip(stock.irreps_out, stock.contractions, strict=True):
            by_degree = [part.U_tensors(degree).detach().double().cpu() for degree in range(1, part.correlation + 1)]
            # (components, I, .., I, paths); MACE leaves out the axis of components when there is only one.
            tensors.append((ir, [(u[None] if ir.dim == 1 else u).numpy() for u in by_degree]))
        terms = [_terms(parities, ir.p, by_degree) for ir, by_degree in tensors]
        rows = sorted({(), *(rest for output in terms for _, rest in output)}, key=lambda row: (len(row), row))
        one = len(parities)
        self.products = tuple(zip(*((*row, one, one)[:2] for row in rows), strict=True))
        # None, which stands for no factor, comes first.
        columns = [sorted({f for f, _ in output}, key=lambda f: -1 if f is None else f) for output in terms]
        self.terms = max(map(len, columns))
        factors: list[int] = []
        blocks = []
        for (ir, by_degree), output, wanted in zip(tensors, terms, columns, strict=True):
            block = np.zeros((sum(u.shape[-1] for u in by_degree), ir.dim, self.terms, len(rows)))
            for (factor, rest), values in output.items():
                block[:, :, wanted.index(factor), rows.index(rest)] += values.T
            blocks.append(block)
            padded = [one if factor is None else factor for factor in wanted] + [one] * (self.terms - len(wanted))
            factors += padded * ir.dim
        self.factors = tuple(factors)
        self.shapes = [(len(block), block.shape[1] * self.terms, len(rows)) for block in blocks]
        self.columns = [columns for _, columns, _ in self.shapes]
        self.constant = torch.as_tensor(np.concatenate([block.ravel() for block in blocks]))
        self.elements = int(first.weights_max.shape[0])
        self.numbers_per_atom = first.num_features * (len(rows) + sum(self.columns))

    @staticmethod
    def handles(stock: Any) -> bool:
        return all(part.correlation <= MAX_DEGREE for part in stock.contractions)

    def forward(self, x: Tensor, attributes: Tensor) -> Tensor:
        order = self.layout.order(self.elements)
        # (features, channels, atoms): products of features are then products of long contiguous rows.
        x = pad(order.sort(x).permute(1, 2, 0), (0, 0, 0, 0, 0, 1), value=1.0)
        left, right, factors = (
            x.index_select(0, index_tensor(places, x.device)) for places in (*self.products, self.factors)
        )
        basis = (left * right).transpose(0, 1)
        by_element = zip(order.values, self._matrices(order.values), divided(basis, order.sizes, dim=2), strict=True)
        parts = [self.watch(torch.bmm(matrix, part), part, element) for element, matrix, part in by_element]
        products = (joined(parts, 2) * factors.transpose(0, 1)).unflatten(1, (-1, self.terms))
        # Channels last within each irrep: components of all of them, then channels.
        return order.restore(products.sum(2).permute(2, 1, 0).flatten(1))

    def derive(self, rows: Rows, gradient: Tensor, basis: Tensor, element: int) -> None:
        groups = self.layout.groups(self.elements, element)
        # Sums over the atoms of a structure, for each channel: (graphs, channels, columns, rows).
        g = groups.collect(gradient.permute(2, 0, 1)).permute(0, 2, 3, 1)
        b = groups.collect(basis.permute(2, 0, 1)).permute(0, 2, 1, 3)
        by_output = zip(self._weights(), (g @ b).split(self.columns, dim=2), self._blocks(gradient), strict=True)
        for weights, matrix, block in by_output:
            found = (matrix.flatten(2) @ block.T).transpose(1, 2)
            for weight, part in zip(weights, found.split([w.shape[1] for w in weights], dim=1), strict=True):
                rows(weight)[:, element] += part

    def _matrices(self, elements: list[int]) -> Sequence[Tensor]:
        """V of each of these elements: (channels, columns, rows)."""
        found = []
        for weights, block, shape in zip(
            self._weights(), self._blocks(self._weights()[0][0]), self.shapes, strict=True
        ):
            weight = self.frozen(torch.cat(weights, dim=1))
            if len(elements) < self.elements:
                weight = weight.index_select(0, index_tensor(tuple(elements), weight.device))
            v = weight.transpose(1, 2).reshape(-1, shape[0]) @ block
            found.append(v.view(len(elements), -1, *shape[1:]))
        return joined(found, 2).unbind(0)

    def _blocks(self, like: Tensor) -> list[Tensor]:
        """The constant of each output, (paths, columns x rows)."""
        parts = self.constant_like(like).split([math.prod(shape) for shape in self.shapes])
        return [part.view(shape[0], -1) for part, shape in zip(parts, self.shapes, strict=True)]

    def _weights(self) -> list[list[Tensor]]:
        """For each output its weights by rising degree, each (elements, paths, channels)."""
        return [[*reversed(list(part.weights)), part.weights_max] for part in self.stock.contractions]
