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
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import block_diag
from torch import Tensor

from adaptntk.models.mace.tape import Leaf, Rows, divided, index_tensor, joined

MAX_DEGREE = 3

Product = tuple[int, ...]
Array = NDArray[np.float64]


class _Output(NamedTuple):
    """One output irrep: ``out_m = t_m + sum_f t_{m,f} x_f`` over the features in ``factors``; t_m only if ``bare``."""

    components: int
    bare: bool
    factors: tuple[int, ...]

    def multiply(self, t: Tensor, x: Tensor) -> Tensor:
        """Columns (channels, columns, atoms) times features (I, channels, atoms): (channels, components, atoms)."""
        t = t.view(t.shape[0], self.components, self.bare + len(self.factors), t.shape[2])
        if self.bare and not self.factors:
            return t.squeeze(2)
        features = x.index_select(0, index_tensor(self.factors, x.device)).transpose(0, 1).unsqueeze(1)
        if not self.bare:
            return (t * features).sum(2)
        bare, multiplied = t.split([1, len(self.factors)], dim=2)
        return bare.squeeze(2) + (multiplied * features).sum(2)


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

    Features arrive as (atoms, I, channels) and leave flat, channels last. The constant (paths x columns x rows) turns
    the weights of all paths into V, in a block for each output. Columns are (component m, term), the terms being the
    bare product and one for each factor; rows are the products of the basis.
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
        self.singles = tuple(row[0] for row in rows if len(row) == 1)
        self.pairs = tuple(row for row in rows if len(row) == 2)
        self.outputs: list[_Output] = []
        blocks = []
        for (ir, by_degree), output in zip(tensors, terms, strict=True):
            # None, which stands for no factor, comes first.
            columns = sorted({factor for factor, _ in output}, key=lambda factor: -1 if factor is None else factor)
            block = np.zeros((sum(u.shape[-1] for u in by_degree), ir.dim, len(columns), len(rows)))
            for (factor, rest), values in output.items():
                block[:, :, columns.index(factor), rows.index(rest)] += values.T
            blocks.append(block.reshape(len(block), ir.dim * len(columns), len(rows)))
            factors = tuple(factor for factor in columns if factor is not None)
            self.outputs.append(_Output(ir.dim, None in columns, factors))
        self.paths, self.columns = ([block.shape[axis] for block in blocks] for axis in (0, 1))
        by_row = [block_diag(*(block[..., row] for block in blocks)) for row in range(len(rows))]
        self.constant = torch.as_tensor(np.stack(by_row, axis=-1))
        self.elements = int(first.weights_max.shape[0])
        self.numbers_per_atom = first.num_features * (len(rows) + sum(self.columns))

    @staticmethod
    def handles(stock: Any) -> bool:
        return all(part.correlation <= MAX_DEGREE for part in stock.contractions)

    def forward(self, x: Tensor, attributes: Tensor) -> Tensor:
        order = self.layout.order(self.elements)
        # (features, channels, atoms): products of features are then products of long contiguous rows.
        x = order.sort(x).permute(1, 2, 0).contiguous()
        basis = self._basis(x).transpose(0, 1)
        # One matrix (columns x rows) for each element that is there, and channel.
        weights = self.frozen(torch.cat([weight for parts in self._weights() for weight in parts], dim=1))
        if len(order.values) < self.elements:
            weights = weights.index_select(0, index_tensor(tuple(order.values), x.device))
        spread = self.constant_like(x)
        v = weights.transpose(1, 2).reshape(-1, spread.shape[0]) @ spread.flatten(1)
        v = v.view(len(order.values), -1, *spread.shape[1:])
        by_element = zip(order.values, v[..., :1], v[..., 1:], divided(basis, order.sizes, dim=2), strict=True)
        parts = [
            self.watch(torch.baddbmm(constant, matrix, part), part, element)
            for element, constant, matrix, part in by_element
        ]
        outputs = zip(self.outputs, divided(joined(parts, 2), self.columns, dim=1), strict=True)
        results = joined([output.multiply(part, x) for output, part in outputs], 1)
        # Channels last within each irrep: components of all of them, then channels.
        return order.restore(results.permute(2, 1, 0).flatten(1))

    def derive(self, rows: Rows, gradient: Tensor, basis: Tensor, element: int) -> None:
        groups = self.layout.groups(self.elements, element)
        # Sums over the atoms of a structure, for each channel: (graphs, channels, columns, rows).
        g = groups.collect(gradient.permute(2, 0, 1)).permute(0, 2, 3, 1)
        ones = torch.ones_like(basis[:, :1])
        b = groups.collect(torch.cat([ones, basis], dim=1).permute(2, 0, 1)).permute(0, 2, 1, 3)
        by_path = self.constant_like(gradient).split(self.paths)
        by_output = zip(self._weights(), (g @ b).split(self.columns, dim=2), by_path, strict=True)
        for number, (weights, matrix, spread) in enumerate(by_output):
            block = spread.split(self.columns, dim=1)[number].contiguous()
            found = (matrix.flatten(2) @ block.flatten(1).T).transpose(1, 2)
            for weight, part in zip(weights, found.split([w.shape[1] for w in weights], dim=1), strict=True):
                rows(weight)[:, element] += part

    def _basis(self, x: Tensor) -> Tensor:
        """The even products but the constant one, of features (I, ...): (rows - 1, ...)."""
        parts = [x.index_select(0, index_tensor(self.singles, x.device))] if self.singles else []
        if self.pairs:
            first, second = (index_tensor(column, x.device) for column in zip(*self.pairs, strict=True))
            parts.append(x.index_select(0, first) * x.index_select(0, second))
        return torch.cat(parts)

    def _weights(self) -> list[list[Tensor]]:
        """For each output its weights by rising degree, each (elements, paths, channels)."""
        return [[*reversed(list(part.weights)), part.weights_max] for part in self.stock.contractions]
