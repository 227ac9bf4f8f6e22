"""Structures are ``ase.Atoms``; this file reads them, checks them and gives them an identity.

In memory labels always stand at ``info["REF_energy"]`` (eV) and ``arrays["REF_forces"]`` (eV/Å), the keys that MACE
reads by default, whatever they were called in the file; the files we write use the same keys.
"""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import ase.io
import numpy as np
from ase import Atoms
from ase.neighborlist import neighbor_list
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from adaptntk.errors import InputError
from adaptntk.files import write_atomically

ENERGY = "REF_energy"
FORCES = "REF_forces"
HASH_RESOLUTION = 1e-6  # Å
FUSED = 0.3  # Å: no two nuclei come this close
NO_LABELS = "no REF_energy and REF_forces; read_structures moves labels there from other keys"
NON_METALS = {1, 5, 6, 7, 8, 9, 14, 15, 16, 17, 34, 35, 53}
# What ase's calculators give per atom; everything else belongs to the structure.
PER_ATOM = {"forces", "energies", "stresses", "charges", "magmoms"}


def read_structures(
    path: str | Path,
    energy_key: str = ENERGY,
    forces_key: str = FORCES,
    labelled: bool = False,
    unique: bool = True,
    own: bool = False,
) -> list[Atoms]:
    """Read all frames of an extxyz file (or whatever ``ase.io`` reads) and check them.

    Args:
        path: the file.
        energy_key, forces_key: where the labels stand; they are moved to the standard keys.
        labelled: refuse frames without energy and forces.
        unique: refuse files that hold the same structure twice.
        own: a file that this package wrote: not searched for duplicates and wrong units.
    """
    path = Path(path)
    frames = _read_frames(path)
    if not frames:
        raise InputError(f"{path}: no structures in the file")
    for index, atoms in enumerate(frames):
        check_frame(atoms, energy_key, forces_key, labelled, f"{path}, frame {index}")
    if unique and not own:
        check_unique(frames, str(path))
    if not own:
        check_length_unit(frames, str(path))
    return frames


def check_frame(atoms: Atoms, energy_key: str, forces_key: str, labelled: bool, where: str) -> None:
    """Move the labels of a frame that was just read to the standard keys, and check it."""
    _standardise_labels(atoms, energy_key, forces_key, where)
    check_structure(atoms, where)
    if labelled:
        _check_labelled(atoms, energy_key, forces_key, where)


def write_structures(path: str | Path, frames: Iterable[Atoms]) -> None:
    """Write extxyz atomically: the file appears complete or not at all."""

    def write(temporary: Path) -> None:
        with temporary.open("w") as file:
            for atoms in frames:
                ase.io.write(file, atoms, format="extxyz")

    write_atomically(path, write)


def structure_hash(atoms: Atoms) -> str:
    """SHA-256 of species and positions rounded to 1e-6 Å, and of the cell where it is periodic."""
    digest = hashlib.sha256()
    digest.update(atoms.numbers.astype("<i4").tobytes())
    digest.update(_rounded(atoms.positions))
    if atoms.pbc.any():
        digest.update(atoms.pbc.astype("<i4").tobytes())
        digest.update(_rounded(np.asarray(atoms.cell)))
    return digest.hexdigest()


def has_labels(atoms: Atoms) -> bool:
    """Whether both reference energy and forces are there."""
    return ENERGY in atoms.info and FORCES in atoms.arrays


def check_labelled(frames: Iterable[Atoms], name: str) -> None:
    """Refuse a set with a structure that has no labels."""
    for index, atoms in enumerate(frames):
        if not has_labels(atoms):
            raise InputError(f"{name}, frame {index}: {NO_LABELS}")


def reference_energies(frames: Iterable[Atoms]) -> NDArray[np.float64]:
    """Labels in eV."""
    return np.array([atoms.info[ENERGY] for atoms in frames], dtype=float)


def reference_forces(frames: Iterable[Atoms]) -> list[NDArray[np.float64]]:
    """Labels in eV/Å, one array per structure."""
    return [np.asarray(atoms.arrays[FORCES], dtype=float) for atoms in frames]


