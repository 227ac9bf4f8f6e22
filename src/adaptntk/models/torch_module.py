"""Any torch module that maps positions and species of one structure to its energy."""

import hashlib
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from ase import Atoms
from torch import Tensor

from adaptntk.models.protocol import Capabilities, ModulePotential, Predictions, parameter_count
from adaptntk.progress import Progress, silent

log = logging.getLogger(__name__)


class TorchModulePotential(ModulePotential):
    """Adapter for a module with ``module(positions, atomic_numbers) -> energy`` (Å, eV; a scalar).

    Args:
        module: the network; its parameters that require gradients are the feature space.
        species: atomic numbers it accepts, or None for any.
        source: path of the file it was read from, if there is one.

    Cells are not passed on: for periodic systems write an adapter, and let `testing.check_potential` examine it.
    """

    def __init__(
        self, module: torch.nn.Module, species: Iterable[int] | None = None, source: str | None = None
    ) -> None:
        self.module = module
        self.source = source
        # Of a copy with other weights too: it comes from that file.
        self._fingerprint = None if source is None else hashlib.sha256(Path(source).read_bytes()).hexdigest()
        self._species = frozenset(species) if species is not None else None
        self.description = type(module).__name__
        self._vectorised = True

    @property
    def capabilities(self) -> Capabilities:
        # Whether torch.func can vectorise the module shows when it is tried.
        return Capabilities(batched_gradients=self._vectorised)

    def graph(self, atoms: Atoms) -> tuple[Tensor, Tensor]:
        positions = torch.tensor(atoms.positions, dtype=self.dtype, device=self.device)
        return positions, torch.tensor(atoms.numbers, dtype=torch.int64, device=self.device)

    def energies(self, graphs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        return torch.stack([self.module(positions, numbers).reshape(()) for positions, numbers in graphs])

    def energy_gradients(self, graphs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
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

    def _vectorised_gradients(self, graphs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        parameters = {name: tensor.detach() for name, tensor in self.parameters()}

        def energy(weights: dict[str, Tensor], positions: Tensor, numbers: Tensor) -> Tensor:
            return torch.func.functional_call(self.module, weights, (positions, numbers)).reshape(())

        gradient = torch.func.vmap(torch.func.grad(energy), in_dims=(None, 0, 0))
        rows = torch.empty(len(graphs), parameter_count(self), dtype=self.dtype, device=self.device)
        for size in {len(numbers) for _, numbers in graphs}:
            members = [index for index, (_, numbers) in enumerate(graphs) if len(numbers) == size]
            positions, numbers = (torch.stack([graphs[index][part] for index in members]) for part in (0, 1))
            found = gradient(parameters, positions, numbers)
            rows[members] = torch.cat([found[name].reshape(len(members), -1) for name in parameters], dim=1)
        return rows

    def predict(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Predictions:
        energies, forces = [], []
        for atoms in progress(structures, "predicting energies and forces", len(structures)):
            positions, numbers = self.graph(atoms)
            energy = self.energies([(positions.requires_grad_(True), numbers)])[0]
            (gradient,) = torch.autograd.grad(energy, positions, allow_unused=True)
            energies.append(float(energy.detach()))
            # A single atom's energy may not depend on where it is.
            forces.append(np.zeros(positions.shape) if gradient is None else -gradient.double().cpu().numpy())
        return Predictions(np.array(energies), forces)
