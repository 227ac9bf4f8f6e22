"""A faster twin of a stock MACE network: the same function of the same parameters, as large matrix products.

The twin shares every parameter, buffer and untouched module with the stock network. It exists only for networks
whose layers we know: another kind of layer might not ignore the empty edges of a padded batch. Between the
replaced modules of a layer, features are stored channels last (components, channels) instead of e3nn's (channels,
components): to mix channels is then a plain matrix product.

Each replaced parametric module is a `Leaf`, and so knows its gradient by structure (see ``gradients.py``).
"""

from typing import Any

import torch

from adaptntk.models.mace.contraction import Contraction
from adaptntk.models.mace.convolution import Convolution
from adaptntk.models.mace.geometry import Harmonics, RadialEmbedding
from adaptntk.models.mace.linear import Linear, SelfConnection
from adaptntk.models.mace.radial import RadialNet, carries_slopes
from adaptntk.models.mace.stock import SymmetricContraction, modules, readouts

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


def fast_twin(network: Any) -> torch.nn.Module:
    """The twin of a network without `unknown_layers`, to be called within `forward_pass`."""
    children = {name: _twin_of_atom_block(child) for name, child in network._modules.items()}
    interactions, products = zip(*map(_twin_of_layer, network.interactions, network.products), strict=True)
    children["interactions"] = torch.nn.ModuleList(interactions)
    children["products"] = torch.nn.ModuleList(products)
    children["readouts"] = torch.nn.ModuleList(map(_twin_of_atom_block, network.readouts))
    if Harmonics.handles(network.spherical_harmonics):
        children["spherical_harmonics"] = Harmonics(network.spherical_harmonics)
    if RadialEmbedding.handles(network.radial_embedding):
        nets = [module for module in network.modules() if RadialNet.handles(module)]
        children["radial_embedding"] = RadialEmbedding(network.radial_embedding, all(map(carries_slopes, nets)))
    return _shadow(network, children)


def needs_every_edge(network: Any) -> bool:
    """Whether it does more with edges than its convolutions do: they need each pair of opposite edges once only."""
    return (
        hasattr(network, "pair_repulsion")
        or any("Density" in type(block).__name__ for block in network.interactions)
        or not Harmonics.handles(network.spherical_harmonics)
    )


def _twin_of_atom_block(block: Any) -> Any:
    if type(block) not in _ATOM_BLOCKS:
        return block
    children = block._modules.items()
    return _shadow(block, {name: Linear(child) if Linear.handles(child) else child for name, child in children})


def _is_known(interaction: Any, product: Any) -> bool:
    return (
        type(interaction) in _INTERACTIONS
        and not hasattr(interaction, "conv_fusion")
        and type(product) is modules.EquivariantProductBasisBlock
        and type(product.symmetric_contractions) is SymmetricContraction
        and all(Linear.handles(module) for module in (interaction.linear_up, interaction.linear, product.linear))
        and Convolution.handles(interaction.conv_tp)
        and RadialNet.handles(interaction.conv_tp_weights)
        and SelfConnection.handles(interaction.skip_tp)
        and Contraction.handles(product.symmetric_contractions)
    )


def _twin_of_layer(interaction: Any, product: Any) -> tuple[Any, Any]:
    convolution = Convolution(interaction.conv_tp)
    children = dict(interaction._modules) | {
        "linear_up": Linear(interaction.linear_up, last_out=True),
        "conv_tp": convolution,
        "linear": Linear(interaction.linear, last_in=True, last_out=True),
        "skip_tp": SelfConnection(interaction.skip_tp, last=_INTERACTIONS[type(interaction)]),
        "reshape": torch.nn.Unflatten(1, (sum(ir.dim for _, ir in interaction.linear.irreps_out), -1)),
    }
    for name, child in children.items():
        if RadialNet.handles(child):
            children[name] = RadialNet(child, convolution.columns if name == "conv_tp_weights" else None)
    block = _shadow(interaction, children)
    # MACE hands the whole convolution, the sum over neighbours included, to a block with this mark.
    block.__dict__["conv_fusion"] = True
    contraction, linear = Contraction(product.symmetric_contractions), Linear(product.linear, last_in=True)
    return block, _shadow(product, {"symmetric_contractions": contraction, "linear": linear})


def _shadow(stock: torch.nn.Module, children: dict[str, Any]) -> torch.nn.Module:
    """The same module with other children."""
    twin = stock.__class__.__new__(stock.__class__)
    # The dictionaries of parameters and buffers are shared: whatever moves the stock network moves its twin.
    twin.__dict__.update(stock.__dict__)
    twin.__dict__["_modules"] = children
    return twin
