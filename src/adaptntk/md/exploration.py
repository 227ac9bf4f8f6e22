"""Where to look for structures that the potential does not know: dynamics, displacements and normal modes."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from ase import Atoms, units
from ase.calculators.calculator import Calculator
from ase.optimize import BFGS
from numpy.typing import NDArray

from adaptntk.data.geometry import fused_atoms
from adaptntk.data.structures import structure_hash
from adaptntk.errors import InputError, require
from adaptntk.md.calculator import PotentialCalculator
from adaptntk.md.distinct import Distinct
from adaptntk.md.dynamics import MDSettings
from adaptntk.models.protocol import Potential
from adaptntk.representation import short_repr
from adaptntk.uncertainty.method import LONE_ATOMS

Array = NDArray[np.float64]

# Softer modes swing so far that a straight line is no longer the path of the atoms.
SOFTEST_WAVENUMBER = 50.0  # 1/cm
# Step of the finite differences in Å, and where a relaxation ends in eV/Å.
DIFFERENCE_STEP = 0.01
RELAXED = 0.01
# The raw score of the default method in the frames of a simulation.
SCORE = "ntk_variance"


@short_repr
@dataclass(frozen=True)
class MDJob:
    """One trajectory: all that `run_md` needs besides the uncertainty and the rules."""

    start: Atoms
    settings: MDSettings
    seed: int
    start_index: int


def plan_trajectories(
    starts: Sequence[Atoms], temperatures: Sequence[float], settings: MDSettings, seed: int = 0
) -> list[MDJob]:
    """Every start at every temperature, each with a seed of its own."""
    require(bool(starts and temperatures), "exploration needs at least one start and one temperature")
    seeds = np.random.SeedSequence(seed).generate_state(len(starts) * len(temperatures)).tolist()
    return [
        MDJob(start, replace(settings, temperature=temperature), seeds.pop(0), index)
        for index, start in enumerate(starts)
        for temperature in temperatures
    ]


def displaced(start: Atoms, count: int, amplitude: float, seed: int = 0) -> list[Atoms]:
    """Copies with every coordinate moved at random, by ``amplitude`` Å (standard deviation)."""
    require(amplitude > 0, f"the amplitude of displacements must be positive (Å), not {amplitude}")
    rng = np.random.default_rng(seed)
    return [_moved(start, rng.normal(scale=amplitude, size=(len(start), 3))) for _ in range(count)]


def normal_modes(
    source: Potential | Calculator, start: Atoms, count: int, temperature: float, seed: int = 0, relax: bool = True
) -> list[Atoms]:
    """Structures drawn from the harmonic motion around a minimum at ``temperature`` (K), classically.

    In mass-weighted coordinates ``q = sqrt(m) x`` the energy is ``sum_k w_k^2 q_k^2 / 2`` over the normal modes, so
    each ``q_k`` is normal with variance ``kT / w_k^2``. Modes softer than 50 1/cm are treated as if they had 50 1/cm.

    Args:
        source: a potential, or any ASE calculator.
        relax: go to the minimum first; else ``start`` must be one.
    """
    require(temperature > 0, f"the temperature must be positive (K), not {temperature}")
    minimum = Atoms(numbers=start.numbers, positions=start.positions, cell=start.cell, pbc=start.pbc)
    minimum.set_masses(start.get_masses())
    minimum.calc = source if isinstance(source, Calculator) else PotentialCalculator(source)
    if relax:
        relaxed = BFGS(minimum, logfile=None).run(fmax=RELAXED, steps=500)
        require(relaxed, "the structure did not relax in 500 steps: the model may have no minimum near it")
    frequencies, modes = vibrations(minimum)
    # Angular frequency = energy of the wavenumber over hbar, in ASE's units of time.
    softest = SOFTEST_WAVENUMBER * units.invcm / (units._hbar * units.J * units.s)
    imaginary = int((frequencies < -softest).sum())
    message = f"{imaginary} imaginary modes: the structure is no minimum; relax it first, or start elsewhere"
    require(imaginary == 0, message)
    deviation = np.sqrt(units.kB * temperature) / np.maximum(frequencies, softest)
    rng = np.random.default_rng(seed)
    weights = np.sqrt(minimum.get_masses())[:, None]
    return [
        _moved(minimum, (modes @ (deviation * rng.standard_normal(len(deviation)))).reshape(-1, 3) / weights)
        for _ in range(count)
    ]


def vibrations(atoms: Atoms) -> tuple[Array, Array]:
    """Angular frequencies (ASE's units, negative if imaginary) and mass-weighted modes, as columns.

    From central differences of the forces; without translations and, for molecules, rotations.
    """
    weights = np.repeat(np.sqrt(atoms.get_masses()), 3)
    weighted = _hessian(atoms) / np.outer(weights, weights)
    rigid = _rigid_motions(atoms)
    # A basis of everything that is not a motion of the whole.
    complement = np.linalg.svd(rigid)[0][:, np.linalg.matrix_rank(rigid) :]
    values, vectors = np.linalg.eigh(complement.T @ weighted @ complement)
    return np.sign(values) * np.sqrt(np.abs(values)), complement @ vectors


def _hessian(atoms: Atoms) -> Array:
    moving, rows = atoms.copy(), []
    moving.calc = atoms.calc
    for index in np.ndindex(len(atoms), 3):
        forces = []
        for sign in (1, -1):
            moving.positions = atoms.positions
            moving.positions[index] += sign * DIFFERENCE_STEP
            forces.append(moving.get_forces().ravel())
        rows.append((forces[1] - forces[0]) / (2 * DIFFERENCE_STEP))
    hessian = np.array(rows)
    return (hessian + hessian.T) / 2


def _rigid_motions(atoms: Atoms) -> Array:
    """Mass-weighted translations and, where nothing is periodic, rotations, as columns (some may be dependent)."""
    weights = np.sqrt(atoms.get_masses())[:, None]
    arms = atoms.positions - atoms.get_center_of_mass()
    axes = np.eye(3)
    motions = [np.broadcast_to(axis, arms.shape) for axis in axes]
    if not atoms.pbc.any():
        motions += [np.cross(axis, arms) for axis in axes]
    return np.array([(weights * motion).ravel() for motion in motions]).T


@dataclass(frozen=True)
class Sifted:
    """Frames worth a label, and how many of the others were left out for which reason."""

    taken: list[Atoms]
    dropped: dict[str, int]

    def with_lost(self, count: int, multiple: float) -> "Sifted":
        """Count those as well that `Watch.not_lost` left out before."""
        reason = f"lost (beyond {multiple:g} times the alarm)"
        return replace(self, dropped=self.dropped | ({reason: count} if count else {}))

    def __str__(self) -> str:
        """For instance ``88 frames: 80 taken, 5 labelled already, 3 too near to another (0.05 Å)``."""
        count = len(self.taken) + sum(self.dropped.values())
        return f"{count:,} frames: " + ", ".join(
            f"{number:,} {reason}" for reason, number in {"taken": len(self.taken), **self.dropped}.items()
        )


def sift(
    frames: Iterable[Atoms],
    threshold: float | None = None,
    known_hashes: Collection[str] = (),
    min_distance: float = 0.05,
    key: str = SCORE,
    fused: float = 0.5,
) -> Sifted:
    """Tell frames worth a label from the others: they are uncertain, finite, not fused, and no two nearly the same.

    Args:
        frames: with their raw scores in ``info``, as `run_md` leaves them, where there is a threshold.
        threshold: the raw score that a frame must pass, for instance ``calibration.variance_threshold(0.95)``; None for
            any.
        known_hashes: of structures that are labelled already.
        min_distance: smallest difference to a frame taken before it, in Å: see `structure_distance`.
        key: the name of the raw score in ``info``.
        fused: atoms nearer than this fraction of the sum of their covalent radii are on one another.
    """
    known, met = set(known_hashes), set[str]()
    distinct = Distinct(min_distance)

    def reason(frame: Atoms) -> str | None:
        if not np.isfinite(frame.positions).all():
            return "not finite"
        if threshold is not None and not score_of(frame, key) > threshold:
            return "not uncertain enough"
        digest = structure_hash(frame)
        if digest in known:
            return "labelled already"
        if fused_atoms(frame, fused) is not None:
            return "with fused atoms"
        if digest in met or not distinct.add(frame):
            return f"too near to another ({min_distance:g} Å)"
        met.add(digest)
        return None

    reasons = [(frame, reason(frame)) for frame in frames]
    dropped = Counter(why for _, why in reasons if why is not None)
    return Sifted([frame for frame, why in reasons if why is None], dict(dropped.most_common()))


def collect(
    frames: Iterable[Atoms],
    threshold: float | None = None,
    known_hashes: Collection[str] = (),
    min_distance: float = 0.05,
    key: str = SCORE,
    fused: float = 0.5,
) -> list[Atoms]:
    """Frames worth a label; `sift`, with the same arguments, also says why others are not."""
    return sift(frames, threshold, known_hashes, min_distance, key, fused).taken


def score_of(frame: Atoms, key: str = SCORE) -> float:
    """The raw score that a simulation left in a frame; infinite where no atom has a neighbour: not certainty."""
    if frame.info.get(LONE_ATOMS) == len(frame):
        return np.inf
    try:
        return float(frame.info[key])
    except KeyError:
        raise InputError(f"a frame has no {key}: score the frames first, or collect them without a threshold") from None


def _moved(atoms: Atoms, displacement: Array) -> Atoms:
    """Only the geometry: labels belong to the place where the atoms were."""
    return Atoms(numbers=atoms.numbers, positions=atoms.positions + displacement, cell=atoms.cell, pbc=atoms.pbc)
