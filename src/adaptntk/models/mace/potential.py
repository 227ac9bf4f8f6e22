"""A MACE network as a potential."""

import copy
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms
from torch import Tensor

from adaptntk.errors import ModelError
from adaptntk.files import write_atomically
from adaptntk.memory import keep_freed_memory
from adaptntk.models.family import Loss, Outputs, Step, Trainable
from adaptntk.models.mace.gradients import FastNetwork
from adaptntk.models.mace.graph import MACEGraph, make_batch, make_graph
from adaptntk.models.mace.pickling import network_bytes
from adaptntk.models.mace.twin import unknown_layers
from adaptntk.models.protocol import Capabilities, Potential, Predictions, SinglePoint, check_dropout_rate, weights_hash
from adaptntk.progress import Progress, counted, silent

log = logging.getLogger(__name__)


class MACEPotential(Trainable):
    """A MACE network as a `Potential`, and as a `Trainable` if it is a ScaleShiftMACE: in its head, if it has several.

    Args:
        module: the stock network. It stays as it is, whatever is done with the potential but training.
        fingerprint: hash of the model file; of the weights if it never was one.
        source: path of the model file.
        head: which head of a multi-head model.
        fast: evaluate the network by its faster twin (``twin.py``), where it has one: the same numbers to rounding.
    """

    module: Any
    family = "mace"

    def __init__(
        self,
        module: Any,
        fingerprint: str | None = None,
        source: str | None = None,
        head: str | None = None,
        fast: bool = True,
    ) -> None:
        keep_freed_memory()
        # The profiling executor recompiles e3nn's TorchScript for the first calls of every new shape, and
        # every structure is a new shape: 30 times slower on a CPU. The setting is global to the process.
        torch._C._jit_set_profiling_executor(False)
        self.module = module
        self._fingerprint = fingerprint or weights_hash(module)
        self.source = source
        self.heads = list(getattr(module, "heads", None) or ["Default"])
        self.head: str = _choose_head(self.heads, head)
        self._head_index = self.heads.index(self.head)
        self.atomic_numbers = [int(z) for z in module.atomic_numbers]
        self._element_index = {number: index for index, number in enumerate(self.atomic_numbers)}
        self._species = frozenset(self.atomic_numbers)
        self.cutoff: float = float(module.r_max)
        self.description = (
            f"{type(module).__name__}, {counted(len(self.atomic_numbers), 'element')}, cutoff {self.cutoff} Å"
        )
        # A model that went through MACECalculator has every gradient switched off. Where only some are off, somebody
        # froze them on purpose, and they are no trainable parameters.
        if not any(parameter.requires_grad for parameter in module.parameters()):
            module.requires_grad_(True)
        self._unknown_layers = unknown_layers(module)
        self.network = FastNetwork(module) if fast and not self._unknown_layers else None
        self._announced = not fast
        self._fast = fast

    @property
    def capabilities(self) -> Capabilities:
        exact = not self._without_gradient()
        dropout = hasattr(self.module.readouts[-1], "non_linearity")
        trainable = hasattr(self.module, "scale_shift")
        always = {"stress": True, "node_features": True, "atom_energies": True}
        return Capabilities(batched_gradients=exact, single_pass=exact, dropout=dropout, trainable=trainable, **always)

    def graph(self, atoms: Atoms) -> MACEGraph:
        return make_graph(atoms, self.cutoff, self._element_index, self.dtype, self.device)

    def evaluate(self, graphs: Sequence[MACEGraph], **options: bool) -> dict[str, Tensor]:
        """The network's own dictionary of results; ``options`` are those of MACE (``compute_force``, ...)."""
        if self.network is None or options.get("compute_hessian"):
            return self.module(make_batch(graphs, self._head_index), **options)
        return self.network(graphs, self._head_index, **options)

    def energies(self, graphs: Sequence[MACEGraph]) -> Tensor:
        return self.evaluate(graphs, compute_force=False)["energy"]

    def gradient_memory(self, graph: MACEGraph) -> int:
        held = 0 if self.network is None else self.network.numbers_held(len(graph), graph.edges)
        return held * self.dtype.itemsize

    def energy_gradients(self, graphs: Sequence[MACEGraph]) -> Tensor:
        """Rows ``dE(x)/dtheta`` of a batch in one backward pass, unless the network has unknown parts."""
        network = self._differentiable()
        if network is None or not graphs:
            return super().energy_gradients(graphs)
        return network.differentiate(graphs, self._head_index, geometry=False)[1]

    def gradients_and_predictions(self, graphs: Sequence[MACEGraph]) -> tuple[Tensor, Predictions | None]:
        network = self._differentiable()
        if network is None or not graphs:
            return super().gradients_and_predictions(graphs)
        output, rows = network.differentiate(graphs, self._head_index)
        sizes = [len(graph) for graph in graphs]
        return rows, Predictions(self._total_energies(output, sizes), _split(output["forces"], sizes))

    def _without_gradient(self) -> list[str]:
        """The parts of the network whose gradient by structure the twin does not know; all, if there is no twin."""
        # Asked each time: somebody may have frozen or released parameters meanwhile.
        if self.network is not None:
            return self.network.unknown_parameters()
        return self._unknown_layers or [self.description]

    def _differentiable(self) -> FastNetwork | None:
        """The twin, if it knows the gradient of every parameter."""
        unknown = self._without_gradient()
        if not unknown:
            return self.network
        if not self._announced:
            more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
            log.warning(
                "gradients are computed one structure at a time, several times slower than at once, because this "
                "network has parts that adaptntk does not know: %s",
                ", ".join(unknown[:3]) + more,
            )
            self._announced = True
        return None

    def single_point(self, atoms: Atoms, gradient: bool = False) -> SinglePoint:
        """Energy, forces and stress of one structure; with its row ``dE/dtheta`` from the same pass, if wanted."""
        graph = self.graph(atoms)
        periodic = bool(atoms.pbc.all())
        network = self._differentiable() if gradient else None
        row: Tensor | None
        if network is not None:
            output, row = network.differentiate([graph], self._head_index, strain=periodic)
        else:
            output = self.evaluate([graph], compute_force=True, compute_stress=periodic)
            row = super().energy_gradients([graph]) if gradient else None
        energy, (forces,) = float(self._total_energies(output, [len(graph)])[0]), _split(output["forces"], [len(graph)])
        stress = output["stress"][0].detach().double().cpu().numpy() if periodic else None
        return SinglePoint(energy, forces, stress, row)

    def predict(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Predictions:
        starts = range(0, len(structures), batch_size)
        energies, forces, atom_energies, features = [], [], [], []
        # Of MACE's features of the atoms those that do not turn with the structure.
        irreps = [entry for product in self.module.products for entry in product.linear.irreps_out]
        scalar, widths = [ir.is_scalar() for _, ir in irreps], [mul * ir.dim for mul, ir in irreps]
        invariant = np.flatnonzero(np.repeat(scalar, widths)).tolist()
        for start in progress(starts, "predicting energies and forces", len(starts)):
            graphs = [self.graph(atoms) for atoms in structures[start : start + batch_size]]
            output = self.evaluate(graphs, compute_force=True)
            sizes = [len(graph) for graph in graphs]
            energies.append(self._total_energies(output, sizes))
            forces += _split(output["forces"], sizes)
            atom_energies += _split(output["node_energy"], sizes)
            features += _split(output["node_feats"][:, invariant], sizes)
        return Predictions(np.concatenate(energies), forces, atom_energies, features)

    def predict_in_turn(
        self, structures: Sequence[Atoms], weights: Iterable[Tensor], stress: bool = False
    ) -> Iterator[Predictions]:
        graphs = [self.graph(atoms) for atoms in structures]
        sizes = [len(graph) for graph in graphs]
        for chosen in weights:
            self.set_weights(chosen)
            output = self.evaluate(graphs, compute_force=True, compute_stress=stress)
            energies, forces = self._total_energies(output, sizes), _split(output["forces"], sizes)
            found = _stresses(output["stress"], structures) if stress else None
            yield Predictions(energies, forces, _split(output["node_energy"], sizes), stress=found)

    def copy(self) -> "MACEPotential":
        return self._with_module(copy.deepcopy(self.module))

    def with_dropout(self, rate: float) -> "MACEPotential":
        """A copy with dropout after the non-linearity of its last readout; what is saved is a stock network again."""
        check_dropout_rate(rate)
        if not self.capabilities.dropout:
            raise ModelError("dropout needs a network whose last readout has a non-linearity")
        module = self._stock_copy()
        module.readouts[-1].non_linearity = _WithDropout(module.readouts[-1].non_linearity, torch.nn.Dropout(rate))
        return self._with_module(module)

    def _stock_copy(self) -> Any:
        """A copy of the network, without dropout."""
        module = copy.deepcopy(self.module)
        readout = module.readouts[-1]
        if self.capabilities.dropout and isinstance(readout.non_linearity, _WithDropout):
            readout.non_linearity = readout.non_linearity[0]
        return module

    def _with_module(self, module: torch.nn.Module) -> "MACEPotential":
        return MACEPotential(module, self.fingerprint, self.source, self.head, fast=self._fast)

    def built_like(self, other: Potential) -> bool:
        return super().built_like(other) and isinstance(other, MACEPotential) and self.cutoff == other.cutoff

    @contextmanager
    def dropout_enabled(self) -> Iterator[None]:
        self.module.train()
        try:
            yield
        finally:
            self.module.eval()

    @property
    def isolated_energies(self) -> dict[int, float]:
        stored = torch.atleast_2d(self.module.atomic_energies_fn.atomic_energies)[self._head_index]
        return dict(zip(self.atomic_numbers, stored.double().tolist(), strict=True))

    @property
    def training_remarks(self) -> list[str]:
        remarks = []
        if others := [head for head in self.heads if head != self.head]:
            text = f"training changes what all heads share: besides {self.head}, the heads of the new model"
            remarks.append(f"{text} ({', '.join(others)}) will not give the energies they gave")
        if self._unknown_layers:
            text = "the network is trained as MACE has it, several times slower than others"
            remarks.append(f"{text}: adaptntk does not know {', '.join(self._unknown_layers)}")
        return remarks

    def training_outputs(self, graphs: Sequence[MACEGraph], training: bool, stress: bool = False) -> Outputs:
        output = self.evaluate(graphs, training=training, compute_force=True, compute_stress=stress)
        return Outputs(output["interaction_energy"], output["forces"], output["stress"])

    def captured_step(self, graphs: Sequence[MACEGraph], count: int, loss: Loss) -> Step | None:
        # On a GPU it was never tried.
        if self.network is None or self.device.type != "cpu":
            return None
        return self.network.captured_step(graphs, count, self._head_index, loss)

    def interaction_energies(self, graphs: Sequence[MACEGraph]) -> Tensor:
        return self.module(make_batch(graphs, self._head_index), compute_force=False)["interaction_energy"]

    def shift_energies(self, per_atom: float) -> None:
        with torch.no_grad():
            torch.atleast_1d(self.module.scale_shift.shift)[self._head_index] += per_atom

    def decayed_parameters(self) -> list[torch.nn.Parameter]:
        """As MACE chooses them: not embeddings, radial functions and readouts."""
        linear = ("linear.weight", "skip_tp_full.weight")
        named = self.module.interactions.named_parameters()
        return [p for name, p in named if name.endswith(linear)] + list(self.module.products.parameters())

    def save(self, path: str | Path) -> None:
        """Write a stock ``.model`` file, whose bytes depend on the network alone."""
        content = network_bytes(self._stock_copy().cpu().eval())  # whatever was done with it last
        write_atomically(path, lambda temporary: temporary.write_bytes(content))

    def _total_energies(self, output: dict[str, Tensor], sizes: list[int]) -> np.ndarray:
        """Sums of the atoms' energies in float64: float32 resolves a total of -17,000 eV to 2 meV only."""
        if hasattr(self.module, "embedding_readout"):
            return output["energy"].detach().double().cpu().numpy()
        atoms = output["node_energy"].detach().double()
        return torch.stack([part.sum() for part in atoms.split(sizes)]).cpu().numpy()


class _WithDropout(torch.nn.Sequential):
    """The non-linearity, then dropout."""


def _split(values: Tensor, sizes: list[int]) -> list[np.ndarray]:
    return [part.numpy() for part in values.detach().double().cpu().split(sizes)]


def _stresses(values: Tensor, structures: Sequence[Atoms]) -> list[np.ndarray | None]:
    """Of a structure with an open side MACE knows one too, of a cell that is made up."""
    tensors = values.detach().double().cpu().numpy()
    return [tensor if atoms.pbc.all() else None for atoms, tensor in zip(structures, tensors, strict=True)]


def _choose_head(heads: list[str], wanted: str | None) -> str:
    if wanted is not None and wanted not in heads:
        raise ModelError(f"the model has no head {wanted!r}: choose one of {', '.join(heads)}")
    chosen = wanted or next((head for head in heads if len(heads) == 1 or head.lower() == "default"), None)
    if chosen is None:
        how = "choose one with --head, or start.head of a campaign"
        raise ModelError(f"the model has several heads: {how} ({', '.join(heads)})")
    return chosen
