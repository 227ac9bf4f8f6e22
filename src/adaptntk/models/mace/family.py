"""MACE as a family of potentials. MACE itself takes seconds to import: that waits until it is needed."""

import hashlib
import importlib.util
import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from ase import Atoms

from adaptntk.errors import InputError, ModelError
from adaptntk.models.family import EnergyReference, Family, Trainable
from adaptntk.models.protocol import Potential


@dataclass(frozen=True)
class MACEArchitecture:
    """Size of a ScaleShiftMACE network; all others of its settings are the paper's."""

    family: ClassVar[str] = "mace"
    hidden_irreps: str
    max_ell: int
    correlation: int
    cutoff: float
    radial_mlp: tuple[int, ...]
    readout_irreps: str = "16x0e"
    interactions: int = 2
    bessel_functions: int = 8
    polynomial_cutoff: int = 5

    def resized(self, **sizes: Any) -> "MACEArchitecture":
        first, *others = self.hidden_irreps.split("+")
        channels = int(sizes.pop("channels", int(first.split("x")[0])))
        highest = int(sizes.pop("hidden_ell", len(others)))
        hidden = " + ".join(f"{channels}x{order}{'eo'[order % 2]}" for order in range(highest + 1))
        changed = replace(self, hidden_irreps=hidden, **sizes)
        for name in ("channels", "correlation", "interactions", "cutoff"):
            value = channels if name == "channels" else getattr(changed, name)
            if not value > 0:
                raise InputError(f"{name} must be positive, not {value:g}")
        if not 0 <= highest <= changed.max_ell:
            why = f"0 to {changed.max_ell}, the highest order of the spherical harmonics"
            raise InputError(f"the highest order of the features must be {why}, not {highest}")
        return changed


PAPER = MACEArchitecture("128x0e + 128x1o", max_ell=3, correlation=3, cutoff=6.0, radial_mlp=(64, 64, 64))
TINY = MACEArchitecture("4x0e + 4x1o", max_ell=1, correlation=2, cutoff=4.0, radial_mlp=(8,), readout_irreps="4x0e")
STANDARD = MACEArchitecture("16x0e + 16x1o + 16x2e", max_ell=3, correlation=3, cutoff=5.0, radial_mlp=(64, 64, 64))
FAST = STANDARD.resized(hidden_ell=1)
SMALL = MACEArchitecture("16x0e + 16x1o", max_ell=2, correlation=2, cutoff=5.0, radial_mlp=(32, 32))


class MACEFamily(Family):
    """Stock MACE networks, as ``mace_run_train`` and `adaptntk.train` write them.

    A ``.model`` file is a Python pickle. It is read without running anything of it (``unpickling.py``), unless the user
    trusts it.
    """

    name = "mace"
    files = "MACE .model files"
    architectures = {"fast": FAST, "standard": STANDARD, "paper": PAPER, "small": SMALL, "tiny": TINY}  # noqa: RUF012

    def recognises(self, path: Path) -> bool:
        return path.suffix == ".model" or _is_pickle_of_mace(path)

    def load(self, path: Path, device: torch.device, dtype: torch.dtype | None, head: str | None) -> Potential:
        return _load(_read_safely, path, device, dtype, head)

    def load_trusted(self, path: Path, device: torch.device, dtype: torch.dtype | None, head: str | None) -> Potential:
        return _load(_read_trusting, path, device, dtype, head)

    def build(
        self, architecture: Any, reference: EnergyReference, structures: Sequence[Atoms], dtype: torch.dtype, seed: int
    ) -> Trainable:
        from adaptntk.models.mace.graph import mean_neighbours
        from adaptntk.models.mace.potential import MACEPotential

        neighbours = mean_neighbours(structures, architecture.cutoff)
        return MACEPotential(build_network(architecture, reference, neighbours, dtype, seed))


def _is_pickle_of_mace(path: Path) -> bool:
    """Whether torch wrote the file and it names MACE's classes; looked at without running anything of it."""
    try:
        with zipfile.ZipFile(path) as archive:
            pickles = [entry for entry in archive.infolist() if entry.filename.endswith("/data.pkl")]
            # Torch does not compress them; who does may want to fill the memory.
            stored = [entry for entry in pickles if entry.compress_type == zipfile.ZIP_STORED]
            return any(b"mace" in archive.read(entry) for entry in stored)
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile):
        return False


def _load(read: Callable[[Path, bytes], Any], path: Path, device: torch.device, *how: Any) -> Potential:
    from adaptntk.models.mace.potential import MACEPotential

    dtype, head = how
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    module = _unpickled(read, path, content)
    name = type(module).__name__
    if name not in ("MACE", "ScaleShiftMACE"):
        raise ModelError(f"{path}: holds a {name}, which is not supported: expected MACE or ScaleShiftMACE")
    try:
        if not all(bool(torch.isfinite(tensor).all()) for tensor in module.parameters()):
            raise ModelError("has weights that are infinite or no numbers; train it again")
        return MACEPotential(module.to(device, dtype), hashlib.sha256(content).hexdigest(), str(path), head)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    except (AttributeError, TypeError, ValueError, KeyError, IndexError) as error:
        raise ModelError(f"{path}: holds a {name} that lacks a part, or has an odd one ({error})") from None


def _read_safely(path: Path, content: bytes) -> Any:
    from adaptntk.models.mace.unpickling import UnsafeModelError, read_network

    try:
        return read_network(content)
    except UnsafeModelError as error:
        cure = "nothing was run; if you trust whoever made it, pass --trust-model (in Python trust=True)"
        raise ModelError(f"{path}: {error}; {cure}") from None


def _read_trusting(path: Path, content: bytes) -> Any:
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=False)


def _unpickled(read: Callable[[Path, bytes], Any], path: Path, content: bytes) -> torch.nn.Module:
    try:
        module = read(path, content)
    except ModelError:
        raise
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


def build_network(
    architecture: MACEArchitecture, reference: EnergyReference, mean_neighbours: float, dtype: torch.dtype, seed: int
) -> torch.nn.Module:
    """An untrained ScaleShiftMACE with weights drawn from ``seed``; the global generator is left as it was."""
    for package in ("cuequivariance", "cuequivariance_torch"):
        if importlib.util.find_spec(package) is None:
            raise ModelError(
                f"{package} is not installed: MACE would silently build another, larger network; pip install {package}"
            )
    from adaptntk.models.mace.stock import modules, o3, quiet

    default = torch.get_default_dtype()
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_default_dtype(dtype)
        try:
            return modules.ScaleShiftMACE(
                r_max=architecture.cutoff,
                num_bessel=architecture.bessel_functions,
                num_polynomial_cutoff=architecture.polynomial_cutoff,
                max_ell=architecture.max_ell,
                interaction_cls=modules.RealAgnosticResidualInteractionBlock,
                interaction_cls_first=modules.RealAgnosticInteractionBlock,
                num_interactions=architecture.interactions,
                num_elements=len(reference.atomic_numbers),
                hidden_irreps=o3.Irreps(architecture.hidden_irreps),
                MLP_irreps=o3.Irreps(architecture.readout_irreps),
                atomic_energies=torch.tensor(reference.isolated_energies, dtype=torch.float64).numpy(),
                avg_num_neighbors=mean_neighbours,
                atomic_numbers=list(reference.atomic_numbers),
                correlation=architecture.correlation,
                gate=torch.nn.functional.silu,
                radial_MLP=list(architecture.radial_mlp),
                atomic_inter_scale=reference.scale,
                atomic_inter_shift=reference.shift,
            )
        finally:
            torch.set_default_dtype(default)
