"""When a simulation should stop: rules, each with a formula and a unit.

Uncertainty rules compare a score with a threshold, and have patience: the run ends at the ``patience``-th alarm, and
the count begins anew only once the score has fallen below ``release`` times the threshold. So one noisy frame does not
end a run, and a short dip does not hide a trend. A score of more than ``lost`` times the threshold is no noise, and
ends the run at once, as physical rules (``physical_rules.py``) do.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from adaptntk.core.calibration import Calibration, check_coverage
from adaptntk.errors import InputError, require
from adaptntk.uncertainty.method import OF_ATOMS


@dataclass(frozen=True)
class Observation:
    """A simulation at one moment.

    Args:
        time: fs since the start.
        start: the geometry at the start.
        temperature: of the nuclei, K.
        target: the thermostat's temperature, K; None without one.
        energy: eV.
        forces: eV/Å.
        variance: the raw score U.
        sigma: expected root mean square force error, eV/Å.
        bound: conformal bound of the force error, eV/Å.
        worst_atom: the largest of the atoms' expected force errors, eV/Å.
        lone: whether no atom has a neighbour within the cutoff of the model; the score says nothing then.
    """

    step: int
    time: float
    atoms: Atoms
    start: Atoms
    temperature: float
    target: float | None = None
    energy: float | None = None
    forces: NDArray[np.float64] | None = None
    variance: float | None = None
    sigma: float | None = None
    bound: float | None = None
    worst_atom: float | None = None
    lone: bool = False

    @property
    def reading(self) -> "Reading":
        """What rules on the uncertainty look at."""
        return Reading(self.variance, self.sigma, self.worst_atom)


class Reading(NamedTuple):
    """The uncertainty of a geometry: the raw score U, and sigmas of the structure and of its worst atom in eV/Å."""

    variance: float | None = None
    sigma: float | None = None
    worst_atom: float | None = None

    @classmethod
    def of(cls, frame: Atoms, variance: float) -> "Reading":
        """Of a frame that a simulation left, with its raw score."""
        of_atoms = frame.arrays.get(OF_ATOMS)
        worst = None if of_atoms is None else float(of_atoms.max())
        return cls(variance, frame.info.get("forces_uncertainty"), worst)


class Rule(ABC):
    """Something a simulation must not do. A new one needs a name and `check`, and a place in a list of rules."""

    name: ClassVar[str]
    asks_committee: ClassVar[bool] = True
    """Whether it looks at uncertainties of forces, for which the committee may have to be asked at each observation."""
    patience: int = 1
    release: float = 1.0
    lost: float = math.inf

    @abstractmethod
    def check(self, observation: Observation, calibration: Calibration | None) -> str | None:
        """Why the rule is broken, in one line; None when it is not."""

    def excess(self, observation: Observation, calibration: Calibration | None) -> float | None:
        """Score over threshold, for rules that have them."""
        return None

    def check_calibration(self, calibration: Calibration | None) -> None:  # noqa: B027
        """Refuse a calibration by which the rule cannot be decided, before anything is computed."""


@dataclass(frozen=True, kw_only=True)
class UncertaintyRule(Rule):
    """A rule that compares a score of the structure with a threshold.

    Args:
        patience: alarms until the run ends.
        release: fraction of the threshold below which the score must fall for the count to begin anew.
        lost: score over threshold above which the run ends without patience.
    """

    patience: int = 5
    release: float = 0.8
    lost: float = 2.0

    def __post_init__(self) -> None:
        require(self.patience >= 1, f"patience is a number of alarms, at least 1, not {self.patience}")
        require(0 < self.release <= 1, f"release must lie between 0 and 1, not {self.release}")
        require(self.lost >= 1, f"lost is a multiple of the threshold, at least 1, not {self.lost}")

    @abstractmethod
    def threshold(self, calibration: Calibration) -> float:
        """What the score must not pass; an `InputError` if the calibration cannot say."""

    @abstractmethod
    def score(self, reading: Reading, calibration: Calibration) -> float | None:
        """What is compared with the threshold; None for a reading that has not what it takes."""

    @abstractmethod
    def sentence(self, score: str, threshold: str) -> str:
        """The alarm in words."""

    def excess(self, observation: Observation, calibration: Calibration | None) -> float | None:
        """Score over threshold: above 1 is an alarm. None for a moment without uncertainty, or without meaning."""
        if observation.variance is None or observation.lone:
            return None
        calibration = self._calibrated(calibration)
        score = self.score(observation.reading, calibration)
        return None if score is None else score / self.threshold(calibration)

    def check(self, observation: Observation, calibration: Calibration | None) -> str | None:
        excess = self.excess(observation, calibration)
        # A score that is no number is an alarm too.
        if excess is None or excess <= 1.0:
            return None
        threshold = self.threshold(self._calibrated(calibration))
        return self.sentence(f"{excess * threshold:.4g}", f"{threshold:.4g}")

    def check_calibration(self, calibration: Calibration | None) -> None:
        self.threshold(self._calibrated(calibration))

    def _calibrated(self, calibration: Calibration | None) -> Calibration:
        if calibration is None:
            raise InputError(f"the rule {self.name} needs a calibrated uncertainty: fit with a labelled validation set")
        return calibration


@dataclass(frozen=True)
class ConformalThreshold(UncertaintyRule):
    """``U > q``, with q the conformal quantile of the calibration structures' scores at ``coverage``.

    A structure drawn like the calibration set passes it with probability ``1 - coverage``. Frames that follow one
    another are alike, so alarms come in runs.
    """

    coverage: float = 0.99
    name: ClassVar[str] = "conformal-threshold"
    asks_committee: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_coverage(self.coverage)

    def threshold(self, calibration: Calibration) -> float:
        return _finite(calibration.variance_threshold(self.coverage), self.coverage, calibration)

    def score(self, reading: Reading, calibration: Calibration) -> float | None:
        return reading.variance

    def sentence(self, score: str, threshold: str) -> str:
        return f"the score {score} passed {threshold}, which {100 * self.coverage:.4g} % of known structures stay below"


@dataclass(frozen=True)
class ErrorLevel(UncertaintyRule):
    """``sigma q > level`` (eV/Å): the bound that the force error keeps with probability ``coverage`` passes a level.

    q is the conformal quantile of error over sigma. The probability is that of structures like the calibration set; far
    from it the bound is an extrapolation.
    """

    level: float
    coverage: float = 0.9
    name: ClassVar[str] = "error-level"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_coverage(self.coverage)
        require(self.level > 0, f"the error level must be positive (eV/Å), not {self.level}")

    def threshold(self, calibration: Calibration) -> float:
        smallest = float(calibration.error_bound(np.zeros(1), self.coverage)[0])
        _require_reach(_finite(smallest, self.coverage, calibration), self.level, self.coverage)
        return self.level

    def score(self, reading: Reading, calibration: Calibration) -> float | None:
        if reading.sigma is None:
            return None
        return float(calibration.bound(np.array([reading.sigma]), self.coverage)[0])

    def sentence(self, score: str, threshold: str) -> str:
        return f"the {100 * self.coverage:.4g} % bound of the force error, {score} eV/Å, passed {threshold} eV/Å"


@dataclass(frozen=True)
class AtomErrorLevel(UncertaintyRule):
    """``max_i sigma_i q > level`` (eV/Å): the bound that the force errors of all atoms keep together passes a level.

    q is the conformal quantile of the largest error over sigma among the atoms of a structure, at ``coverage``: an
    uncertain atom alarms in however large a structure. It needs an uncertainty of atoms.
    """

    level: float
    coverage: float = 0.9
    name: ClassVar[str] = "atom-error-level"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_coverage(self.coverage)
        require(self.level > 0, f"the error level of atoms must be positive (eV/Å), not {self.level}")

    def threshold(self, calibration: Calibration) -> float:
        if calibration.atoms is None or not len(calibration.worst_ratios):
            raise InputError(
                f"the rule {self.name} needs an uncertainty of atoms: fit with --committee 16, for instance"
            )
        smallest = calibration.worst_atom_bound(calibration.atoms.sigma(np.zeros(1)), self.coverage)
        _require_reach(_finite(smallest, self.coverage, calibration), self.level, self.coverage)
        return self.level

    def score(self, reading: Reading, calibration: Calibration) -> float | None:
        if reading.worst_atom is None:
            return None
        return calibration.worst_atom_bound(np.array([reading.worst_atom]), self.coverage)

    def sentence(self, score: str, threshold: str) -> str:
        of_atom = f"the {100 * self.coverage:.4g} % bound of the force errors of all atoms, {score} eV/Å for the worst"
        return f"{of_atom}, passed {threshold} eV/Å"


@dataclass(frozen=True)
class RelativeThreshold(UncertaintyRule):
    """``sigma > factor x median sigma`` of the calibration structures (eV/Å)."""

    factor: float = 2.0
    name: ClassVar[str] = "relative-threshold"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.factor > 0, f"the factor of the typical uncertainty must be positive, not {self.factor}")

    def threshold(self, calibration: Calibration) -> float:
        return self.factor * calibration.usual_sigma

    def score(self, reading: Reading, calibration: Calibration) -> float | None:
        return reading.sigma

    def sentence(self, score: str, threshold: str) -> str:
        return f"the expected force error {score} eV/Å passed {threshold} eV/Å, {self.factor:.4g} times the usual"


def _require_reach(smallest: float, level: float, coverage: float) -> None:
    require(
        smallest < level,
        f"the error level {level:.4g} eV/Å can never be kept: the bound at {coverage:.4g} is {smallest:.4g} eV/Å even "
        "where the score is 0; raise the level or train the model better",
    )


def _finite(threshold: float, coverage: float, calibration: Calibration) -> float:
    require(
        math.isfinite(threshold),
        f"{len(calibration.variances)} calibration structures say nothing at a coverage of {coverage:.4g}: lower it, "
        f"or calibrate on at least {math.ceil(coverage / (1 - coverage))}",
    )
    return threshold