def check_structure(atoms: Atoms, where: str) -> None:
    """Refuse what no potential can evaluate: no atoms, numbers that are not finite, atoms on one another."""
    if len(atoms) == 0:
        raise InputError(f"{where}: the structure has no atoms; remove the frame")
    if (atoms.numbers < 1).any():
        raise InputError(f"{where}: atom {int(np.argmin(atoms.numbers))} has no element; fix its symbol")
    for name, values in (
        ("position", atoms.positions),
        ("cell", np.asarray(atoms.cell)),
        (ENERGY, np.asarray(atoms.info.get(ENERGY, 0.0), dtype=float)),
        (FORCES, atoms.arrays.get(FORCES, np.zeros(1))),
    ):
        if not np.isfinite(values).all():
            raise InputError(f"{where}: {name} is NaN or infinite; remove or relabel the frame")
    periodic = np.asarray(atoms.cell)[atoms.pbc]
    if len(periodic) and np.linalg.matrix_rank(periodic) < len(periodic):
        raise InputError(f"{where}: periodic in {len(periodic)} directions without as many cell vectors; set Lattice")
    closest = _nearest(atoms, FUSED)[0].min()
    if closest < FUSED:
        raise InputError(
            f"{where}: two atoms are {closest:.3f} Å apart; positions must be in Å (nm?) and atoms not fused"
        )


def check_unique(frames: Sequence[Atoms], name: str) -> None:
    """Refuse a set that holds the same structure twice."""
    seen: dict[str, int] = {}
    for index, atoms in enumerate(frames):
        first = seen.setdefault(structure_hash(atoms), index)
        if first != index:
            raise InputError(f"{name}: frames {first} and {index} are the same structure; remove one of them")


def check_length_unit(frames: Sequence[Atoms], name: str) -> None:
    """Notice positions in Bohr by the bonds of hydrogen to non-metals: 0.9 to 1.1 Å, and so 1.7 to 2.1 Bohr.

    Atoms that really are so far apart (a dissociation curve) scatter more than bonds do.
    """
    distances: list[float] = []
    for atoms in frames[:20]:
        distance, partner = _nearest(atoms, 3.0)
        bonded = (atoms.numbers == 1) & np.isfinite(distance)
        distances += [
            d for d, p in zip(distance[bonded], partner[bonded], strict=True) if atoms.numbers[p] in NON_METALS
        ]
    if not distances:
        return
    hydrogen = np.array(distances)
    low, typical, high = np.quantile(hydrogen, [0.25, 0.5, 0.75])
    if 1.6 < typical < 2.3 and high - low < 0.3:
        raise InputError(
            f"{name}: hydrogen atoms are {typical:.2f} Å from their nearest neighbour; the positions look like Bohr, "
            "convert them to Å"
        )


def check_force_unit(frames: Sequence[Atoms], name: str) -> None:
    """Notice force labels that cannot be eV/Å because of their size."""
    typical = float(np.sqrt(np.mean(np.concatenate([f.ravel() for f in reference_forces(frames)]) ** 2)))
    if typical > 15.0:
        raise InputError(
            f"{name}: the root mean square force is {typical:.1f}, where eV/Å would give about 1; "
            f"the labels look like kcal/mol/Å, convert them to eV and eV/Å"
        )


def check_readable(path: Path) -> None:
    """Refuse what cannot be a structure file."""
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if path.is_dir():
        raise InputError(f"{path}: is a directory, not a structure file")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty")


def unreadable(path: Path, index: int, error: Exception) -> InputError:
    """What to say of a frame that ase cannot read."""
    return InputError(
        f"{path}, frame {index}: cannot be read, the file is truncated or not a structure file "
        f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no details'})"
    )


def _read_frames(path: Path) -> list[Atoms]:
    check_readable(path)
    frames: list[Atoms] = []
    try:
        for atoms in ase.io.iread(path, index=":", do_not_split_by_at_sign=True):
            frames.append(atoms)
    except Exception as error:  # ase raises whatever its many parsers raise
        raise unreadable(path, len(frames), error) from None
    if path.suffix in (".xyz", ".extxyz"):
        _check_complete(path)
    return frames


