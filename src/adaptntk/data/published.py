"""Published data sets: where they are looked for, and the revised MD17 set of ten molecules, PBE/def2-SVP."""

import os
import zipfile
import zlib
from pathlib import Path

import numpy as np
from ase import Atoms, units
from ase.data import chemical_symbols
from platformdirs import user_cache_path

from adaptntk.data.structures import ENERGY, FORCES, check_structure
from adaptntk.errors import InputError

VARIABLE = "ADAPTNTK_DATA"
MOLECULES = [
    "aspirin", "azobenzene", "benzene", "ethanol", "malonaldehyde", "naphthalene", "paracetamol", "salicylic",
    "toluene", "uracil",
]  # fmt: skip
PUBLISHED = "'Revised MD17 dataset' by Christensen and von Lilienfeld, figshare, doi 10.6084/m9.figshare.12672038"
KEYS = ("nuclear_charges", "coords", "energies", "forces")


def data_directory(given: str | Path | None = None) -> Path:
    """``given``, else the environment variable ADAPTNTK_DATA, else a folder in the user's cache."""
    return Path(given or os.environ.get(VARIABLE) or user_cache_path("adaptntk") / "data")


def data_file(relative: str, published: str, given: str | Path | None = None) -> Path:
    """Path of a data file; when it is missing, say where it is published and where to put it."""
    path = data_directory(given) / relative
    if not path.is_file():
        where = f"put it there, or point --data-dir or {VARIABLE} to the folder that holds {relative}"
        raise InputError(f"{path}: not found. It is published as {published}; {where}")
    return path


def load_rmd17(molecule: str, data_dir: str | Path | None = None) -> list[Atoms]:
    """All frames of one molecule, labels converted from kcal/mol to eV; ``info["frame"]`` is the row in the file."""
    if molecule not in MOLECULES:
        raise InputError(f"unknown rMD17 molecule {molecule!r}: choose one of {', '.join(MOLECULES)}")
    return read_rmd17(data_file(f"rmd17/rmd17_{molecule}.npz", PUBLISHED, data_dir))


def read_rmd17(path: Path) -> list[Atoms]:
    """Frames of one ``rmd17_*.npz`` file."""
    try:
        with path.open("rb") as file, np.load(file) as content:
            missing = [key for key in KEYS if key not in content]
            if missing:
                raise InputError(f"{path}: not an rMD17 file, it lacks {', '.join(missing)}")
            numbers, positions, energies, forces = (content[key] for key in KEYS)
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, ValueError, KeyError, OSError, EOFError, NotImplementedError) as error:
        raise InputError(f"{path}: truncated or not an npz file ({error})") from None
    shapes = {"nuclear_charges": (atoms := numbers.size,), "coords": (count := energies.size, atoms, 3)}
    shapes |= {"energies": (count,), "forces": (count, atoms, 3)}
    for (key, shape), found in zip(shapes.items(), (numbers, positions, energies, forces), strict=True):
        if found.shape != shape or found.dtype.kind not in "iuf":
            raise InputError(f"{path}: {key} must be numbers of shape {shape}, not {found.dtype} of {found.shape}")
    if ((numbers < 1) | (numbers >= len(chemical_symbols)) | (numbers % 1 != 0)).any():
        raise InputError(f"{path}: nuclear_charges holds numbers that are no elements")
    kcal_per_mol = units.kcal / units.mol
    frames = []
    for index in range(len(energies)):
        atoms = Atoms(numbers=numbers, positions=positions[index], info={"frame": index})
        atoms.info[ENERGY] = float(energies[index]) * kcal_per_mol
        atoms.arrays[FORCES] = forces[index] * kcal_per_mol
        check_structure(atoms, f"{path}, frame {index}")
        frames.append(atoms)
    return frames
