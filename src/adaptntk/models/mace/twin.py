"""A faster twin of a stock MACE network: the same function of the same parameters, as large matrix products.

The twin shares every parameter, buffer and untouched module with the stock network. It exists only for networks
whose layers we know: another kind of layer might not ignore the empty edges of a padded batch. Between the
replaced modules of a layer, features are stored channels last (components, channels) instead of e3nn's (channels,
components): to mix channels is then a plain matrix product.

Each replaced parametric module is a `Leaf`, and so knows its gradient by structure (see ``gradients.py``).
"""

from typing import Any

import torch
from torch import Tensor

from adaptntk.models.mace.contraction import Contraction
from adaptntk.models.mace.convolution import Convolution
from adaptntk.models.mace.linear import Linear, RadialLayer, SelfConnection
from adaptntk.models.mace.stock import FullyConnectedNet, SymmetricContraction, modules, readouts
from adaptntk.models.mace.tape import Context

# Interaction blocks whose forward pass we know, and whether their self-connection acts on the message (or else
# on the block's input).
_INTERACTIONS = {
    modules.RealAgnosticInteractionBlock: True,
    modules.RealAgnosticDensityInteractionBlock: True,
    modules.RealAgnosticResidualInteractionBlock: False,
    modules.RealAgnosticDensityResidualInteractionBlock: False,
}
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


class Unflatten(torch.nn.Module):
    """Features of all irreps side by side: (atoms, flat) to (atoms, components, channels)."""

    def __init__(self, irreps: Any) -> None:
        super().__init__()
        self.components = sum(ir.dim for _, ir in irreps)

    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), self.components, -1)
