"""One door for all model files."""

from pathlib import Path

from adaptntk.models.mace.potential import load_mace
from adaptntk.models.protocol import Potential


def load_potential(
    path: str | Path, device: str = "auto", dtype: str | None = None, head: str | None = None
) -> Potential:
    """Load a trained potential from a file: today a MACE ``.model``.

    The file is a pickle and loading it runs code from it: load only files you trust. See `load_mace` for the
    arguments.
    """
    return load_mace(path, device, dtype, head)
