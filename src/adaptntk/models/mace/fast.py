"""A faster twin of a stock MACE network: the same function of the same parameters, as large matrix products.

The twin shares every parameter, buffer and untouched module with the stock network. It exists only for networks
whose layers we know: another kind of layer might not ignore the empty edges of a padded batch. Between the
replaced modules of a layer, features are stored channels last (components, channels) instead of e3nn's (channels,
components): to mix channels is then a plain matrix product.

Each replaced parametric module is a `Leaf`, and so knows its gradient by structure (see ``mace_gradients.py``).
"""

import math
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adaptntk.models.mace.contraction import Contraction
from adaptntk.models.mace.stock import FullyConnectedNet, SymmetricContraction, modules, o3, readouts
from adaptntk.models.mace.tape import Context, Gradient, Leaf, index_tensor

# Interaction blocks whose forward pass we know, and whether their self-connection acts on the message (or else
# on the block's input).
_INTERACTIONS = {
    modules.RealAgnosticInteractionBlock: True,
    modules.RealAgnosticDensityInteractionBlock: True,
    modules.RealAgnosticResidualInteractionBlock: False,
    modules.RealAgnosticDensityResidualInteractionBlock: False,
}
# Columns up to which paths of the convolution are multiplied together.
_MERGED_COLUMNS = 128
# Blocks that apply their linear layers to the features of atoms and nothing else.
_ATOM_BLOCKS = (modules.LinearNodeEmbeddingBlock, *readouts)


def unknown_layers(network: Any) -> list[str]:
    """The layers for which there is no fast twin."""
    layers = zip(network.interactions, network.products, strict=True)
    return [
        f"layer {number} ({type(interaction).__name__})"
        for number, (interaction, product) in enumerate(layers, start=1)
        if not _is_known(interaction, product)
    ]


def fast_twin(network: Any, context: Context) -> torch.nn.Module:
    """The twin of a network without `unknown_layers`.

    Before the twin is called, ``context`` must hold the layout of the batch.
    """
    children = {name: _twin_of_atom_block(child, context) for name, child in network._modules.items()}
    layers = [
        _twin_of_layer(interaction, product, context)
        for interaction, product in zip(network.interactions, network.products, strict=True)
    ]
    children["interactions"] = torch.nn.ModuleList([interaction for interaction, _ in layers])
    children["products"] = torch.nn.ModuleList([product for _, product in layers])
    children["readouts"] = torch.nn.ModuleList([_twin_of_atom_block(block, context) for block in network.readouts])
    return _shadow(network, children)


def _twin_of_atom_block(block: Any, context: Context) -> Any:
    if type(block) not in _ATOM_BLOCKS:
        return block
    children = dict(block._modules)
    for name, child in children.items():
        if Linear.handles(child):
            children[name] = Linear(child, context)
    return _shadow(block, children)


def _is_known(interaction: Any, product: Any) -> bool:
    return (
        type(interaction) in _INTERACTIONS
        and not hasattr(interaction, "conv_fusion")
        and type(product) is modules.EquivariantProductBasisBlock
        and type(product.symmetric_contractions) is SymmetricContraction
        and all(Linear.handles(module) for module in (interaction.linear_up, interaction.linear, product.linear))
        and Convolution.handles(interaction.conv_tp)
        and isinstance(interaction.conv_tp_weights, FullyConnectedNet)
        and SelfConnection.handles(interaction.skip_tp)
        and Contraction.handles(product.symmetric_contractions)
    )


