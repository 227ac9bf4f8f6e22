"""How a simulation is watched: one set of settings for ``adaptntk md`` and for campaigns."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ase import Atoms

from adaptntk.core.calibration import Calibration, check_coverage
from adaptntk.errors import InputError
from adaptntk.md.exploration import SCORE, score_of
from adaptntk.md.physical_rules import PHYSICAL_RULES
from adaptntk.md.rules import AtomErrorLevel, ConformalThreshold, ErrorLevel, Reading, Rule, UncertaintyRule

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Watch:
    """What ends a simulation, and which of its frames are candidates for labels.

    Args:
        coverage: a frame alarms when its score passes the conformal threshold at this coverage; also the probability
            stated for the bound of the force error.
        max_error: a frame alarms instead when that bound passes this level, eV/Å.
        max_atom_error: a frame alarms besides when the bound of the force errors of all its atoms passes this, eV/Å.
        patience: alarms until a run ends.
        lost: a frame beyond this multiple of an alarm's threshold ends a run at once, and is no candidate.
        keep_going: never end a run because of its uncertainty, only when it breaks down.
        above: candidates pass the conformal threshold at this coverage; that of the alarm when None, any for 0.
        early: for models that are still being learnt: the level of errors is watched besides the score, not instead
            of it, and not at all while the model can keep it nowhere.
    """

    coverage: float = 0.99
    max_error: float | None = None
    patience: int = 5
    lost: float = 2.0
    keep_going: bool = False
    above: float | None = None
    early: bool = False
    max_atom_error: float | None = None

    def __post_init__(self) -> None:
        check_coverage(self.coverage)

    def rules(self, calibration: Calibration | None) -> list[Rule]:
        """What must not happen; refused if this calibration cannot tell."""
        found = [*PHYSICAL_RULES, *self._alarms(calibration)]
        for rule in found:
            rule.check_calibration(calibration)
        return found

    @property
    def _score_rule(self) -> ConformalThreshold:
        return ConformalThreshold(self.coverage, patience=self.patience, lost=self.lost)

    def _alarms(self, calibration: Calibration | None) -> list[UncertaintyRule]:
        if self.keep_going:
            return []
        how: Any = {"patience": self.patience, "lost": self.lost}
        levels: list[UncertaintyRule] = []
        if self.max_error is not None:
            levels.append(ErrorLevel(self.max_error, self.coverage, **how))
        if self.max_atom_error is not None:
            levels.append(AtomErrorLevel(self.max_atom_error, self.coverage, **how))
        if self.early:
            levels = [level for level in levels if _can_be_kept(level, calibration)]
        return levels if self.max_error is not None and levels and not self.early else [self._score_rule, *levels]

    def threshold(self, calibration: Calibration | None) -> float | None:
        """The raw score that a candidate passes; None for any."""
        if calibration is None or self.above == 0:
            return None
        if self.above is None:
            return self._score_rule.threshold(calibration)
        return calibration.variance_threshold(self.above)

    def not_lost(self, frames: Iterable[Atoms], calibration: Calibration | None, key: str = SCORE) -> list[Atoms]:
        """Frames within reach of what the model knows; ``key`` is the name of the raw score in ``info``.

        A model that has lost its way breaks bonds that would hold. Such frames are the most uncertain of all, but the
        next model learns more from where this one begins to be wrong.
        """
        if calibration is None:
            return list(frames)
        rules = {rule.name: rule for rule in [self._score_rule, *self._alarms(calibration)]}.values()
        limits = [(rule, self.lost * rule.threshold(calibration)) for rule in rules]

        def within_reach(reading: Reading) -> bool:
            scores = ((rule.score(reading, calibration), limit) for rule, limit in limits)
            return all(score is None or score <= limit for score, limit in scores)

        return [frame for frame in frames if within_reach(Reading.of(frame, score_of(frame, key)))]


def _can_be_kept(level: UncertaintyRule, calibration: Calibration | None) -> bool:
    try:
        level.check_calibration(calibration)
    except InputError as error:
        log.warning("not watched in this round: %s", error)
        return False
    return True
