"""Any torch module that maps positions and species of one structure to its energy."""

import hashlib
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from ase import Atoms
from torch import Tensor

from adaptntk.errors import InputError
from adaptntk.models.protocol import Capabilities, ModulePotential, Predictions, parameter_count
from adaptntk.progress import Progress, silent

log = logging.getLogger(__name__)


class TorchModulePotential(ModulePotential):
    """Adapter for a module with ``module(positions, atomic_numbers) -> energy`` (Å, eV; a scalar).

    Args:
        module: the network; its parameters that require gradients are the feature space.
        species: atomic numbers it accepts, or None for any.
        source: path of the file it was read from, if there is one.
        takes_cell: it is called with a third argument, the cell (3 x 3, a vector per row, zeros for directions that
            are not periodic). Without it periodic structures are refused.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        species: Iterable[int] | None = None,
        source: str | None = None,
        takes_cell: bool = False,
    ) -> None:
        self.module = module
        self.source = source
        self.takes_cell = takes_cell
        # Of a copy with other weights too: it comes from that file.
        self._fingerprint = None if source is None else hashlib.sha256(Path(source).read_bytes()).hexdigest()
        self._species = frozenset(species) if species is not None else None
        self.description = type(module).__name__
        self._vectorised = True

    @property
    def capabilities(self) -> Capabilities:
        # Whether torch.func can vectorise the module shows when it is tried.
        return Capabilities(batched_gradients=self._vectorised)

    def graph(self, atoms: Atoms) -> tuple[Tensor, ...]:
        """What the module is called with."""
        if atoms.pbc.any() and not self.takes_cell:
            why = f"{self.description} takes no cell, and would see this periodic structure without its images"
            raise InputError(f"{atoms.get_chemical_formula()}: {why}; use TorchModulePotential(..., takes_cell=True)")
        positions = torch.tensor(atoms.positions, dtype=self.dtype, device=self.device)
        numbers = torch.tensor(atoms.numbers, dtype=torch.int64, device=self.device)
        cell = torch.tensor(atoms.cell.array * atoms.pbc[:, None], dtype=self.dtype, device=self.device)
        return (positions, numbers, cell) if self.takes_cell else (positions, numbers)

    def energies(self, graphs: Sequence[tuple[Tensor, ...]]) -> Tensor:
        return torch.stack([self.module(*graph).reshape(()) for graph in graphs])

    def energy_gradients(self, graphs: Sequence[tuple[Tensor, ...]]) -> Tensor:
        """Rows ``dE(x)/dtheta``, structures of one size at once if the module can be vectorised."""
        if self._vectorised:
            try:
                return self._vectorised_gradients(graphs)
            except RuntimeError as error:
                log.warning(
                    "gradients are computed one structure at a time, slower than at once: torch.func cannot vectorise "
                    "this module (%s)",
                    str(error).splitlines()[0],
                )
                self._vectorised = False
        return super().energy_gradients(graphs)

    def _vectorised_gradients(self, graphs: Sequence[tuple[Tensor, ...]]) -> Tensor:
        parameters = {name: tensor.detach() for name, tensor in self.parameters()}

        def energy(weights: dict[str, Tensor], *graph: Tensor) -> Tensor:
            return torch.func.functional_call(self.module, weights, graph).reshape(())

        gradient = torch.func.vmap(torch.func.grad(energy), in_dims=(None, *(0 for _ in graphs[0])))
        rows = torch.empty(len(graphs), parameter_count(self), dtype=self.dtype, device=self.device)
        sizes = [len(numbers) for _, numbers, *_ in graphs]
        for size in set(sizes):
            members = [index for index, atoms in enumerate(sizes) if atoms == size]
            found = gradient(
                parameters, *(torch.stack(part) for part in zip(*(graphs[i] for i in members), strict=True))
            )
            rows[members] = torch.cat([found[name].reshape(len(members), -1) for name in parameters], dim=1)
        return rows

    def predict(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Predictions:
        energies, forces = [], []
        for atoms in progress(structures, "predicting energies and forces", len(structures)):
            positions, *rest = self.graph(atoms)
            energy = self.energies([(positions.requires_grad_(True), *rest)])[0]
            (gradient,) = torch.autograd.grad(energy, positions, allow_unused=True)
            energies.append(float(energy.detach()))
            # A single atom's energy may not depend on where it is.
            forces.append(np.zeros(positions.shape) if gradient is None else -gradient.double().cpu().numpy())
        return Predictions(np.array(energies), forces)
