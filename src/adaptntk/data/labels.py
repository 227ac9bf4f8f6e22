"""What labels of a structure are: where they stand, stress, and frames that only tell the energy of an atom alone."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from ase import Atoms
from ase.data import atomic_numbers, chemical_symbols
from ase.stress import full_3x3_to_voigt_6_stress, voigt_6_to_full_3x3_stress
from numpy.typing import NDArray

from adaptntk.data.geometry import lone_atoms
from adaptntk.errors import InputError

ENERGY = "REF_energy"
FORCES = "REF_forces"
STRESS = "REF_stress"
VIRIALS = ("REF_virials", "REF_virial", "virials", "virial")
# An atom whose own image is so far away is none of a crystal, Å.
ISOLATED = 6.0
# eV per atom: 300 GPa make about so much of a dense crystal; labels in GPa or kbar are larger.
LARGEST_VIRIAL = 40.0

Matrix = NDArray[np.float64]


def is_isolated(atoms: Atoms) -> bool:
    """Whether the frame is marked as an atom alone (``config_type=IsolatedAtom``, as MACE has it).

    Such a frame tells where energies begin; it is no structure to learn from, and needs no forces.
    """
    kind = str(atoms.info.get("config_type", "")).replace("_", "").lower()
    return len(atoms) == 1 and kind == "isolatedatom"


def without_isolated(frames: Sequence[Atoms]) -> Sequence[Atoms]:
    """The frames that are structures."""
    return [atoms for atoms in frames if not is_isolated(atoms)] if any(map(is_isolated, frames)) else frames


def split_isolated(frames: Sequence[Atoms], name: str) -> tuple[Sequence[Atoms], dict[int, float]]:
    """The structures, and the energies of the isolated atoms among them by atomic number."""
    energies: dict[int, float] = {}
    for index, atoms in enumerate(frames):
        if not is_isolated(atoms):
            continue
        number, where = int(atoms.numbers[0]), f"{name}, frame {index}"
        if not lone_atoms(atoms, ISOLATED):
            raise InputError(f"{where}: is marked IsolatedAtom, but its own images are nearer than {ISOLATED:g} Å")
        if ENERGY not in atoms.info:
            raise InputError(f"{where}: an isolated atom without {ENERGY}; label or remove it")
        energy = energies.setdefault(number, float(atoms.info[ENERGY]))
        if abs(energy - atoms.info[ENERGY]) > 1e-6 * max(1.0, abs(energy)):
            raise InputError(f"{where}: another energy of an isolated {atoms.symbols[0]} than before; keep one of them")
    return without_isolated(frames) if energies else frames, energies


def parse_energies(text: str | Mapping[Any, Any], name: str) -> dict[int, float]:
    """Energies by element: ``H=-13.6 C=-1029.3``, ``{"H": -13.6}``, ``{1: -13.6, 6: -1029.3}``, or a mapping."""
    pairs = text.items() if isinstance(text, Mapping) else _pairs(text, name)
    found: dict[int, float] = {}
    for key, value in pairs:
        element = str(key).strip()
        number = int(element) if element.isdecimal() else atomic_numbers.get(element.capitalize(), 0)
        if not 0 < number < len(chemical_symbols):
            raise InputError(f"{name}: {element[:20]!r} is no chemical element")
        try:
            energy = float("nan") if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            energy = float("nan")
        if not np.isfinite(energy):
            raise InputError(f"{name}: the energy of {element} must be a number in eV, not {str(value)[:20]!r}")
        if number in found:
            raise InputError(f"{name}: has two energies of {chemical_symbols[number]}; keep one of them")
        found[number] = energy
    if not found:
        raise InputError(f"{name}: no energies in it; write for example H=-13.6 C=-1029.3")
    return found


def _pairs(text: str, name: str) -> list[tuple[str, str]]:
    plain = re.sub(r"""[{}"']""", " ", text)
    words = re.sub(r"\s*[:=]\s*", "=", plain).replace(",", " ").split()
    pairs = [tuple(word.split("=")) for word in words]
    for word, pair in zip(words, pairs, strict=True):
        if len(pair) != 2:
            raise InputError(f"{name}: {word[:20]!r} is no energy of an element; write for example H=-13.6 C=-1029.3")
    return [(element, energy) for element, energy in pairs]


def has_stress(atoms: Atoms) -> bool:
    """Whether there is a label that means something: stress is of structures that are periodic in all directions."""
    return STRESS in atoms.info and bool(atoms.pbc.all())


def stress_matrix(atoms: Atoms, where: str) -> Matrix:
    """The label as 3 x 3, eV/Å^3, with ase's sign: from that, from 9 numbers or from 6 in the order of Voigt."""
    values = np.asarray(atoms.info[STRESS])
    if values.dtype.kind not in "fiu" or values.size not in (6, 9):
        raise InputError(f"{where}: {STRESS} must be 3 x 3 or 6 numbers; relabel it, or remove the label")
    full = voigt_6_to_full_3x3_stress(values.ravel()) if values.size == 6 else values.reshape(3, 3).astype(float)
    if not np.isfinite(full).all():
        raise InputError(f"{where}: {STRESS} is NaN or infinite; relabel it, or remove the label")
    if np.abs(full - full.T).max() > 1e-3 * np.abs(full).max() + 1e-6:
        raise InputError(f"{where}: {STRESS} is not symmetric; relabel it, or remove the label")
    return np.asarray(voigt_6_to_full_3x3_stress(full_3x3_to_voigt_6_stress(full)), dtype=float)


def reference_stresses(frames: Iterable[Atoms], name: str = "structures") -> list[Matrix | None]:
    """Labels, 3 x 3 in eV/Å^3; None where there is none."""
    return [stress_matrix(a, f"{name}, frame {i}") if has_stress(a) else None for i, a in enumerate(frames)]


def check_stress_unit(frames: Sequence[Atoms], name: str) -> None:
    """Notice stress labels that cannot be eV/Å^3 because of their size."""
    stresses = zip(frames, reference_stresses(frames, name), strict=True)
    virials = [stress * atoms.get_volume() / len(atoms) for atoms, stress in stresses if stress is not None]
    typical = float(np.sqrt(np.mean(np.square(virials)))) if virials else 0.0
    if typical > LARGEST_VIRIAL:
        found = f"the stress labels are {typical:.0f} eV per atom (stress x volume)"
        raise InputError(f"{name}: {found}; they look like GPa or kbar, convert them to eV/Å^3")
