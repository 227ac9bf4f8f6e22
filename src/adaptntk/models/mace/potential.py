"""MACE models, as ``mace_run_train`` and `adaptntk.train` write them.

A ``.model`` file is a Python pickle: loading one runs code from it, so load only files whose origin you trust.
"""

import copy
import hashlib
import io
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms
from scipy.spatial import cKDTree
from torch import Tensor

from adaptntk.errors import InputError, ModelError
from adaptntk.files import write_atomically
from adaptntk.memory import keep_freed_memory
from adaptntk.models.mace.dropout import has_non_linear_readout, insert_dropout
from adaptntk.models.mace.fast import unknown_layers
from adaptntk.models.mace.gradients import FastNetwork
from adaptntk.models.mace.layout import Layout
from adaptntk.models.mace.stock import get_neighborhood
from adaptntk.models.protocol import (
    Capabilities,
    PotentialBase,
    Predictions,
    SinglePoint,
    choose_device,
    energy_gradients_one_by_one,
)
from adaptntk.progress import Progress, silent

log = logging.getLogger(__name__)

# A ZBL repulsion reaches as far as two covalent radii, 5.2 Å at most, whatever the cutoff.
_LONGEST_PAIR = 6.0
SUPPORTED = ("MACE", "ScaleShiftMACE")
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def load_mace(
    path: str | Path, device: str = "auto", dtype: str | None = None, head: str | None = None, fast: bool = True
) -> "MACEPotential":
    """Load a stock MACE ``.model`` file.

    Args:
        path: the file (a pickle: it must come from a source you trust).
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        dtype: ``float32`` or ``float64``; as stored when not given.
        head: which head of a multi-head model; needed when it has several and none is called ``default``.
        fast: see `MACEPotential`.
    """
    path = Path(path)
    target = choose_device(device)
    if dtype is not None and dtype not in DTYPES:
        raise InputError(f"unknown dtype {dtype!r}: choose float32 or float64")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    module = _unpickle(path, content)
    name = type(module).__name__
    if name not in SUPPORTED:
        raise ModelError(f"{path}: holds a {name}, which is not supported: expected {' or '.join(SUPPORTED)}")
    if dtype is not None:
        module = module.to(DTYPES[dtype])
    fingerprint = hashlib.sha256(content).hexdigest()
    return MACEPotential(module.to(target), fingerprint, source=str(path), head=head, fast=fast)


def save_mace(module: torch.nn.Module, path: str | Path) -> None:
    """Write a stock ``.model`` file, atomically."""
    write_atomically(path, lambda temporary: torch.save(module, temporary))


@dataclass(frozen=True)
class MACEGraph:
    """One structure as MACE sees it, on the potential's device; edges sorted by the atom that receives them.

    On the host: ``elements`` (index of each atom's element), ``neighbours`` (edges each atom receives), and
    ``beyond``, a translation of the lattice longer than the cutoff: an edge so long contributes nothing, and stands
    where a batch needs an empty one.
    """

    positions: Tensor
    node_attrs: Tensor
    edge_index: Tensor
    shifts: Tensor
    unit_shifts: Tensor
    cell: Tensor
    elements: np.ndarray
    neighbours: np.ndarray
    beyond: Tensor

    def __len__(self) -> int:
        return len(self.elements)


