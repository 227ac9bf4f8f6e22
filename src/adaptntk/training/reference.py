"""Where a network's energies begin: energies of isolated atoms that are known, or a fit to the compositions."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ase import Atoms
from ase.data import chemical_symbols
from numpy.typing import NDArray

from adaptntk.data.labels import STRESS, VIRIALS, has_stress, parse_energies, split_isolated, without_isolated
from adaptntk.data.structures import read_structures, reference_energies, reference_forces, structure_species
from adaptntk.errors import InputError
from adaptntk.files import check_readable, read_record
from adaptntk.models.family import EnergyReference
from adaptntk.training.recipe import Recipe

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
Reader = Callable[..., Sequence[Atoms]]
# Directions of the compositions weaker than this, beside the strongest, are rounding.
RANK = 1e-6
# A direction is kept if it explains more than so many standard deviations of what composition cannot explain ...
SIGNIFICANT = 2.0
# ... and it tells elements apart if it is known to so many eV.
KNOWN = 1.0


class CompositionFit(NamedTuple):
    """Energies of elements that explain those of structures by their compositions alone.

    ``known``: whether the compositions tell all elements apart. ``spread``: root mean square of what is left per atom.
    """

    energies: Array
    known: bool
    spread: float


def composition_counts(frames: Sequence[Atoms], numbers: Sequence[int]) -> Array:
    """How many atoms of each element the structures have."""
    return np.array([[np.count_nonzero(atoms.numbers == z) for z in numbers] for atoms in frames], dtype=float)


def fit_compositions(counts: Array, energies: Array) -> CompositionFit:
    """Least squares of the energy per atom, around its mean: ``E = counts @ (mean + d)``, with the smallest d.

    So a single composition gives all elements the same, and what compositions do not tell stays near the mean. Along
    directions that are told weakly, d is shrunk by what noise alone would give.
    """
    sizes = counts.sum(axis=1)
    per_atom = energies / sizes
    mean = float(per_atom.mean())
    u, s, vt = np.linalg.svd(counts / sizes[:, None], full_matrices=False)
    kept = s > RANK * s[0]
    projected = u.T @ (per_atom - mean)
    left = per_atom - mean - u[:, kept] @ projected[kept]
    freedom = len(per_atom) - int(kept.sum())
    noise = np.sqrt(left @ left / freedom) if freedom > 0 else 0.0
    shrunk = projected * np.maximum(0.0, 1 - (SIGNIFICANT * noise) ** 2 / np.maximum(projected**2, 1e-300))
    d = vt[kept].T @ (shrunk[kept] / s[kept])
    told = kept & (noise / np.maximum(s, 1e-300) < KNOWN)
    remaining = per_atom - counts @ (mean + d) / sizes
    return CompositionFit(mean + d, int(told.sum()) == counts.shape[1], float(np.sqrt(np.mean(remaining**2))))


def prepare(
    train: Sequence[Atoms], valid: Sequence[Atoms], recipe: Recipe, continued: bool = False
) -> tuple[Sequence[Atoms], Sequence[Atoms], Recipe]:
    """The structures without isolated atoms, whose energies are in the recipe instead; says what else is left out.

    ``continued``: the training starts from a network, which has energies of its own.
    """
    structures, isolated = split_isolated(train, "training set")
    if isolated:
        what = "energies count from theirs, as they are"
        if continued or not recipe.element_energies or recipe.e0s is not None:
            what = "energies count from others"
        log.info("%s: %s no training structures; %s", _alone(isolated), "are" if len(isolated) > 1 else "is", what)
    frames = [*structures, *valid]
    open_ones = sum(STRESS in atoms.info and not has_stress(atoms) for atoms in frames)
    if recipe.stress_weight and open_ones:
        log.info("stress of %d structures that are not periodic in all directions is left out", open_ones)
    virials = {key for atoms in frames if not has_stress(atoms) for key in VIRIALS if key in atoms.info}
    if recipe.stress_weight and virials:
        log.info("%s is not read: give stress in eV/Å^3, minus virial over volume", min(virials))
    return structures, without_isolated(valid), with_isolated(recipe, isolated)


def with_isolated(recipe: Recipe, isolated: Mapping[int, float]) -> Recipe:
    """The recipe with these energies of isolated atoms, unless it has others or counts from the mean."""
    chosen = recipe.element_energies and recipe.e0s is None and isolated
    return replace(recipe, e0s=isolated) if chosen else recipe


def counting_from(recipe: Recipe, e0s: str | Mapping[Any, float], name: str, read: Reader = read_structures) -> Recipe:
    """The recipe with energies that count from what a user says; ``name`` is what errors call it.

    ``isolated``: from isolated atoms in the training set. ``average`` (or ``elements``): from least squares. ``mean``:
    from the mean energy per atom. Else energies by element, or a file of them: JSON, or isolated atoms that are
    labelled, which ``read`` reads.
    """
    if e0s == "mean":
        return replace(recipe, element_energies=False, e0s=None)
    if e0s in ("average", "elements"):
        return replace(recipe, element_energies=True, e0s=())
    if e0s in ("isolated", "IsolatedAtom"):
        return replace(recipe, element_energies=True, e0s=None)
    if isinstance(e0s, str) and (Path(e0s).suffix == ".json" or _is_file(e0s)):
        return replace(recipe, element_energies=True, e0s=_energies_of_file(Path(e0s), read))
    if isinstance(e0s, str) and not re.search("[:=]", e0s):
        known = "isolated, average, mean, energies as in H=-13.6 C=-1029.3, or a file of them"
        raise InputError(f"{name}: {e0s[:40]!r} is none of {known}")
    return replace(recipe, element_energies=True, e0s=parse_energies(e0s, name))


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # too long for a name, or with a NUL
        return False


def _energies_of_file(path: Path, read: Reader) -> dict[int, float]:
    if path.suffix == ".json":
        check_readable(path, "file of energies")
        return parse_energies(read_record(path, dict[str, float]), str(path))
    frames = read(path, labelled="partly")
    for atoms in frames:
        atoms.info["config_type"] = "IsolatedAtom"
    structures, energies = split_isolated(frames, str(path))
    if structures:
        raise InputError(f"{path}: holds structures of several atoms; energies of isolated atoms were expected")
    return energies


def _alone(isolated: Mapping[int, float]) -> str:
    symbols = ", ".join(chemical_symbols[z] for z in sorted(isolated))
    return f"isolated atom{'s' if len(isolated) > 1 else ''} of {symbols}"


def energy_reference(frames: Sequence[Atoms], recipe: Recipe) -> EnergyReference:
    """Isolated energies, scale and shift from the training labels.

    Where energies of isolated atoms are known there is no shift: an atom without neighbours has its own energy.
    """
    numbers = sorted(structure_species(frames))
    counts, energies = composition_counts(frames, numbers), reference_energies(frames)
    known = dict(recipe.e0s or ()) if recipe.element_energies else {}
    isolated = _known(known, numbers) if known else _fitted(counts, energies, numbers, recipe)
    per_atom = (energies - counts @ isolated) / counts.sum(axis=1)
    forces = np.concatenate([f.ravel() for f in reference_forces(frames)])
    scale = float(np.sqrt(np.mean(forces**2))) if recipe.force_scale else float(per_atom.std())
    shift = 0.0 if known else float(per_atom.mean())
    return EnergyReference(tuple(numbers), tuple(isolated.tolist()), scale or 1.0, shift)


def _fitted(counts: Array, energies: Array, numbers: Sequence[int], recipe: Recipe) -> Array:
    if not recipe.element_energies:
        return np.zeros(len(numbers))
    fitted = fit_compositions(counts, energies)
    # Who has one composition only knows that nothing is learnt about others.
    if not fitted.known and len(np.unique(counts, axis=0)) > 1:
        symbols = ", ".join(chemical_symbols[z] for z in numbers)
        why = "the compositions do not tell them apart, so energies of other compositions mean nothing (give --e0s)"
        log.info("energies of the elements %s: %s", symbols, why)
    return fitted.energies


def _known(known: Mapping[int, float], numbers: Sequence[int]) -> Array:
    missing = [chemical_symbols[z] for z in numbers if z not in known]
    if missing:
        cure = "add it, or count from least squares with --e0s average"
        raise InputError(f"no energy is given of an isolated {', '.join(missing)}, which the structures hold; {cure}")
    return np.array([known[z] for z in numbers])
