"""The convolution of the fast twin."""

from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adaptntk.models.mace.stock import o3
from adaptntk.models.mace.storage import merged_irreps
from adaptntk.models.mace.tape import Context, index_tensor

# Columns up to which paths are multiplied together.
_MERGED_COLUMNS = 128


class Convolution(torch.nn.Module):
    """The tensor product with the spherical harmonics and the sum over neighbours, as batched products.

    An atom receives ``sum_j w_j x_j C Y_j`` over its neighbours j, for each path and channel, with x the sender's
    features, w the radial weights and C the coupling. Over the padded neighbours (see ``layout.py``) that is
    the product of a matrix (components out) x (neighbours, components in), which knows no channels, and a matrix
    (neighbours, components in) x (channels). Paths from the same irrep are multiplied together while there are
    few channels: the unwanted combinations of path and coupling cost less than another call.
    """

    def __init__(self, stock: Any, context: Context) -> None:
        super().__init__()
        self._hidden = (stock, context)
        self.channels: int = stock.irreps_in1[0].mul
        together = max(1, _MERGED_COLUMNS // self.channels)
        self.bundles: list[_Bundle] = []
        # (path, component) of each row of the products, in the order in which they come.
        rows: list[tuple[int, int] | None] = []
        for i_in, (_, ir) in enumerate(stock.irreps_in1):
            paths = [number for number, entry in enumerate(stock.instructions) if entry.i_in1 == i_in]
            for first in range(0, len(paths), together):
                bundle = paths[first : first + together]
                dims = [stock.irreps_out[stock.instructions[path].i_out].dim // self.channels for path in bundle]
                self.bundles.append(_Bundle(i_in, ir.dim, tuple(bundle), sum(dims)))
                for path, dim in zip(bundle, dims, strict=True):
                    for component in range(dim):
                        rows += [(path, component) if other == path else None for other in bundle]
        wanted = []
        for _, run in groupby(enumerate(stock.instructions), key=lambda item: stock.irreps_out[item[1].i_out].ir):
            members = [path for path, _ in run]
            dim = stock.irreps_out[stock.instructions[members[0]].i_out].dim // self.channels
            wanted += [(path, component) for component in range(dim) for path in members]
        self.rows = tuple(rows.index(place) for place in wanted)
        self.dims_in = [ir.dim for _, ir in stock.irreps_in1]
        self._coupling: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    @property
    def numbers_per_edge(self) -> int:
        weighted = sum(bundle.dim_in * len(bundle.paths) for bundle in self.bundles)
        return self.channels * (weighted + sum(self.dims_in))

    @property
    def numbers_per_atom(self) -> int:
        return self.channels * len(self.rows)

    @property
    def columns(self) -> list[int]:
        """The order in which the radial weights are wanted."""
        paths = [path for bundle in self.bundles for path in bundle.paths]
        return [path * self.channels + channel for path in paths for channel in range(self.channels)]

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
        layout = self._hidden[1].layout
        channels = self.channels
        senders = x.index_select(0, edge_index[0])
        couplings = harmonics @ self._coupling_like(harmonics)
        edges = [atoms * width for atoms, width in layout.width_groups]
        messages = []
        for (atoms, width), sender, coupling, weight in zip(
            layout.width_groups, *(rows.split(edges) for rows in (senders, couplings, weights)), strict=True
        ):
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
        joined = messages[0] if len(messages) == 1 else torch.cat(messages)
        # Paths into the same irrep side by side, as more channels.
        rows = joined.index_select(1, index_tensor(self.rows, x.device))
        return layout.by_width.restore(rows.flatten(1))

    def _coupling_like(self, like: Tensor) -> Tensor:
        """(harmonics, components in x components out of each bundle), with e3nn's factor of each path."""
        key = like.dtype, like.device
        if key not in self._coupling:
            with torch.inference_mode(False):
                blocks = [
                    torch.cat([self._coupling_of(path) for path in bundle.paths], dim=2).flatten(1)
                    for bundle in self.bundles
                ]
                self._coupling[key] = torch.cat(blocks, dim=1).to(dtype=like.dtype, device=like.device)
        return self._coupling[key]

    def _coupling_of(self, path: int) -> Tensor:
        stock = self._hidden[0]
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
