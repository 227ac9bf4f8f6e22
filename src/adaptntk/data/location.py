"""Where published data sets are looked for."""

import os
from pathlib import Path

from platformdirs import user_cache_path

from adaptntk.errors import InputError

VARIABLE = "ADAPTNTK_DATA"


def data_directory(given: str | Path | None = None) -> Path:
    """``given``, else the environment variable ADAPTNTK_DATA, else a folder in the user's cache."""
    return Path(given or os.environ.get(VARIABLE) or user_cache_path("adaptntk") / "data")


def data_file(relative: str, published: str, given: str | Path | None = None) -> Path:
    """Path of a data file; when it is missing, say where it is published and where to put it."""
    path = data_directory(given) / relative
    if not path.is_file():
        raise InputError(
            f"{path}: not found. It is published as {published}; put it there, or point --data-dir or "
            f"{VARIABLE} to the folder that holds {relative}"
        )
    return path
