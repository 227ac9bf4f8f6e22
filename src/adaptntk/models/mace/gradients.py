"""Derivatives of the energy of every structure of a batch, with respect to all parameters, in one backward pass.

A parametric operation ``y = f(x) w`` is linear in its weight, so ``dE/dw`` is the product of what entered it and
``dE/dy``, summed over the atoms or edges. An ordinary backward pass sums over all structures of the batch; here the
sums stop at the borders of the structures. So one forward pass remembers the inputs and outputs of all such
operations with the parameters taken as constants, one backward pass of the summed energy gives ``dE/dy`` for all
of them, and the rest is one batched matrix product per parameter over rows grouped by structure: exact, at about
the price of the plain backward pass that it replaces.
"""

import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adaptntk.models.mace.contraction import Contraction
from adaptntk.models.mace.convolution import Convolution
from adaptntk.models.mace.layout import Layout
from adaptntk.models.mace.linear import RadialLayer
from adaptntk.models.mace.tape import Context, Leaf
from adaptntk.models.mace.twin import fast_twin


class _Lock:
    """A lock that a copied or unpickled network gets anew."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return _Lock, ()


class Derivatives(NamedTuple):
    """Of the energies of a batch: the network's results, and what one backward pass gives.

    ``gradients`` are the rows ``dE/dtheta``, ``strain`` is ``dE/d(strain)``, (structures, 3, 3).
    """

    output: dict[str, Tensor]
    gradients: Tensor
    forces: Tensor | None
    strain: Tensor | None


class FastNetwork:
    """The fast twin of a stock network without `unknown_layers`, with its context."""

    def __init__(self, stock: torch.nn.Module) -> None:
        self._context = Context()
        self._twin = fast_twin(stock, self._context)
        self._leaves = [module for module in self._twin.modules() if isinstance(module, Leaf)]
        # To walk through all modules takes longer than some layers do; which modules there are does not change.
        self._owners = [(name, module) for name, module in stock.named_modules() if module._parameters]
        self._busy = _Lock()

    def __call__(self, data: dict[str, Tensor], layout: Layout, **options: Any) -> dict[str, Tensor]:
        """What the stock network gives for the same batch."""
        # The modules of the twin find the layout of the batch in their context: one call at a time.
        with self._busy.lock:
            self._context.batch = layout
            try:
                return self._twin(data, **options)
            finally:
                self._context.batch = None

    def numbers_held(self, atoms: int, edges: int) -> int:
        """How many numbers a structure of that size takes while gradients are computed, about.

        Each module's results are held from the forward pass on, and its gradients beside them; the factor 3
        is what the peak memory of the process shows.
        """
        modules = list(self._twin.modules())
        per_edge = sum(module.numbers_per_edge for module in modules if isinstance(module, (Convolution, RadialLayer)))
        per_atom = sum(module.numbers_per_atom for module in modules if isinstance(module, (Convolution, Contraction)))
        return 3 * (per_edge * edges + per_atom * atoms)

    def unknown_parameters(self) -> list[str]:
        """Trainable parameters that belong to no module with a known gradient."""
        known = {id(parameter) for leaf in self._leaves for parameter in leaf.stock.parameters()}
        return [name for name, parameter in self._trainable() if id(parameter) not in known]

    def _trainable(self) -> Iterator[tuple[str, Tensor]]:
        """Trainable parameters of the stock network in its order, each once."""
        seen: set[int] = set()
        for owner, module in self._owners:
            for name, parameter in module._parameters.items():
                if parameter is not None and parameter.requires_grad and id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield f"{owner}.{name}".lstrip("."), parameter

    def structure_gradients(self, data: dict[str, Tensor], layout: Layout) -> Tensor:
        """Rows ``dE/dtheta`` (structures x all trainable parameters, in the order of the stock network)."""
        return self.differentiate(data, layout, geometry=False).gradients

    def differentiate(
        self, data: dict[str, Tensor], layout: Layout, geometry: bool = True, strain: bool = False
    ) -> "Derivatives":
        """Gradients and, with ``geometry``, forces of every structure, from one forward and one backward pass.

        ``strain`` adds the derivative with respect to a strain of the whole structure.
        """
        columns, width = {}, 0
        for _, parameter in self._trainable():
            columns[id(parameter)] = slice(width, width + parameter.numel())
            width += parameter.numel()
        context = self._context
        with self._busy.lock, torch.enable_grad():
            context.batch, context.records = layout, []
            # The network replaces the positions in the dictionary when it strains them.
            geometries = [data["positions"]] if geometry else []
            try:
                output = self._twin(data, compute_force=False, compute_displacement=strain)
                if strain:
                    geometries.append(output["displacement"])
                slopes = self._backward(output["energy"].sum(), geometries)
                rows = output["energy"].new_zeros(layout.graphs, width)
                for leaf in self._leaves:
                    for weight, values in leaf.gradients():
                        if id(weight) in columns:
                            rows[:, columns[id(weight)]] += values
                return Derivatives(output, rows, -slopes[0] if geometry else None, slopes[-1] if strain else None)
            finally:
                context.batch, context.records, context.gradients = None, None, {}

    def _backward(self, energy: Tensor, geometries: list[Tensor]) -> list[Tensor]:
        """Derivatives over the geometries; those over the outputs of all leaves are left in the context."""
        context = self._context
        assert context.records is not None
        outputs = [record.output for record in context.records]
        found = torch.autograd.grad(energy, [*geometries, *outputs], allow_unused=True)
        by_geometry, by_output = found[: len(geometries)], found[len(geometries) :]
        context.gradients = {
            (record.leaf, record.key): (gradient, record.saved)
            for record, gradient in zip(context.records, by_output, strict=True)
            if gradient is not None
        }
        # A lone atom's energy does not depend on where it is.
        return [
            torch.zeros_like(x) if slope is None else slope for x, slope in zip(geometries, by_geometry, strict=True)
        ]
