"""From the raw score to numbers a chemist can use: a sigma in eV/Å, and conformal bounds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import optimize

from adaptntk.core.metrics import Array
from adaptntk.core.question import ENERGY
from adaptntk.errors import InputError
from adaptntk.representation import short_repr

REPORTED_COVERAGES = (0.8, 0.9, 0.95)
# Sigmas that differ by less than this part of themselves are one.
CONSTANT = 1e-3
# Of scores: the same structure may be computed beside others.
ROUNDING = 1e-5
# Fewer structures bound nothing at 90 %, and leave five to each half of the cross-fit.
MINIMUM_STRUCTURES = 10


@dataclass(frozen=True)
class VarianceCalibration:
    """``sigma^2 = a u + b^2`` with u a variance: a converts the unit, b^2 is what no epistemic term can know."""

    a: float
    b: float

    def sigma(self, variance: Array) -> Array:
        """Predicted root mean square error."""
        return np.sqrt(self.a * np.maximum(variance, 0.0) + self.b**2)


def fit_variance(variance: Array, errors: Array) -> VarianceCalibration:
    """Minimise ``sum log sigma^2 + e^2/sigma^2`` over ``a, b >= 0`` (the paper's recalibration).

    In units where u has mean 1 and e^2 has mean 1 the optimum is of order one, so two bounded parameters on
    that scale are enough; several starts guard against the flat directions a = 0 and b = 0.
    """
    if len(variance) < 2:
        raise InputError(f"calibration needs at least two labelled structures, not {len(variance)}")
    unit_u = float(np.mean(variance)) or 1.0
    unit_e = float(np.mean(errors**2))
    if unit_e == 0:
        raise InputError("calibration is impossible: the model reproduces every label exactly")
    u, e2 = np.maximum(variance, 0.0) / unit_u, errors**2 / unit_e

    def loss(parameters: Array) -> tuple[float, Array]:
        s2 = parameters[0] * u + parameters[1]
        slope = 1 / s2 - e2 / s2**2
        return float(np.mean(np.log(s2) + e2 / s2)), np.array([np.mean(slope * u), np.mean(slope)])

    bounds = [(0.0, 1e6), (1e-10, 1e6)]
    starts = [(share, 1 - share) for share in (0.02, 0.5, 0.98)]
    fits = [optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds) for start in starts]
    best = min(fits, key=lambda fit: float(fit.fun)).x
    return VarianceCalibration(float(best[0]) * unit_e / unit_u, math.sqrt(float(best[1]) * unit_e))


def cross_fitted_sigma(variance: Array, errors: Array, rng: Generator) -> Array:
    """Sigma of each half of the structures from the calibration of the other half: nothing grades itself."""
    halves = np.array_split(rng.permutation(len(errors)), 2)
    sigma = np.empty_like(errors)
    for fitted, held_out in (halves, halves[::-1]):
        sigma[held_out] = fit_variance(variance[fitted], errors[fitted]).sigma(variance[held_out])
    return sigma


def conformal_quantile(scores: Array, coverage: float) -> float:
    """The split-conformal threshold: a new exchangeable score stays below it with at least this probability.

    The ``ceil((n + 1) coverage)``-th smallest of the n calibration scores; infinite when n is too small for it.
    """
    check_coverage(coverage)
    rank = math.ceil((len(scores) + 1) * coverage)
    return float(np.sort(scores)[rank - 1]) if rank <= len(scores) else math.inf


def grouped_quantile(scores: Array, coverage: float, groups: int) -> float:
    """The threshold of `conformal_quantile` for scores that come in groups, as atoms do in structures.

    Scores of a group are alike, so it is groups that are exchangeable: each counts ``1 / (groups + 1)``, and as much is
    left for the new one. Infinite when there are too few of them.
    """
    check_coverage(coverage)
    rank = math.ceil(len(scores) * coverage * (groups + 1) / groups) if groups else len(scores) + 1
    return float(np.sort(scores)[rank - 1]) if rank <= len(scores) else math.inf


def check_coverage(coverage: float) -> None:
    """Refuse what is no probability."""
    if not 0 < coverage < 1:
        raise InputError(f"the coverage must lie between 0 and 1, not {coverage}")


def check_calibration_size(structures: int) -> None:
    """Refuse sets that are too small to say anything."""
    if structures < MINIMUM_STRUCTURES:
        least = f"at least {MINIMUM_STRUCTURES} labelled structures, better 100"
        raise InputError(f"calibration needs {least}, not {structures}")


@short_repr
@dataclass(frozen=True)
class Calibration:
    """All that turns scores into statements, fitted on labelled structures outside the training set.

    Energies are wrong by a constant that cancels in differences, and by what remains: `energy` speaks of the latter.

    Args:
        forces: to the root mean square force error of a structure, eV/Å; None where no forces were labelled.
            It begins from the force score, which is the raw score unless ``question`` says otherwise.
        energy: to the energy error without the offset, eV, divided by the number of atoms to the power
            ``energy_power``; None where no energies were labelled.
        ratios: force error over predicted sigma of each calibration structure, sigma cross-fitted.
        variances: the raw score of each calibration structure.
        lone_atoms: whether some of them had atoms without neighbours.
        energy_offset: mean of predicted minus labelled energy, in the unit of ``energy``.
        energy_ratios: energy error without the offset over sigma, as ``ratios``; none in files of before.
        atoms: from the committee's variance to the root mean square error of a force component of an atom, eV/Å; None
            where there is no committee, or no forces were labelled.
        atom_ratios: error over sigma of each atom of the calibration structures, as ``ratios``.
        worst_ratios: the largest of each structure; none in files of before.
        question: which score speaks of forces, a name of `QUESTIONS`.
        force_scores: that of each calibration structure, where it is not the raw one.
    """

    forces: VarianceCalibration | None
    energy: VarianceCalibration | None
    ratios: Array
    variances: Array
    energy_power: float = 1.0
    lone_atoms: bool = False
    energy_offset: float = 0.0
    energy_ratios: Array = field(default_factory=lambda: np.zeros(0))
    atoms: VarianceCalibration | None = None
    atom_ratios: Array = field(default_factory=lambda: np.zeros(0))
    worst_ratios: Array = field(default_factory=lambda: np.zeros(0))
    question: str = ENERGY
    force_scores: Array = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def fit(
        cls,
        variances: Array,
        force_errors: Array,
        energy_errors: Array,
        rng: Generator,
        energy_power: float = 1.0,
        question: str = ENERGY,
        force_scores: Array | None = None,
    ) -> "Calibration":
        """Fit both scales, and keep what conformal thresholds of any coverage need.

        Args:
            question, force_scores: which scores speak of forces, if it is not the raw ones.
            force_errors, energy_errors: NaN for structures without that label; a scale is fitted where
                `MINIMUM_STRUCTURES` have it. The errors of energies have a sign.
        """
        has_forces, has_energy = (enough(errors) for errors in (force_errors, energy_errors))
        if not has_forces and not has_energy:
            check_calibration_size(max(np.isfinite(e).sum() for e in (force_errors, energy_errors)))
        # A generator of its own: numbers of forces do not depend on whether energies were labelled.
        own = rng.spawn(1)[0]
        asked = variances if force_scores is None else force_scores
        forces, ratios = _scale(asked, force_errors, rng) if has_forces else (None, np.zeros(0))
        offset = float(np.nanmean(energy_errors)) if has_energy else 0.0
        remaining = np.abs(energy_errors - offset)
        energy, energy_ratios = _scale(variances, remaining, own) if has_energy else (None, np.zeros(0))
        ordered, others = np.sort(variances), np.zeros(0) if force_scores is None else np.sort(force_scores)
        found = cls(forces, energy, ratios, ordered, energy_power, energy_offset=offset, energy_ratios=energy_ratios)
        return replace(found, question=question, force_scores=others)

    def with_atoms(self, variances: Sequence[Array], errors: Sequence[Array], rng: Generator) -> "Calibration":
        """The same, and a scale of the errors of atoms: of each structure one number per atom, of both kinds.

        Atoms of one structure are alike, so it is structures that are cross-fitted in halves.
        """
        whole = fit_variance(np.concatenate(variances), np.concatenate(errors))
        halves, ratios = np.array_split(rng.permutation(len(errors)), 2), []
        for fitted, held_out in (halves, halves[::-1]):
            own = fit_variance(*(np.concatenate([several[i] for i in fitted]) for several in (variances, errors)))
            ratios += [errors[i] / own.sigma(variances[i]) for i in held_out]
        worst = np.sort([ratio.max() for ratio in ratios])
        return replace(self, atoms=whole, atom_ratios=np.sort(np.concatenate(ratios)), worst_ratios=worst)

    def force_sigma(self, score: Array) -> Array:
        """Expected root mean square force error, eV/Å, from the force score."""
        if self.forces is None:
            raise InputError("forces are not calibrated: fit with validation structures that have force labels")
        return self.forces.sigma(score)

    @property
    def usual_sigma(self) -> float:
        """The median of the calibration structures, eV/Å."""
        return float(np.median(self.force_sigma(self._asked)))

    @property
    def _asked(self) -> Array:
        """The sorted scores that speak of forces."""
        return self.variances if self.question == ENERGY else self.force_scores

    def error_bound(self, score: Array, coverage: float) -> Array:
        """From the force score: see `bound`."""
        return self.bound(self.force_sigma(score), coverage)

    def bound(self, sigma: Array, coverage: float) -> Array:
        """The force error of a new structure is below this with about the stated probability.

        On average over structures drawn like the calibration set; not for each one, and not for structures of another
        kind. The guarantee of split-conformal bounds is exact for a sigma fixed beforehand. Here each half of the set
        is compared with the sigma of the other half and the bound uses the sigma of both: nearly the same, two
        parameters being shared by tens of structures or more.
        """
        return sigma * conformal_quantile(self.ratios, coverage)

    def worst_atom_bound(self, sigma: Array, coverage: float) -> float:
        """No atom of a new structure has a larger error of its force, with about the stated probability."""
        return float(sigma.max()) * conformal_quantile(self.worst_ratios, coverage)

    @property
    def largest(self) -> float:
        """The largest score that was calibrated."""
        return float(self.variances[-1])

    def is_beyond(self, variance: Array) -> NDArray[np.bool_]:
        """Whether scores are larger than that, by more than rounding, or no numbers."""
        return ~(variance <= self.largest * (1 + ROUNDING))

    def notes(self) -> list[str]:
        """What is wrong with it, in plain sentences."""
        found = []
        kinds = ("force", self.forces, "forces", self._asked), ("energy", self.energy, "energy", self.variances)
        for name, scale, key, scores in kinds:
            if scale is None:
                continue
            sigma = scale.sigma(scores)
            if sigma[-1] <= (1 + CONSTANT) * sigma[0]:
                found.append(
                    f"the score says nothing about the {name} error on the calibration set: {key}_uncertainty is the "
                    f"same{' per atom' if name == 'energy' and self.energy_power == 1 else ''} for all"
                )
        return found

    def variance_threshold(self, coverage: float) -> float:
        """Scores of new structures like the calibration set stay below this with the stated probability."""
        return conformal_quantile(self.variances, coverage)


def beyond_sentence(count: int, total: int, largest: float, what: str = "structures") -> str:
    """That numbers of some structures are extrapolated."""
    verb = "lies" if count == 1 else "lie"
    return f"{count:,} of {total:,} {what} {verb} beyond what was calibrated (largest known U {largest:.4g})"


def lone_sentence(count: int, total: int, what: str = "structures") -> str:
    """That some structures are none."""
    verb = "consists" if count == 1 else "consist"
    why = "of atoms without neighbours only: the score says nothing about them, and there is no sigma"
    return f"{count:,} of {total:,} {what} {verb} {why}"


def enough(errors: Array) -> bool:
    """Whether so many structures are labelled that something can be said."""
    return bool(np.isfinite(errors).sum() >= MINIMUM_STRUCTURES)


def _scale(variances: Array, errors: Array, rng: Generator) -> tuple[VarianceCalibration, Array]:
    """Sigma, and the sorted ratios of error over cross-fitted sigma, from the structures that have the label."""
    known = np.isfinite(errors)
    u, e = variances[known], errors[known]
    return fit_variance(u, e), np.sort(e / cross_fitted_sigma(u, e, rng))
