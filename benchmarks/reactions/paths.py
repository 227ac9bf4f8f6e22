"""Reaction paths made on the spot: reactant and product relaxed, nudged elastic band with GFN2-xTB, every image kept.

As in Transition-1X, the frames are all images of all iterations of the band, so that they spread around the path and
not only along it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from ase import Atoms
from ase.build import minimize_rotation_and_translation
from ase.calculators.calculator import CalculationFailed
from ase.data import covalent_radii
from ase.mep import NEB
from ase.optimize import BFGS, FIRE
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from adaptntk.errors import InputError
from adaptntk.execution import run_jobs
from benchmarks.harness.experiment import log
from benchmarks.reactions.recipes import REACTIONS, Recipe

if TYPE_CHECKING:
    from rdkit import Chem

Array = NDArray[np.float64]

IMAGES = 10
RELAXED = 0.05  # eV/Å
CONVERGED = 0.2  # eV/Å, of the climbing band
LONGEST = 400  # iterations of a band
# A band passes through structures of high energy before it settles; those beyond this are no chemistry.
HIGHEST = 15.0  # eV above the reactant
LEVEL = "GFN2-xTB"


@dataclass(frozen=True)
class ReactionPath:
    """A converged path and all that was computed on the way. Energies in eV, forces in eV/Å."""

    name: str
    numbers: NDArray[np.int64]
    positions: Array
    energies: Array
    forces: Array
    reactant: int
    product: int
    transition_state: int

    @property
    def barrier(self) -> float:
        """Height of the transition state above the reactant, eV."""
        return float(self.energies[self.transition_state] - self.energies[self.reactant])


@dataclass(frozen=True)
class Failure:
    """A reaction that gave no path."""

    name: str
    reason: str


def make_reactions(
    recipes: Sequence[Recipe] = REACTIONS, workers: int = 1, seed: int = 0
) -> tuple[list[ReactionPath], list[Failure]]:
    """Paths of all reactions, and those that failed, each in the order of the recipes."""
    results: dict[str, ReactionPath | Failure] = {}
    jobs = [(recipe, seed) for recipe in recipes]
    for done, ((recipe, _), result) in enumerate(run_jobs(make_path, jobs, workers), start=1):
        results[recipe.name] = result
        told = (
            result.reason if isinstance(result, Failure) else f"{len(result.energies)} frames, {result.barrier:.2f} eV"
        )
        log.info("%d of %d, %s: %s", done, len(recipes), recipe.name, told)
    ordered = [results[recipe.name] for recipe in recipes]
    return [r for r in ordered if isinstance(r, ReactionPath)], [r for r in ordered if isinstance(r, Failure)]


def make_path(job: tuple[Recipe, int]) -> ReactionPath | Failure:
    """Both ends, then the band between them."""
    recipe, seed = job
    # One thread: several only slow a small molecule down, and their sums would differ from run to run.
    with threadpool_limits(1, user_api="openmp"):
        try:
            ends = [_relaxed(atoms) for atoms in build_ends(recipe, seed)]
            return _band(recipe.name, *ends)
        except _NoPathError as error:
            return Failure(recipe.name, str(error))
        except CalculationFailed as error:
            return Failure(recipe.name, f"xTB failed: {' '.join(str(error).split())}")


class _NoPathError(Exception):
    """Why a reaction gives no path."""


def build_ends(recipe: Recipe, seed: int = 0) -> tuple[Atoms, Atoms]:
    """Reactant and product with the same order of atoms, the product as close to the reactant as its bonds allow."""
    try:
        from rdkit import Chem
        from rdkit.Chem import rdForceFieldHelpers
        from rdkit.Chem.rdDistGeom import EmbedMolecule
    except ImportError:
        raise InputError("reactions need RDKit: pip install '.[benchmarks]'") from None
    options = Chem.SmilesParserParams()
    options.removeHs = False  # type: ignore[assignment]
    reactant = Chem.AddHs(Chem.MolFromSmiles(recipe.reactant, options))
    if EmbedMolecule(reactant, randomSeed=seed + 1) != 0:
        raise _NoPathError("no geometry of the reactant was found")
    rdForceFieldHelpers.MMFFOptimizeMolecule(reactant, maxIters=2000)
    product = _edited(reactant, recipe)
    # From the geometry of the reactant: atoms that take no part stay where they are, equivalent hydrogens too. Where
    # the product is two molecules, they have to feel each other, or they would stay inside one another.
    if rdForceFieldHelpers.MMFFHasAllMoleculeParams(product):
        rdForceFieldHelpers.MMFFOptimizeMolecule(product, maxIters=5000, ignoreInterfragInteractions=False)
    else:
        rdForceFieldHelpers.UFFOptimizeMolecule(product, maxIters=5000, ignoreInterfragInteractions=False)
    return _atoms(reactant), _atoms(product)


def _edited(reactant: "Chem.Mol", recipe: Recipe) -> "Chem.Mol":
    """The molecule after the bonds have changed, with the geometry from before."""
    from rdkit import Chem

    place = {atom.GetAtomMapNum(): atom.GetIdx() for atom in reactant.GetAtoms() if atom.GetAtomMapNum()}
    orders = {1: Chem.BondType.SINGLE, 2: Chem.BondType.DOUBLE, 3: Chem.BondType.TRIPLE}
    edited = Chem.RWMol(reactant)
    Chem.Kekulize(edited, clearAromaticFlags=True)
    for (first, second), order in recipe.bonds.items():
        i, j = place[first], place[second]
        if edited.GetBondBetweenAtoms(i, j) is not None:
            edited.RemoveBond(i, j)
        if order:
            edited.AddBond(i, j, orders[order])
    for number, charge in recipe.charges.items():
        edited.GetAtomWithIdx(place[number]).SetFormalCharge(charge)
    for atom in edited.GetAtoms():
        atom.SetNoImplicit(True)
        atom.SetNumRadicalElectrons(0)
    Chem.SanitizeMol(edited)
    return edited.GetMol()


def _atoms(molecule: "Chem.Mol") -> Atoms:
    numbers = [atom.GetAtomicNum() for atom in molecule.GetAtoms()]
    atoms = Atoms(numbers, molecule.GetConformer().GetPositions())
    atoms.info["bonds"] = sorted(
        tuple(sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))) for bond in molecule.GetBonds()
    )
    return atoms


def _relaxed(atoms: Atoms) -> Atoms:
    """At its minimum, where it must still have the bonds it was built with."""
    from tblite.ase import TBLite  # loads a native library that nothing else needs

    atoms.calc = TBLite(method=LEVEL, max_iterations=1000, verbosity=0)
    if not BFGS(atoms, logfile=None, maxstep=0.1).run(fmax=RELAXED, steps=500):
        raise _NoPathError("an end was not relaxed in 500 steps")
    if bonds_of(atoms) != atoms.info["bonds"]:
        raise _NoPathError("an end did not keep its bonds when it was relaxed")
    return atoms


def bonds_of(atoms: Atoms) -> list[tuple[int, int]]:
    """Pairs of atoms closer than 1.28 times the sum of their covalent radii.

    More would bond atoms across a ring of four, less would miss the long bond of H2 in GFN2-xTB.
    """
    radii = covalent_radii[atoms.numbers]
    close = atoms.get_all_distances() < 1.28 * (radii[:, None] + radii)
    return [(int(i), int(j)) for i, j in zip(*np.nonzero(np.triu(close, 1)), strict=True)]


def _band(name: str, reactant: Atoms, product: Atoms) -> ReactionPath:
    from tblite.ase import TBLite

    minimize_rotation_and_translation(reactant, product)
    images = [reactant, *(reactant.copy() for _ in range(IMAGES - 2)), product]
    for image in images[1:-1]:
        image.calc = TBLite(method=LEVEL, max_iterations=1000, verbosity=0)
    band = NEB(images, k=0.1, climb=False, method="improvedtangent", remove_rotation_and_translation=True)
    try:
        band.interpolate("idpp")
    except Exception as error:  # the interpolation is an optimisation of its own, which may fail in its own ways
        raise _NoPathError(f"no first guess of the path ({type(error).__name__})") from None
    frames: list[tuple[Array, float, Array]] = [_frame(end) for end in (reactant, product)]

    def keep() -> None:
        frames.extend(_frame(image) for image in images[1:-1])

    optimiser = FIRE(band, logfile=None, maxstep=0.1)
    optimiser.attach(keep)
    optimiser.run(fmax=4 * CONVERGED, steps=LONGEST // 2)
    band.climb = True
    if not optimiser.run(fmax=CONVERGED, steps=LONGEST):
        raise _NoPathError(f"the band did not converge in {optimiser.nsteps} iterations")
    energies = np.array([image.get_potential_energy() for image in images])
    top = int(energies.argmax())
    if top in (0, IMAGES - 1):
        raise _NoPathError("there is no barrier on the path")
    if energies[top] - energies[0] >= HIGHEST:
        raise _NoPathError(f"its barrier is above {HIGHEST:g} eV")
    # The images of the last iteration end the list.
    transition_state = len(frames) - (IMAGES - 2) + top - 1
    kept = [n for n, (_, energy, _) in enumerate(frames) if energy - energies[0] < HIGHEST]
    return ReactionPath(
        name,
        reactant.numbers,
        np.array([frames[n][0] for n in kept]),
        np.array([frames[n][1] for n in kept]),
        np.array([frames[n][2] for n in kept]),
        kept.index(0),
        kept.index(1),
        kept.index(transition_state),
    )


def _frame(image: Atoms) -> tuple[Array, float, Array]:
    # The forces of the image itself: those of the band have springs in them.
    return image.positions.copy(), float(image.get_potential_energy()), image.get_forces().copy()
