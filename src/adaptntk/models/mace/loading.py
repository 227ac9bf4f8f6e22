"""Files with MACE networks, as ``mace_run_train`` and `adaptntk.train` write them.

A ``.model`` file is a Python pickle: loading one runs code from it, so load only files whose origin you trust.
"""

import hashlib
import io
from pathlib import Path

import torch

from adaptntk.errors import ModelError
from adaptntk.models.mace.potential import MACEPotential

SUPPORTED = ("MACE", "ScaleShiftMACE")


def load_mace(
    path: Path, device: torch.device, dtype: torch.dtype | None = None, head: str | None = None
) -> MACEPotential:
    """Load a stock MACE ``.model`` file, which must come from a source you trust.

    ``head`` is needed for a network that has several of which none is called ``default``.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    module = _unpickle(path, content)
    name = type(module).__name__
    if name not in SUPPORTED:
        raise ModelError(f"{path}: holds a {name}, which is not supported: expected {' or '.join(SUPPORTED)}")
    if dtype is not None:
        module = module.to(dtype)
    fingerprint = hashlib.sha256(content).hexdigest()
    return MACEPotential(module.to(device), fingerprint, source=str(path), head=head)


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
