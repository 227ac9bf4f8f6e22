"""The way to batched gradients that torch itself offers: ``vmap(grad(energy))``, for structures of one composition.

The stock network cannot be vectorised (e3nn's layers are TorchScript), so this runs on the fast twin, and the edges
are padded to one number of neighbours for all atoms of all structures.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adaptntk.models.mace.gradients import FastNetwork
from adaptntk.models.mace.graph import MACEGraph
from adaptntk.models.mace.layout import Layout
from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.mace.tape import forward_pass


class EnergyOfEdges(torch.nn.Module):
    """The interaction energy of one structure from its embedded edges."""

    def __init__(self, potential: MACEPotential) -> None:
        super().__init__()
        assert potential.network is not None
        self.stock = potential.module
        self._network: tuple[FastNetwork] = (potential.network,)

    def forward(self, attributes: Tensor, harmonics: Tensor, radial: Tensor, edge_index: Tensor) -> Tensor:
        twin: Any = self._network[0]._twin
        features = twin.node_embedding(attributes)
        energy = torch.zeros((), dtype=attributes.dtype, device=attributes.device)
        for number, (interaction, product, readout) in enumerate(
            zip(twin.interactions, twin.products, twin.readouts, strict=True)
        ):
            features, skip = interaction(
                node_attrs=attributes,
                node_feats=features,
                edge_attrs=harmonics,
                edge_feats=radial,
                edge_index=edge_index,
                first_layer=number == 0,
            )
            features = product(node_feats=features, sc=skip, node_attrs=attributes)
            energy = energy + readout(features)[:, 0].sum()
        return energy * torch.atleast_1d(twin.scale_shift.scale)[0]


def vectorised_gradients(potential: MACEPotential, graphs: Sequence[MACEGraph]) -> Tensor:
    """Rows ``dE/dtheta`` by ``torch.func``."""
    width = max(int(graph.neighbours.max()) for graph in graphs)
    inputs = [padded_edges(potential, graph, width) for graph in graphs]
    stacked = [torch.stack(parts) for parts in zip(*inputs, strict=True)]
    first = graphs[0]
    atoms = len(first)
    layout = Layout(first.elements, np.zeros(atoms, int), np.full(atoms, width), 1, potential.device)
    energy = EnergyOfEdges(potential)
    weights = {f"stock.{name}": tensor.detach() for name, tensor in potential.parameters()}

    def function(parameters: dict[str, Tensor], *arguments: Tensor) -> Tensor:
        return torch.func.functional_call(energy, parameters, arguments)

    with forward_pass(layout):
        found = torch.func.vmap(torch.func.grad(function), in_dims=(None, 0, 0, 0, 0))(weights, *stacked)
    return torch.cat([found[name].flatten(1) for name in weights], dim=1)


def padded_edges(potential: MACEPotential, graph: MACEGraph, width: int) -> tuple[Tensor, ...]:
    """Attributes of the atoms, harmonics and radial features of the edges, and the edges, ``width`` for each atom."""
    module: Any = potential.module
    atoms, edges = len(graph), graph.edge_index.shape[1]
    first = np.cumsum(graph.neighbours) - graph.neighbours
    slots = np.arange(width)
    places = np.where(slots < graph.neighbours[:, None], first[:, None] + slots, edges + np.arange(atoms)[:, None])
    index = torch.as_tensor(places.ravel(), device=potential.device)
    itself = torch.arange(atoms, device=potential.device).expand(2, -1)
    edge_index = torch.cat([graph.edge_index, itself], dim=1)[:, index]
    far = (graph.beyond @ graph.cell).expand(atoms, 3)
    shifts = torch.cat([graph.shifts, far])[index]
    vectors = graph.positions[edge_index[1]] - graph.positions[edge_index[0]] + shifts
    lengths = vectors.norm(dim=1, keepdim=True)
    radial, _ = module.radial_embedding(lengths, graph.node_attrs, edge_index, module.atomic_numbers)
    return graph.node_attrs, module.spherical_harmonics(vectors), radial, edge_index