def _twin_of_layer(interaction: Any, product: Any, context: Context) -> tuple[Any, Any]:
    on_message = _INTERACTIONS[type(interaction)]
    convolution = Convolution(interaction.conv_tp, context)
    children = dict(interaction._modules) | {
        "linear_up": Linear(interaction.linear_up, context, last_out=True),
        "conv_tp": convolution,
        "linear": Linear(interaction.linear, context, last_in=True, last_out=True),
        "skip_tp": SelfConnection(interaction.skip_tp, context, last=on_message),
        "reshape": Unflatten(interaction.linear.irreps_out),
    }
    for name, child in children.items():
        if isinstance(child, FullyConnectedNet):
            layers = {key: RadialLayer(layer, context) for key, layer in child._modules.items()}
            if name == "conv_tp_weights":
                last = list(layers)[-1]
                layers[last] = RadialLayer(child._modules[last], context, convolution.columns)
            children[name] = _shadow(child, layers)
    block = _shadow(interaction, children)
    # MACE hands the whole convolution, the sum over neighbours included, to a block with this mark.
    block.__dict__["conv_fusion"] = True
    return block, _shadow(
        product,
        {
            "symmetric_contractions": Contraction(product.symmetric_contractions, context),
            "linear": Linear(product.linear, context, last_in=True),
        },
    )


def _shadow(stock: torch.nn.Module, children: dict[str, Any]) -> torch.nn.Module:
    """The same module with other children."""
    twin = stock.__class__.__new__(stock.__class__)
    # The dictionaries of parameters and buffers are shared: whatever moves the stock network moves its twin.
    twin.__dict__.update(stock.__dict__)
    twin.__dict__["_modules"] = children
    return twin


class Storage:
    """How features of given irreps lie in a row: runs of equal irreps, channels first (e3nn) or last.

    e3nn stores a run of equal irreps as if it were one with more channels.
    """

    def __init__(self, irreps: Any, last: bool) -> None:
        self.last = last
        self.shapes = _merged(irreps)
        self.sizes = [mul * dim for mul, dim in self.shapes]

    def split(self, rows: Tensor) -> list[Tensor]:
        """(atoms, flat) to (atoms, components, channels) for each run."""
        parts = rows.split(self.sizes, dim=1) if len(self.sizes) > 1 else (rows,)
        if self.last:
            return [part.view(-1, dim, mul) for part, (mul, dim) in zip(parts, self.shapes, strict=True)]
        return [part.view(-1, mul, dim).transpose(1, 2) for part, (mul, dim) in zip(parts, self.shapes, strict=True)]

    def join(self, parts: list[Tensor]) -> Tensor:
        """The inverse of `split`."""
        flat = [(part if self.last else part.transpose(1, 2)).flatten(1) for part in parts]
        return flat[0] if len(flat) == 1 else torch.cat(flat, dim=1)


def _merged(irreps: Any) -> list[tuple[int, int]]:
    """(multiplicity, components) of each run of equal irreps."""
    return [(sum(mul for mul, _ in run), ir.dim) for ir, run in groupby(irreps, key=lambda entry: entry[1])]


def _mix(x: Tensor, weight: Tensor) -> Tensor:
    """(atoms, components, channels) times a matrix over the channels, as one plain product."""
    return (x.reshape(-1, x.shape[2]) @ weight).view(x.shape[0], x.shape[1], weight.shape[1])


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
        if len(_merged(stock.irreps_out)) < len(stock.irreps_out):
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
                out = _mix(inputs[path.run], weight[path.start : path.stop].view(-1, mul) * path.factor)
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
            and all(len(_merged(irreps)) == len(irreps) for irreps in (stock.irreps_in1, stock.irreps_out))
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
                self.watch((number, element), _mix(part, weights[element]), part)
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


class Convolution(torch.nn.Module):
    """The tensor product with the spherical harmonics and the sum over neighbours, as batched products.

    An atom receives ``sum_j w_j x_j C Y_j`` over its neighbours j, for each path and channel, with x the sender's
    features, w the radial weights and C the coupling. Over the padded neighbours (see ``mace_layout.py``) that is
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
        self.places: list[tuple[int, int]] = []
        """(path, component) of each row of the products, in the order in which they come."""
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
            and len(_merged(stock.irreps_in1)) == len(stock.irreps_in1)
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


class Unflatten(torch.nn.Module):
    """Features of all irreps side by side: (atoms, flat) to (atoms, components, channels)."""

    def __init__(self, irreps: Any) -> None:
        super().__init__()
        self.components = sum(ir.dim for _, ir in irreps)

    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), self.components, -1)
