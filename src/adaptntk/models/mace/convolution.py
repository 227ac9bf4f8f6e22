"""The convolution of the fast twin."""

from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adaptntk.models.mace.linear import merged_irreps
from adaptntk.models.mace.stock import o3
from adaptntk.models.mace.tape import Leaf, index_tensor, joined

# Columns up to which paths are multiplied together.
_MERGED_COLUMNS = 128


class Convolution(Leaf):
    """The tensor product with the spherical harmonics and the sum over neighbours, as batched products.

    An atom receives ``sum_j w_j x_j C Y_j`` over its neighbours j, for each path and channel, with x the sender's
    features, w the radial weights and C the coupling. Over the padded neighbours (see ``layout.py``) that is
    the product of a matrix (components out) x (neighbours, components in), which knows no channels, and a matrix
    (neighbours, components in) x (channels). Paths from the same irrep are multiplied together while there are
    few channels: the unwanted combinations of path and coupling cost less than another call.

    ``columns`` is the order in which the radial weights are wanted.
    """

    def __init__(self, stock: Any) -> None:
        super().__init__(stock)
        self.channels: int = stock.irreps_in1[0].mul
        together = max(1, _MERGED_COLUMNS // self.channels)
        irreps_out = [ir for _, ir in stock.irreps_out]
        self.dims_in = [ir.dim for _, ir in stock.irreps_in1]
        self.bundles: list[_Bundle] = []
        # (path of the coupling, component, path of the weights) of each row of the products.
        rows: list[tuple[int, int, int]] = []
        for i_in, dim_in in enumerate(self.dims_in):
            paths = [number for number, entry in enumerate(stock.instructions) if entry.i_in1 == i_in]
            for first in range(0, len(paths), together):
                bundle = paths[first : first + together]
                components = [(path, component) for path in bundle for component in range(irreps_out[path].dim)]
                self.bundles.append(_Bundle(i_in, dim_in, tuple(bundle), len(components)))
                rows += [(*component, path) for component in components for path in bundle]
        # Paths into the same irrep side by side, as more channels; padded to the same number for all irreps.
        runs = [list(run) for _, run in groupby(range(len(irreps_out)), key=irreps_out.__getitem__)]
        most = max(map(len, runs))
        wanted = [
            (path, component, path)
            for run in runs
            for component in range(irreps_out[run[0]].dim)
            for path in (run + run[:1] * most)[:most]
        ]
        self.rows = tuple(rows.index(place) for place in wanted)
        order = [path for bundle in self.bundles for path in bundle.paths]
        self.columns = tuple(path * self.channels + channel for path in order for channel in range(self.channels))
        weighted = sum(bundle.dim_in * len(bundle.paths) for bundle in self.bundles)
        self.numbers_per_edge = self.channels * (weighted + sum(self.dims_in))
        self.numbers_per_atom = self.channels * len(self.rows)
        # (harmonics, components in x components out of each bundle), with e3nn's factor of each path.
        couplings = [torch.cat([self._coupling(path) for path in bundle.paths], dim=2) for bundle in self.bundles]
        self.constant = torch.cat([coupling.flatten(1) for coupling in couplings], dim=1)

    @staticmethod
    def handles(stock: Any) -> bool:
        """All paths weighted, channel by channel, between irreps of one multiplicity, each output fed once."""
        if not isinstance(stock, o3.TensorProduct):
            return False
        muls = {mul for irreps in (stock.irreps_in1, stock.irreps_out) for mul, _ in irreps}
        return (
            len(muls) == 1
            and all(mul == 1 for mul, _ in stock.irreps_in2)
            and not stock.internal_weights
            and all(entry.connection_mode == "uvu" and entry.has_weight for entry in stock.instructions)
            and [entry.i_out for entry in stock.instructions] == list(range(len(stock.irreps_out)))
            and len(merged_irreps(stock.irreps_in1)) == len(stock.irreps_in1)
        )

    def forward(self, x: Tensor, harmonics: Tensor, weights: Tensor, edge_index: Tensor) -> Tensor:
        layout, channels = self.layout, self.channels
        if layout.slots is not None:
            weights = weights.index_select(0, layout.slots.pairs)
        senders = x.index_select(0, edge_index[0] if layout.slots is None else layout.slots.senders)
        couplings = harmonics @ self.constant_like(harmonics)
        edges = [atoms * width for atoms, width in layout.width_groups]
        by_width = (rows.split(edges) for rows in (senders, couplings, weights))
        messages = []
        for (atoms, width), sender, coupling, weight in zip(layout.width_groups, *by_width, strict=True):
            features = sender.split([dim * channels for dim in self.dims_in], dim=1)
            by_bundle = weight.split([len(bundle.paths) * channels for bundle in self.bundles], dim=1)
            coupled = coupling.split([bundle.dim_in * bundle.dim_out for bundle in self.bundles], dim=1)
            message = []
            for bundle, w, c in zip(self.bundles, by_bundle, coupled, strict=True):
                w = w.view(-1, 1, len(bundle.paths), channels)
                weighted = w * features[bundle.i_in].view(-1, bundle.dim_in, 1, channels)
                weighted = weighted.view(atoms, width * bundle.dim_in, len(bundle.paths) * channels)
                c = c.reshape(atoms, width * bundle.dim_in, bundle.dim_out).transpose(1, 2)
                message.append(torch.bmm(c, weighted).view(atoms, -1, channels))
            messages.append(torch.cat(message, dim=1))
        rows = joined(messages).index_select(1, index_tensor(self.rows, x.device))
        return layout.by_width.restore(rows.flatten(1))

    def _coupling(self, path: int) -> Tensor:
        stock = self.stock
        entry = stock.instructions[path]
        first, second = stock.irreps_in1[entry.i_in1].ir, stock.irreps_in2[entry.i_in2].ir
        out = stock.irreps_out[entry.i_out].ir
        coupling = torch.zeros(stock.irreps_in2.dim, first.dim, out.dim, dtype=torch.float64)
        w3j = o3.wigner_3j(first.l, second.l, out.l, dtype=torch.float64)
        coupling[stock.irreps_in2.slices()[entry.i_in2]] = w3j.transpose(0, 1) * entry.path_weight
        return coupling


class _Bundle(NamedTuple):
    """Paths of the convolution from one irrep that are multiplied together."""

    i_in: int
    dim_in: int
    paths: tuple[int, ...]
    dim_out: int