def _check_complete(path: Path) -> None:
    """ase passes over a last frame that ends within its first two lines, and over all that follows a blank line."""
    with path.open() as file:
        frame = 0
        while (first := file.readline()).strip():
            if first.startswith("VEC"):  # an old way to write the cell, after the atoms
                continue
            wanted = int(first) + 1
            if sum(1 for _ in islice(file, wanted)) < wanted:
                raise InputError(f"{path}, frame {frame}: incomplete, the file is truncated; copy it again")
            frame += 1
        if any(line.strip() for line in file):
            raise InputError(
                f"{path}: a blank line after frame {frame - 1} hides the frames behind it; remove the line"
            )


def _standardise_labels(atoms: Atoms, energy_key: str, forces_key: str, where: str) -> None:
    """Move the labels to the standard keys. ase hands the plain keys over in a calculator."""
    results = dict(atoms.calc.results) if atoms.calc is not None else {}
    atoms.calc = None
    for key, value in results.items():
        # What the calculator held survives a later write, under its own name.
        holder = atoms.arrays if key in PER_ATOM else atoms.info
        holder.setdefault(key, np.asarray(value) if key in PER_ATOM else value)
    for asked, standard, holder in ((energy_key, ENERGY, atoms.info), (forces_key, FORCES, atoms.arrays)):
        if asked != standard:
            # A label under the standard key that was not asked for is of another kind: it must not stand in.
            holder.pop(standard, None)
            if asked in holder:
                holder[standard] = holder.pop(asked)
    try:
        if ENERGY in atoms.info:
            atoms.info[ENERGY] = float(atoms.info[ENERGY])
        if FORCES in atoms.arrays:
            atoms.arrays[FORCES] = np.asarray(atoms.arrays[FORCES], dtype=float)
    except (TypeError, ValueError):
        raise InputError(
            f"{where}: {energy_key} or {forces_key} is not a number; relabel or remove the frame"
        ) from None


def _check_labelled(atoms: Atoms, energy_key: str, forces_key: str, where: str) -> None:
    wanted = (("energy", energy_key, ENERGY, atoms.info), ("forces", forces_key, FORCES, atoms.arrays))
    missing = [(kind, key, holder) for kind, key, standard, holder in wanted if standard not in holder]
    if missing:
        names = " and ".join(repr(key) for _, key, _ in missing)
        found = [
            f"--{kind}-key {name}"
            for kind, _, holder in missing
            for name in (kind, f"REF_{kind}", f"dft_{kind}")
            if name in holder
        ]
        cure = f"it has others: pass {' '.join(found)}" if found else "label or remove it, or name the key it has"
        raise InputError(f"{where}: no label {names}; {cure}")
    if atoms.arrays[FORCES].shape != (len(atoms), 3):
        raise InputError(f"{where}: {forces_key} is not three numbers per atom")


def _nearest(atoms: Atoms, cutoff: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Distance and index of each atom's nearest neighbour, periodic images included; infinite beyond the cutoff."""
    if not atoms.pbc.any():
        distance, index = cKDTree(atoms.positions).query(atoms.positions, k=[2], distance_upper_bound=cutoff)
        return distance[:, 0], index[:, 0]
    nearest, partner = np.full(len(atoms), np.inf), np.zeros(len(atoms), dtype=np.int64)
    first, second, distance = neighbor_list("ijd", atoms, cutoff)
    for i, j, d in zip(first, second, distance, strict=True):
        if d < nearest[i]:
            nearest[i], partner[i] = d, j
    return nearest, partner


def _rounded(values: NDArray[np.float64]) -> bytes:
    # To eight decimals first, as extxyz files have them: else a number near the edge of a bin changes its bin by
    # being written and read.
    return np.round(np.round(values, 8) / HASH_RESOLUTION).astype("<i8").tobytes()