class MACEPotential(PotentialBase):
    """A MACE network as a `Potential`.

    Args:
        module: the stock network. It stays as it is, whatever is done with the potential but training.
        fingerprint: hash of the model file.
        source: path of the model file.
        head: which head of a multi-head model.
        fast: evaluate the network by its faster twin (``mace_fast.py``), where it has one: the same numbers to
            rounding.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        fingerprint: str,
        source: str | None = None,
        head: str | None = None,
        fast: bool = True,
    ) -> None:
        keep_freed_memory()
        # The profiling executor recompiles e3nn's TorchScript for the first calls of every new shape, and
        # every structure is a new shape: 30 times slower on a CPU. The setting is global to the process.
        torch._C._jit_set_profiling_executor(False)
        self.module = module
        # Moving a network changes its parameters in place: any of them tells where it is.
        self._parameter = next(module.parameters())
        self._fingerprint = fingerprint
        self.source = source
        self.heads: list[str] = list(getattr(module, "heads", None) or ["Default"])
        self.head: str = _choose_head(self.heads, head)
        self.atomic_numbers: list[int] = [int(z) for z in module.atomic_numbers]  # type: ignore[union-attr]
        self.cutoff = float(module.r_max)  # type: ignore[arg-type]
        self.description = f"{type(module).__name__}, {len(self.atomic_numbers)} elements, cutoff {self.cutoff} Å"
        _make_trainable(module)
        unknown = unknown_layers(module)
        self.network = FastNetwork(module) if fast and not unknown else None
        self._unknown_layers = unknown
        self._announced = not fast
        self._fast = fast
        self._place_of_number = {number: place for place, number in enumerate(self.atomic_numbers)}

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def capabilities(self) -> Capabilities:
        exact = not self._without_gradient()
        return Capabilities(
            batched_gradients=exact,
            single_pass=exact,
            stress=True,
            node_features=True,
            atom_energies=True,
            dropout=has_non_linear_readout(self.module),
            trainable=hasattr(self.module, "scale_shift") and len(self.heads) == 1,
        )

    @property
    def device(self) -> torch.device:
        return self._parameter.device

    @property
    def dtype(self) -> torch.dtype:
        return self._parameter.dtype

    @property
    def species(self) -> frozenset[int]:
        return frozenset(self.atomic_numbers)

    def parameters(self) -> list[tuple[str, Tensor]]:
        return [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]

    def graph(self, atoms: Atoms) -> MACEGraph:
        positions, edge_index, shifts, unit_shifts, cell = _neighbours(atoms, self.cutoff)
        elements = np.array([self._place_of_number[number] for number in atoms.numbers.tolist()])
        order = np.argsort(edge_index[1], kind="stable")

        place = partial(torch.as_tensor, dtype=self.dtype, device=self.device)
        return MACEGraph(
            positions=place(positions),
            node_attrs=place(np.eye(len(self.atomic_numbers))[elements]),
            edge_index=torch.as_tensor(edge_index[:, order], dtype=torch.int64, device=self.device),
            shifts=place(shifts[order]),
            unit_shifts=place(unit_shifts[order]),
            cell=place(cell),
            elements=elements,
            neighbours=np.bincount(edge_index[1], minlength=len(atoms)),
            beyond=place(_translation_beyond(cell, max(self.cutoff, _LONGEST_PAIR))),
        )

    def batch(self, graphs: Sequence[MACEGraph], layout: Layout | None = None) -> dict[str, Tensor]:
        """The dictionary that a MACE network takes: graphs side by side, atoms numbered through.

        With a layout, edges come in its order, padded with empty ones.
        """
        device = self.device
        sizes = np.array([len(graph) for graph in graphs])
        ptr = np.concatenate([[0], np.cumsum(sizes)])
        edges = [graph.edge_index.shape[1] for graph in graphs]
        first_atom = torch.as_tensor(np.repeat(ptr[:-1], edges), device=device)
        edge_index = torch.cat([graph.edge_index for graph in graphs], dim=1) + first_atom
        unit_shifts, shifts, cell = (
            torch.cat([getattr(graph, name) for graph in graphs]) for name in ("unit_shifts", "shifts", "cell")
        )
        graph_of_atom = torch.as_tensor(np.repeat(np.arange(len(graphs)), sizes), device=device)
        if layout is not None:
            itself = torch.arange(int(ptr[-1]), device=device)
            beyond = torch.stack([graph.beyond for graph in graphs])
            far = (beyond.unsqueeze(1) @ cell.view(-1, 3, 3)).squeeze(1)
            slots = layout.padded_edges
            edge_index = torch.cat([edge_index, itself.expand(2, -1)], dim=1).index_select(1, slots)
            unit_shifts = torch.cat([unit_shifts, beyond[graph_of_atom]]).index_select(0, slots)
            shifts = torch.cat([shifts, far[graph_of_atom]]).index_select(0, slots)
        return {
            "positions": torch.cat([graph.positions for graph in graphs]),
            "node_attrs": torch.cat([graph.node_attrs for graph in graphs]),
            "edge_index": edge_index,
            "unit_shifts": unit_shifts,
            "shifts": shifts,
            "cell": cell,
            "batch": graph_of_atom,
            "ptr": torch.as_tensor(ptr, device=device),
            "head": torch.full((len(graphs),), self.heads.index(self.head), device=device),
        }

    def layout(self, graphs: Sequence[MACEGraph]) -> Layout:
        """In which order the fast twin wants the atoms and edges of a batch."""
        return Layout(
            np.concatenate([graph.elements for graph in graphs]),
            np.repeat(np.arange(len(graphs)), [len(graph) for graph in graphs]),
            np.concatenate([graph.neighbours for graph in graphs]),
            len(graphs),
            self.device,
        )

    def evaluate(self, graphs: Sequence[MACEGraph], **options: bool) -> dict[str, Tensor]:
        """The network's own dictionary of results; ``options`` are those of MACE (``compute_force``, ...)."""
        if self.network is None:
            return self.module(self.batch(graphs), **options)
        layout = self.layout(graphs)
        return self.network(self.batch(graphs, layout), layout, **options)

    def energies(self, graphs: Sequence[MACEGraph]) -> Tensor:
        return self.evaluate(graphs, compute_force=False)["energy"]

    def outputs(self, graphs: Sequence[MACEGraph], training: bool = False) -> dict[str, Tensor]:
        """All results, forces included."""
        return self.evaluate(graphs, training=training, compute_force=True)

    def gradient_memory(self, graph: MACEGraph) -> int:
        """Bytes that a structure takes while its gradient is computed in a batch, about."""
        if self.network is None:
            return 0
        return self.network.numbers_held(len(graph), graph.edge_index.shape[1]) * self.dtype.itemsize

    def energy_gradients(self, graphs: Sequence[MACEGraph]) -> Tensor:
        """Rows ``dE(x)/dtheta`` of a batch in one backward pass, unless the network has unknown parts."""
        network = self._differentiable()
        if network is None or not graphs:
            return energy_gradients_one_by_one(self, graphs)
        layout = self.layout(graphs)
        return network.structure_gradients(self.batch(graphs, layout), layout)

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
        row: Tensor | None = None
        if network is not None:
            layout = self.layout([graph])
            found = network.differentiate(self.batch([graph], layout), layout, strain=periodic)
            assert found.forces is not None
            output, forces, row = found.output, found.forces, found.gradients
            stress = found.strain / torch.linalg.det(graph.cell).abs() if found.strain is not None else None
        else:
            output = self.evaluate([graph], compute_force=True, compute_stress=periodic)
            forces, stress = output["forces"], output["stress"] if periodic else None
            if gradient:
                row = energy_gradients_one_by_one(self, [graph])
        return SinglePoint(
            float(self.total_energies(output, [len(graph)])[0]),
            _split(forces, [len(graph)])[0],
            None if stress is None else stress[0].detach().double().cpu().numpy(),
            row,
        )

    def predict(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Predictions:
        starts = range(0, len(structures), batch_size)
        energies, forces, atom_energies, features = [], [], [], []
        invariant = self._invariant_columns()
        for start in progress(starts, "predicting energies and forces", len(starts)):
            graphs = [self.graph(atoms) for atoms in structures[start : start + batch_size]]
            output = self.outputs(graphs)
            sizes = [len(graph) for graph in graphs]
            energies.append(self.total_energies(output, sizes))
            forces += _split(output["forces"], sizes)
            atom_energies += _split(output["node_energy"], sizes)
            features += _split(output["node_feats"][:, invariant], sizes)
        return Predictions(np.concatenate(energies), forces, atom_energies, features)

    def copy(self) -> "MACEPotential":
        module = copy.deepcopy(self.module)
        return MACEPotential(module, self.fingerprint, self.source, self.head, fast=self._fast)

    def with_dropout(self, rate: float) -> "MACEPotential":
        """A copy with dropout after the non-linearity of its last readout."""
        module = copy.deepcopy(self.module)
        insert_dropout(module, rate)
        return MACEPotential(module, self.fingerprint, self.source, self.head, fast=self._fast)

    @contextmanager
    def dropout_enabled(self) -> Iterator[None]:
        self.module.train()
        try:
            yield
        finally:
            self.module.eval()

    def _invariant_columns(self) -> list[int]:
        """Which columns of MACE's features of the atoms hold scalars, which do not turn with the structure."""
        columns: list[int] = []
        start = 0
        module: Any = self.module
        for product in module.products:
            for mul, ir in product.linear.irreps_out:
                if ir.is_scalar():
                    columns += range(start, start + mul)
                start += mul * ir.dim
        return columns

    def total_energies(self, output: dict[str, Tensor], sizes: list[int]) -> np.ndarray:
        """Sums of the atoms' energies in float64: float32 resolves a total of -17,000 eV to 2 meV only."""
        if hasattr(self.module, "embedding_readout"):
            return output["energy"].detach().double().cpu().numpy()
        atoms = output["node_energy"].detach().double()
        return torch.stack([part.sum() for part in atoms.split(sizes)]).cpu().numpy()


def mean_neighbours(structures: Sequence[Atoms], cutoff: float) -> float:
    """Neighbours per atom, by which MACE normalises its messages."""
    edges = sum(_neighbours(atoms, cutoff)[1].shape[1] for atoms in structures)
    return max(1.0, edges / sum(len(atoms) for atoms in structures))


def _neighbours(atoms: Atoms, cutoff: float) -> tuple[np.ndarray, ...]:
    """Positions, edges, shifts in Å and in cells, and the cell."""
    positions = np.array(atoms.positions)
    if not atoms.pbc.any():
        # MACE encloses an open system in a box as large as its distance from the origin.
        positions -= positions.mean(axis=0)
        return positions, *_open_neighbours(positions, cutoff)
    periodic = tuple(bool(direction) for direction in atoms.pbc)
    return positions, *get_neighborhood(positions, cutoff, periodic, np.array(atoms.cell))


def _open_neighbours(positions: np.ndarray, cutoff: float) -> tuple[np.ndarray, ...]:
    """Edges of a system without periodic images, as `get_neighborhood` gives them.

    MACE's search divides a box around all atoms into cells: an atom that has flown 100 Å away makes it take a second,
    one at 1,000 Å gigabytes.
    """
    pairs = cKDTree(positions).query_pairs(cutoff, output_type="ndarray").T
    edge_index = np.concatenate([pairs, pairs[::-1]], axis=1).astype(np.int64)
    nowhere = np.zeros((edge_index.shape[1], 3))
    box = np.eye(3) * (np.abs(positions).max() + 1) * 5 * cutoff
    return edge_index, nowhere, nowhere, box


def _translation_beyond(cell: np.ndarray, cutoff: float) -> np.ndarray:
    """A whole multiple of a lattice vector, longer than the cutoff."""
    lengths = np.linalg.norm(cell, axis=1)
    axis = int(np.argmin(lengths))
    translation = np.zeros(3)
    translation[axis] = np.floor(cutoff / lengths[axis]) + 1
    return translation


def _split(values: Tensor, sizes: list[int]) -> list[np.ndarray]:
    return [part.numpy() for part in values.detach().double().cpu().split(sizes)]


def _unpickle(path: Path, content: bytes) -> torch.nn.Module:
    try:
        module = torch.load(io.BytesIO(content), map_location="cpu", weights_only=False)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"{path}: needs a Python package or version that is missing here ({error})") from None
    except Exception as error:  # unpickling raises whatever the bytes lead it to
        line = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise ModelError(f"{path}: not a MACE model file, or truncated ({line})") from None
    if isinstance(module, torch.jit.ScriptModule):
        raise ModelError(f"{path}: a compiled TorchScript model; use the .model file it was made from")
    if isinstance(module, dict):
        raise ModelError(f"{path}: a checkpoint of weights, not a model; use the .model file of that training")
    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"{path}: holds a {type(module).__name__}, not a MACE model")
    return module


def _choose_head(heads: list[str], wanted: str | None) -> str:
    if wanted is not None:
        if wanted not in heads:
            raise ModelError(f"the model has no head {wanted!r}: choose one of {', '.join(heads)}")
        return wanted
    if len(heads) == 1:
        return heads[0]
    default = [head for head in heads if head.lower() == "default"]
    if not default:
        raise ModelError(f"the model has several heads: choose one with --head ({', '.join(heads)})")
    return default[0]


def _make_trainable(module: torch.nn.Module) -> None:
    """A model that went through MACECalculator has every gradient switched off: switch them on again.

    Where only some are off, somebody froze them on purpose, and they are no trainable parameters.
    """
    parameters = list(module.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        for parameter in parameters:
            parameter.requires_grad_(True)
