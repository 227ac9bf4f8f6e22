"""Derivatives of the energy of every structure of a batch, with respect to all parameters, in one backward pass.

A parametric operation ``y = f(x) w`` is linear in its weight, so ``dE/dw`` is the product of what entered it and
``dE/dy``, summed over the atoms or edges. An ordinary backward pass sums over all structures of the batch; here the
sums stop at the borders of the structures. So one forward pass remembers the inputs and outputs of all such
operations with the parameters taken as constants, one backward pass of the summed energy gives ``dE/dy`` for all
of them, and the rest is one batched matrix product per parameter over rows grouped by structure: exact, at about
the price of the plain backward pass that it replaces.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from adaptntk.models.family import Loss, Step
from adaptntk.models.mace.captured import capture, same_atoms
from adaptntk.models.mace.graph import MACEGraph, make_batch, make_layout
from adaptntk.models.mace.tape import Leaf, Record, forward_pass
from adaptntk.models.mace.twin import fast_twin, needs_every_edge

# Options of MACE for which results are differentiated over the geometry; forces are computed unless it is told not to.
_SLOPES = ("force", "virials", "stress", "displacement", "edge_forces", "atomic_stresses")


class FastNetwork:
    """The fast twin of a stock network without `unknown_layers`."""

    def __init__(self, stock: torch.nn.Module) -> None:
        self._twin = fast_twin(stock)
        self._paired = not needs_every_edge(stock)
        self._leaves = [module for module in self._twin.modules() if isinstance(module, Leaf)]
        # To walk through all modules takes longer than some layers do; which parameters there are does not change.
        self._parameters = list(stock.named_parameters())

    def __call__(self, graphs: Sequence[MACEGraph], head: int, **options: bool) -> dict[str, Tensor]:
        """What the stock network gives for these graphs, but for second derivatives over the geometry."""
        layout = make_layout(graphs, self._paired)
        slopes = any(options.get(f"compute_{name}", name == "force") for name in _SLOPES)
        with forward_pass(layout, slopes=slopes):
            return self._twin(make_batch(graphs, head, layout), **options)

    def captured_step(self, graphs: Sequence[MACEGraph], count: int, head: int, loss: Loss) -> Step | None:
        """See ``captured.py``; None for graphs that are not all of the same atoms."""
        if not self._paired or not same_atoms(graphs):
            return None
        trainable = [parameter for _, parameter in self._parameters if parameter.requires_grad]
        return capture(self._twin, trainable, graphs, count, head, loss)

    def numbers_held(self, atoms: int, edges: int) -> int:
        """How many numbers a structure of that size takes while gradients are computed, about."""
        # Results of modules are held from the forward pass on, and gradients beside them; 3 is what peak memory shows.
        return 3 * sum(leaf.numbers_per_edge * edges + leaf.numbers_per_atom * atoms for leaf in self._leaves)

    def unknown_parameters(self) -> list[str]:
        """Trainable parameters that belong to no module with a known gradient."""
        known = {parameter for leaf in self._leaves for parameter in leaf.stock.parameters()}
        return [name for name, p in self._parameters if p.requires_grad and p not in known]

    def differentiate(
        self, graphs: Sequence[MACEGraph], head: int, geometry: bool = True, strain: bool = False
    ) -> tuple[dict[str, Tensor], Tensor]:
        """The network's results, and rows ``dE/dtheta`` over all trainable parameters, by one backward pass.

        The same pass gives the forces, with ``geometry``, and the stress, with ``strain``.
        """
        layout = make_layout(graphs, self._paired)
        data = make_batch(graphs, head, layout)
        tape: list[Record] = []
        # The network replaces the positions in the dictionary when it strains them.
        geometries, cells = [data["positions"]] if geometry else [], data["cell"].view(-1, 3, 3)
        with torch.enable_grad(), forward_pass(layout, tape, slopes=geometry or strain):
            output = self._twin(data, compute_force=False, compute_displacement=strain)
            if strain:
                geometries.append(output["displacement"])
            wanted = [*geometries, *(record.output for record in tape)]
            found = torch.autograd.grad(output["energy"].sum(), wanted, allow_unused=True)
            rows = self._by_structure(output["energy"], tape, found[len(geometries) :])
        # A lone atom's energy does not depend on where it is.
        slopes = [torch.zeros_like(x) if slope is None else slope for x, slope in zip(geometries, found, strict=False)]
        if geometry:
            output["forces"] = -slopes[0]
        if strain:
            output["stress"] = slopes[-1] / torch.linalg.det(cells).abs().view(-1, 1, 1)
        return output, rows

    def _by_structure(self, energies: Tensor, tape: list[Record], slopes: tuple[Tensor | None, ...]) -> Tensor:
        """Rows ``dE/dtheta`` from the derivatives over the outputs of all leaves."""
        trainable = [parameter for _, parameter in self._parameters if parameter.requires_grad]
        sizes = [parameter.numel() for parameter in trainable]
        rows = energies.new_zeros(len(energies), sum(sizes))
        parts = zip(trainable, rows.split(sizes, dim=1), strict=True)
        places: dict[Tensor, Tensor] = {parameter: part.view(len(rows), *parameter.shape) for parameter, part in parts}

        def rows_of(parameter: Tensor) -> Tensor:
            return places[parameter] if parameter in places else parameter.new_zeros(len(rows), *parameter.shape)

        for record, slope in zip(tape, slopes, strict=True):
            if slope is not None:
                record.leaf.derive(rows_of, slope, record.saved, record.key)
        return rows
