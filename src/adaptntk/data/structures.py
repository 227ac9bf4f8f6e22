"""Structures are ``ase.Atoms``; this file reads them, checks them and gives them an identity.

In memory labels always stand at ``info["REF_energy"]`` (eV), ``arrays["REF_forces"]`` (eV/Å) and, where there is one,
``info["REF_stress"]`` (3 x 3, eV/Å^3), the keys that MACE reads by default, whatever they were called in the file; the
files we write use the same keys.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from ase import Atoms
from ase.data import covalent_radii
from numpy.typing import NDArray

from adaptntk.data.extxyz import FrameFile, Frames
from adaptntk.data.formats import open_frames, write_frames
from adaptntk.data.geometry import close_pairs, nearest_neighbours, reduced_cell
from adaptntk.data.labels import ENERGY, FORCES, STRESS, has_stress, is_isolated, stress_matrix
from adaptntk.errors import InputError
from adaptntk.files import write_atomically

Structures = Sequence[Atoms]
Labelled = bool | Literal["partly"]

HASH_RESOLUTION = 1e-6  # Å
FUSED = 0.3  # Å: no two nuclei come this close
# Beyond these something else than a structure or a label was read; squares of far larger numbers overflow.
LARGEST_LENGTH = 1e5  # Å, of positions and periodic cells: single precision resolves 0.01 Å there
LARGEST_ENERGY = 1e7  # eV per atom; all electrons of the heaviest elements have less
LARGEST_FORCE = 1e6  # eV/Å
NON_METALS = [1, 5, 6, 7, 8, 9, 14, 15, 16, 17, 34, 35, 53]
# What ase's calculators give per atom; everything else belongs to the structure.
PER_ATOM = {"forces", "energies", "stresses", "charges", "magmoms"}
# Arrays that mean something to ase, and the shapes of what they may hold for an atom.
_ARRAYS: dict[str, tuple[tuple[int, ...], ...]] = {
    "masses": ((),), "initial_charges": ((),), "initial_magmoms": ((), (3,)), "momenta": ((3,),), FORCES: ((3,),),
}  # fmt: skip
_NUMBERS = {(): "a finite number", (3,): "three finite numbers"}
# Frames in memory take about four times the space of the file.
_SHARE_OF_BUDGET = 64


@dataclass(frozen=True)
class Checks:
    """What is asked of a file of structures, however it is read.

    Args:
        energy_key, forces_key: where the labels stand; they are moved to the standard keys.
        labelled: refuse frames without energy and forces; ``partly``: those without either.
        unique: refuse files that hold the same structure twice.
        own: a file that this package wrote: not searched for duplicates and wrong units.
        stress_key: as the others; frames may lack that label.
    """

    energy_key: str = ENERGY
    forces_key: str = FORCES
    labelled: Labelled = False
    unique: bool = True
    own: bool = False
    stress_key: str = STRESS

    def __post_init__(self) -> None:
        if self.forces_key in ("positions", "numbers"):
            raise InputError(f"{self.forces_key!r} cannot be the forces; name the key that the labels have")

    def check_frame(self, atoms: Atoms, where: str) -> Atoms:
        """Move the labels of a frame that was just read to the standard keys, and check it."""
        self._standardise_labels(atoms, where)
        check_structure(atoms, where)
        if self.labelled:
            self._check_labelled(atoms, where)
            if has_stress(atoms):
                atoms.info[STRESS] = stress_matrix(atoms, where)
        return atoms

    def check_file(
        self, hashes: NDArray[np.bytes_], first_frames: Sequence[Atoms], path: Path, stress: bool = True
    ) -> None:
        """Check what can only be seen in all frames, or in several; ``stress``: whether any frame has that label."""
        if not len(hashes):
            raise InputError(f"{path}: no structures in the file")
        if self.stress_key != STRESS and self.labelled and not stress:
            raise InputError(f"{path}: no frame has a label {self.stress_key!r}; name the key it has, or leave it out")
        if self.own:
            return
        order = np.argsort(hashes, kind="stable")
        same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
        if self.unique and len(same):
            first, second = order[same[0]], order[same[0] + 1]
            raise InputError(f"{path}: frames {first} and {second} are the same structure; remove one of them")
        check_length_unit(first_frames, str(path))

    def read(self, frames: Sequence[Atoms], path: Path) -> list[Atoms]:
        """All frames of a file, checked."""
        checked = [self.check_frame(atoms, f"{path}, frame {index}") for index, atoms in enumerate(frames)]
        hashes = np.array([structure_hash(atoms) for atoms in checked], dtype="S64")
        self.check_file(hashes, checked[:20], path, any(STRESS in atoms.info for atoms in checked))
        return checked

    def _places(self, atoms: Atoms) -> tuple[tuple[str, str, str, dict[str, Any]], ...]:
        """Of each kind of label its name, the key it is asked for by, the standard key, and where it stands."""
        return (
            ("energy", self.energy_key, ENERGY, atoms.info),
            ("forces", self.forces_key, FORCES, atoms.arrays),
            ("stress", self.stress_key, STRESS, atoms.info),
        )

    def _standardise_labels(self, atoms: Atoms, where: str) -> None:
        """Move the labels to the standard keys. ase hands the plain keys over in a calculator."""
        results = dict(atoms.calc.results) if atoms.calc is not None else {}
        atoms.calc = None
        for key, value in results.items():
            # What the calculator held survives a later write, under its own name.
            holder = atoms.arrays if key in PER_ATOM else atoms.info
            holder.setdefault(key, np.asarray(value) if key in PER_ATOM else value)
        for _, asked, standard, holder in self._places(atoms):
            if asked != standard:
                # A label under the standard key that was not asked for is of another kind: it must not stand in.
                holder.pop(standard, None)
                if asked in holder:
                    holder[standard] = holder.pop(asked)
        try:
            if ENERGY in atoms.info:
                atoms.info[ENERGY] = float(_numbers(atoms.info[ENERGY]))
            if FORCES in atoms.arrays:
                atoms.arrays[FORCES] = _numbers(atoms.arrays[FORCES])
        except (TypeError, ValueError):
            why = f"{self.energy_key} or {self.forces_key} is not a number; relabel or remove the frame"
            raise InputError(f"{where}: {why}") from None

    def _check_labelled(self, atoms: Atoms, where: str) -> None:
        keys, found, named = [], [], False
        needed = self._places(atoms)[: 1 if is_isolated(atoms) else 2]
        for kind, key, standard, holder in needed:
            if standard not in holder:
                keys.append(repr(key))
                named |= key != standard
                found += [f"--{kind}-key {n}" for n in (kind, f"REF_{kind}", f"dft_{kind}") if n in holder]
        # A label under another name is not missing: it was not asked for by its name. Nor is one that was named spare.
        if keys and (found or named or len(keys) == len(needed) or self.labelled != "partly"):
            cure = f"it has others: pass {' '.join(found)}" if found else "label or remove it, or name the key it has"
            raise InputError(f"{where}: no label {' and '.join(keys)}; {cure}")


class StructureFile(Frames):
    """The frames of an extxyz file as a sequence that holds 80 bytes per frame.

    All frames are read and checked once when the file is opened, then again whenever they are asked for.
    """

    def __init__(self, frames: FrameFile, checks: Checks) -> None:
        self._frames, self._checks = frames, checks
        self.sizes = frames.sizes
        self.hashes = np.zeros(len(frames), dtype="S64")
        self.species: set[int] = set()
        stress = False
        for index, atoms in enumerate(self):
            self.hashes[index] = structure_hash(atoms).encode()
            self.species.update(atoms.numbers.tolist())
            stress |= STRESS in atoms.info
        checks.check_file(self.hashes, self[:20], frames.path, stress)

    def __len__(self) -> int:
        return len(self._frames)

    def _frame(self, index: int) -> Atoms:
        return self._checks.check_frame(self._frames[index], f"{self._frames.path}, frame {index}")


def read_structures(
    path: str | Path,
    energy_key: str = ENERGY,
    forces_key: str = FORCES,
    labelled: Labelled = False,
    unique: bool = True,
    own: bool = False,
    stress_key: str = STRESS,
) -> list[Atoms]:
    """Read all frames of a file (extxyz, or another format of `data.formats`) and check them.

    Args:
        energy_key, forces_key: where the labels stand; they are moved to the standard keys.
        labelled: refuse frames without energy and forces; ``partly``: those without either.
        unique: refuse files that hold the same structure twice.
        own: a file that this package wrote: not searched for duplicates and wrong units.
        stress_key: as the others; frames may lack that label.
    """
    return Checks(energy_key, forces_key, labelled, unique, own, stress_key).read(open_frames(Path(path)), Path(path))


def open_structures(
    path: str | Path,
    energy_key: str = ENERGY,
    forces_key: str = FORCES,
    labelled: Labelled = False,
    unique: bool = True,
    memory_budget: int = 0,
    stress_key: str = STRESS,
) -> Sequence[Atoms]:
    """The checked frames of a file: in memory, or, if it is large beside the budget, read when they are needed.

    ``memory_budget`` is in bytes, the others as in `read_structures`.
    """
    checks = Checks(energy_key, forces_key, labelled, unique, stress_key=stress_key)
    frames = open_frames(Path(path))
    if isinstance(frames, FrameFile) and frames.bytes * _SHARE_OF_BUDGET > memory_budget:
        return StructureFile(frames, checks)
    return checks.read(frames, Path(path))


def write_structures(path: str | Path, frames: Iterable[Atoms]) -> None:
    """Write what the name says (extxyz, .traj, .jsonl, .csv) atomically: the file appears complete or not at all."""
    write_atomically(path, lambda temporary: write_frames(temporary, Path(path), frames))


def bare(atoms: Atoms) -> Atoms:
    """Species, positions, cell and starting moments: nothing of where the structure came from, no labels."""
    found = Atoms(numbers=atoms.numbers, positions=atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
    for name in ("initial_magmoms", "initial_charges"):
        if atoms.has(name):
            found.set_array(name, atoms.get_array(name))
    return found


def structure_hash(atoms: Atoms) -> str:
    """SHA-256 of species and positions rounded to 1e-6 Å, and of the cell where it is periodic."""
    digest = hashlib.sha256()
    digest.update(atoms.numbers.astype("<i4").tobytes())
    digest.update(_rounded(atoms.positions))
    if atoms.pbc.any():
        digest.update(atoms.pbc.astype("<i4").tobytes())
        digest.update(_rounded(np.asarray(atoms.cell)))
    return digest.hexdigest()


def structure_hashes(frames: Sequence[Atoms]) -> list[str]:
    """The hash of every structure."""
    if isinstance(frames, StructureFile):
        return [digest.decode() for digest in frames.hashes]
    return [structure_hash(atoms) for atoms in frames]


def structure_sizes(frames: Sequence[Atoms]) -> NDArray[np.int64]:
    """The number of atoms of every structure."""
    if isinstance(frames, StructureFile):
        return frames.sizes
    return np.array([len(atoms) for atoms in frames], dtype=np.int64)


def structure_species(frames: Sequence[Atoms]) -> set[int]:
    """The atomic numbers of all structures."""
    if isinstance(frames, StructureFile):
        return frames.species
    return {number for atoms in frames for number in atoms.numbers.tolist()}


def has_labels(atoms: Atoms) -> bool:
    """Whether both reference energy and forces are there."""
    return ENERGY in atoms.info and FORCES in atoms.arrays


def check_labelled(frames: Iterable[Atoms], name: str, partly: bool = False) -> None:
    """Refuse a set with a structure that has not both labels; with ``partly`` one kind will do, the same for all.

    Isolated atoms have what they need, or are left out.
    """
    first: dict[str, int] = {}
    for index, atoms in enumerate(frames):
        if is_isolated(atoms):
            continue
        found = {label for label, holder in ((ENERGY, atoms.info), (FORCES, atoms.arrays)) if label in holder}
        if len(found) < (1 if partly else 2):
            needed = f"REF_energy {'or' if partly else 'and'} REF_forces"
            raise InputError(f"{name}, frame {index}: no {needed}; read_structures moves labels there from other keys")
        first = first or dict.fromkeys(found, index)
        if odd := found ^ first.keys():
            begin = min(first.values())
            lacks, has = (index, begin) if min(odd) in first else (begin, index)
            raise InputError(
                f"{name}, frame {lacks}: no label '{min(odd)}', which frame {has} has; label all frames or none of them"
            )


def reference_energies(frames: Iterable[Atoms]) -> NDArray[np.float64]:
    """Labels in eV; NaN where there is none."""
    return np.array([atoms.info.get(ENERGY, np.nan) for atoms in frames], dtype=float)


def reference_forces(frames: Iterable[Atoms]) -> list[NDArray[np.float64]]:
    """Labels in eV/Å, one array per structure; NaN where there are none."""
    return [np.asarray(a.arrays.get(FORCES, np.full((len(a), 3), np.nan)), dtype=float) for a in frames]


def check_structure(atoms: Atoms, where: str) -> None:
    """Refuse what no potential can evaluate: no atoms, numbers that are not finite or absurd, atoms on one another."""
    if len(atoms) == 0:
        raise InputError(f"{where}: the structure has no atoms; remove the frame")
    unknown = np.flatnonzero((atoms.numbers < 1) | (atoms.numbers >= len(covalent_radii)))
    if len(unknown):
        found = f"atom {unknown[0]} has no element (atomic number {atoms.numbers[unknown[0]]})"
        raise InputError(f"{where}: {found}; fix its symbol")
    periodic = np.asarray(atoms.cell)[atoms.pbc]
    for name, values, unit, largest in (
        ("position", atoms.positions, "Å", LARGEST_LENGTH),
        ("cell", np.asarray(atoms.cell), "Å", np.inf),
        ("cell", periodic, "Å", LARGEST_LENGTH),
        (ENERGY, np.asarray(atoms.info.get(ENERGY, 0.0), dtype=float) / len(atoms), "eV per atom", LARGEST_ENERGY),
        (FORCES, atoms.arrays.get(FORCES, np.zeros(1)), "eV/Å", LARGEST_FORCE),
    ):
        if not np.isfinite(values).all():
            raise InputError(f"{where}: {name} is NaN or infinite; remove or relabel the frame")
        if np.abs(values).max(initial=0.0) > largest:
            found = f"{name} is {np.abs(values).max():.3g} {unit}, where {largest:.0e} is the most that makes sense"
            raise InputError(f"{where}: {found}; correct or remove the frame")
    _check_arrays(atoms, where)
    _check_cell(atoms, where)
    closest = close_pairs(atoms, FUSED)[2].min(initial=FUSED)
    if closest < FUSED:
        why = "positions must be in Å (nm?) and atoms not fused"
        raise InputError(f"{where}: two atoms are {closest:.3f} Å apart; {why}")


def _check_arrays(atoms: Atoms, where: str) -> None:
    """What ase and labelers take from a structure besides species and positions."""
    for name, shapes in _ARRAYS.items():
        values = atoms.arrays.get(name)
        if values is None:
            continue
        if values.shape[1:] not in shapes or values.dtype.kind not in "fiu" or not np.isfinite(values).all():
            raise InputError(f"{where}: {name} must be {_NUMBERS[shapes[0]]} for every atom; correct or remove it")
    if "masses" in atoms.arrays and not (atoms.arrays["masses"] > 0).all():
        raise InputError(f"{where}: masses must be positive; correct or remove them")


def _check_cell(atoms: Atoms, where: str) -> None:
    """Every periodic direction has a vector of its own, and none of the lattice is shorter than atoms are apart."""
    periodic = np.asarray(atoms.cell)[atoms.pbc]
    if not len(periodic):
        return
    if np.linalg.matrix_rank(periodic) < len(periodic):
        raise InputError(f"{where}: periodic in {len(periodic)} directions without as many cell vectors; set Lattice")
    try:
        shortest = np.linalg.norm(reduced_cell(np.asarray(atoms.cell), atoms.pbc)[0][atoms.pbc], axis=1).min()
    except (RuntimeError, np.linalg.LinAlgError):
        shortest = 0.0
    if shortest < FUSED:
        raise InputError(f"{where}: the cell repeats every {shortest:.3g} Å; it must be in Å (nm?), and hold the atoms")


def check_length_unit(frames: Sequence[Atoms], name: str) -> None:
    """Notice positions in Bohr by the bonds of hydrogen to non-metals: 0.9 to 1.1 Å, and so 1.7 to 2.1 Bohr.

    Atoms that really are so far apart (a dissociation curve) scatter more than bonds do.
    """
    bonds = []
    for atoms in frames:
        distance, partner = nearest_neighbours(atoms, 3.0)
        bonded = (atoms.numbers == 1) & np.isfinite(distance) & np.isin(atoms.numbers[partner], NON_METALS)
        bonds += distance[bonded].tolist()
    low, typical, high = np.quantile(bonds or [0.0], [0.25, 0.5, 0.75])
    if 1.6 < typical < 2.3 and high - low < 0.3:
        found = f"hydrogen atoms are {typical:.2f} Å from their nearest neighbour"
        raise InputError(f"{name}: {found}; the positions look like Bohr, convert them to Å")


def check_force_unit(frames: Sequence[Atoms], name: str) -> None:
    """Notice force labels that cannot be eV/Å because of their size."""
    typical = float(np.sqrt(np.mean(np.concatenate([f.ravel() for f in reference_forces(frames)]) ** 2)))
    if typical > 15.0:
        found = f"the root mean square force is {typical:.1f}, where eV/Å would give about 1"
        raise InputError(f"{name}: {found}; the labels look like kcal/mol/Å, convert them to eV and eV/Å")


def _numbers(values: Any) -> NDArray[np.float64]:
    """What was read as numbers: an entry without a value is True, which is no energy."""
    if np.asarray(values).dtype.kind not in "fiu":
        raise TypeError
    return np.asarray(values, dtype=float)


def _rounded(values: NDArray[np.float64]) -> bytes:
    # To eight decimals first, as extxyz files have them: else a number near the edge of a bin changes its bin by
    # being written and read.
    return np.round(np.round(values, 8) / HASH_RESOLUTION).astype("<i8").tobytes()
