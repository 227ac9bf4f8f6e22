"""When a simulation should stop: rules, each with a formula and a unit.

Uncertainty rules compare a score with a threshold, and have patience: the run ends at the ``patience``-th alarm, and
the count begins anew only once the score has fallen below ``release`` times the threshold. So one noisy frame does not
end a run, and a short dip does not hide a trend. A score of more than ``lost`` times the threshold is no noise, and
ends the run at once, as physical rules (``physical_rules.py``) do.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from adaptntk.core.calibration import Calibration, check_coverage
from adaptntk.errors import InputError, require


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
    lone: bool = False


class Rule(ABC):
    """Something a simulation must not do. A new one needs a name and `check`, and a place in a list of rules."""

    name: ClassVar[str]
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
    def score(self, variance: float, calibration: Calibration) -> float:
        """What is compared with the threshold."""

    @abstractmethod
    def sentence(self, score: str, threshold: str) -> str:
        """The alarm in words."""

    def excess(self, observation: Observation, calibration: Calibration | None) -> float | None:
        """Score over threshold: above 1 is an alarm. None for a moment without uncertainty, or without meaning."""
        if observation.variance is None or observation.lone:
            return None
        calibration = self._calibrated(calibration)
        return self.score(observation.variance, calibration) / self.threshold(calibration)

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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_coverage(self.coverage)

    def threshold(self, calibration: Calibration) -> float:
        return _finite(calibration.variance_threshold(self.coverage), self.coverage, calibration)

    def score(self, variance: float, calibration: Calibration) -> float:
        return variance

    def sentence(self, score: str, threshold: str) -> str:
        return f"the score {score} passed {threshold}, which {100 * self.coverage:.4g} % of known structures stay below"


@dataclass(frozen=True)
class ErrorLevel(UncertaintyRule):
    """``sigma(U) q > level`` (eV/Å): the bound that the force error keeps with probability ``coverage`` passes a level.

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
        smallest = _finite(self.score(0.0, calibration), self.coverage, calibration)
        require(
            smallest < self.level,
            f"the error level {self.level:.4g} eV/Å can never be kept: the bound at {self.coverage:.4g} is "
            f"{smallest:.4g} eV/Å even where the score is 0; raise the level or train the model better",
        )
        return self.level

    def score(self, variance: float, calibration: Calibration) -> float:
        return float(calibration.error_bound(np.array([variance]), self.coverage)[0])

    def sentence(self, score: str, threshold: str) -> str:
        return f"the {100 * self.coverage:.4g} % bound of the force error, {score} eV/Å, passed {threshold} eV/Å"


@dataclass(frozen=True)
class RelativeThreshold(UncertaintyRule):
    """``sigma > factor x median sigma`` of the calibration structures (eV/Å)."""

    factor: float = 2.0
    name: ClassVar[str] = "relative-threshold"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.factor > 0, f"the factor of the typical uncertainty must be positive, not {self.factor}")

    def threshold(self, calibration: Calibration) -> float:
        return self.factor * float(np.median(calibration.force_sigma(calibration.variances)))

    def score(self, variance: float, calibration: Calibration) -> float:
        return float(calibration.force_sigma(np.array([variance]))[0])

    def sentence(self, score: str, threshold: str) -> str:
        return f"the expected force error {score} eV/Å passed {threshold} eV/Å, {self.factor:.4g} times the usual"


def _finite(threshold: float, coverage: float, calibration: Calibration) -> float:
    require(
        math.isfinite(threshold),
        f"{len(calibration.variances)} calibration structures say nothing at a coverage of {coverage:.4g}: lower it, "
        f"or calibrate on at least {math.ceil(coverage / (1 - coverage))}",
    )
    return threshold
