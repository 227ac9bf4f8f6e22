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

from adaptntk.models.mace.tape import Context, Gradient, Leaf, index_tensor

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

    @property
    def terms(self) -> int:
        return self.bare + len(self.factors)

    def multiply(self, t: Tensor, x: Tensor) -> Tensor:
        """Columns (channels, columns, atoms) times features (I, channels, atoms): (channels, components, atoms)."""
        t = t.view(t.shape[0], self.components, self.terms, t.shape[2])
        if self.bare and not self.factors:
            return t.squeeze(2)
        features = x.index_select(0, index_tensor(self.factors, x.device)).transpose(0, 1).unsqueeze(1)
        if not self.bare:
            return (t * features).sum(2)
        bare, multiplied = t.split([1, len(self.factors)], dim=2)
        return bare.squeeze(2) + (multiplied * features).sum(2)


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
            spread = spread.reshape(paths, components * len(columns), len(rows))
            outputs.append(Output(components, bare, tuple(factors), spread))
        singles = tuple(row[0] for row in rows if len(row) == 1)
        pairs = tuple((row[0], row[1]) for row in rows if len(row) == 2)
        return cls(singles, pairs, tuple(outputs))

    @property
    def paths(self) -> list[int]:
        return [output.spread.shape[0] for output in self.outputs]

    @property
    def columns(self) -> list[int]:
        return [output.spread.shape[1] for output in self.outputs]

    def spread(self) -> Array:
        """That of all outputs in one, block by block."""
        rows = self.outputs[0].spread.shape[2]
        whole = np.zeros((sum(self.paths), sum(self.columns), rows))
        path = column = 0
        for part in (output.spread for output in self.outputs):
            whole[path : path + part.shape[0], column : column + part.shape[1]] = part
            path, column = path + part.shape[0], column + part.shape[1]
        return whole

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
        self._spread: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    @staticmethod
    def handles(stock: Any) -> bool:
        return all(part.correlation <= MAX_DEGREE for part in stock.contractions)

    @property
    def numbers_per_atom(self) -> int:
        rows = self.polynomial.outputs[0].spread.shape[2]
        return self.stock.contractions[0].num_features * (rows + sum(self.polynomial.columns))

    def forward(self, x: Tensor, attributes: Tensor) -> Tensor:
        order = self.context.layout.by_element if self.elements > 1 else self.context.layout.alike
        # (features, channels, atoms): products of features are then products of long contiguous rows.
        x = order.sort(x).permute(1, 2, 0).contiguous()
        basis = self.polynomial.basis(x).transpose(0, 1)
        # One matrix (columns x rows) for each element that is there, and channel.
        weights = self.frozen(torch.cat([weight for parts in self._weights() for weight in parts], dim=1))
        if len(order.values) < self.elements:
            weights = weights.index_select(0, index_tensor(tuple(order.values), x.device))
        spread = self._spread_like(x)
        v = weights.transpose(1, 2).reshape(-1, spread.shape[0]) @ spread.flatten(1)
        v = v.view(len(order.values), -1, *spread.shape[1:])
        constants, matrices = v[..., :1].unbind(), v[..., 1:].unbind()
        parts = [
            self.watch(element, torch.baddbmm(constant, matrix, part), part)
            for element, constant, matrix, part in zip(
                order.values, constants, matrices, basis.split(order.sizes, dim=2), strict=True
            )
        ]
        t = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
        outputs = zip(self.polynomial.outputs, t.split(self.polynomial.columns, dim=1), strict=True)
        results = [output.multiply(part, x) for output, part in outputs]
        joined = results[0] if len(results) == 1 else torch.cat(results, dim=1)
        # Channels last within each irrep: components of all of them, then channels.
        return order.restore(joined.permute(2, 1, 0).flatten(1))

    def gradients(self) -> list[Gradient]:
        layout = self.context.layout
        weights = self._weights()
        rows = {id(weight): weight.new_zeros(layout.graphs, *weight.shape) for parts in weights for weight in parts}
        for element, (gradient, basis) in self.watched():
            groups = layout.graphs_of_element(element) if self.elements > 1 else layout.atoms_of_graph
            # Sums over the atoms of a structure, for each channel: (graphs, channels, columns, rows).
            g = groups.collect_padded(gradient.permute(2, 0, 1)).permute(0, 2, 3, 1)
            ones = torch.ones_like(basis[:, :1])
            b = groups.collect_padded(torch.cat([ones, basis], dim=1).permute(2, 0, 1)).permute(0, 2, 1, 3)
            matrices = (g @ b).split(self.polynomial.columns, dim=2)
            blocks = self._spread_blocks(gradient)
            for parts, matrix, block in zip(weights, matrices, blocks, strict=True):
                found = (matrix.flatten(2) @ block.flatten(1).T).transpose(1, 2)
                for weight, part in zip(parts, found.split([w.shape[1] for w in parts], dim=1), strict=True):
                    rows[id(weight)][:, element] = part
        return [Gradient(weight, rows[id(weight)].flatten(1)) for parts in weights for weight in parts]

    def _weights(self) -> list[list[Tensor]]:
        """For each output its weights by rising degree, each (elements, paths, channels)."""
        return [[*reversed(list(part.weights)), part.weights_max] for part in self.stock.contractions]

    def _spread_like(self, x: Tensor) -> Tensor:
        key = x.dtype, x.device
        if key not in self._spread:
            with torch.inference_mode(False):
                self._spread[key] = torch.as_tensor(self.polynomial.spread(), dtype=x.dtype, device=x.device)
        return self._spread[key]

    def _spread_blocks(self, x: Tensor) -> list[Tensor]:
        """The part of each output."""
        by_path = self._spread_like(x).split(self.polynomial.paths)
        return [part.split(self.polynomial.columns, dim=1)[number].contiguous() for number, part in enumerate(by_path)]


def _tensors(part: Any) -> list[Tensor]:
    return [part.U_tensors(degree) for degree in range(1, part.correlation + 1)]


def _components_first(u: Tensor, components: int) -> Array:
    """MACE leaves out the axis of components when there is only one."""
    array = u.detach().double().cpu().numpy()
    return array[None] if components == 1 else array
