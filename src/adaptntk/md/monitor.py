"""Watching a simulation: counts alarms and says when, and why, to stop."""

from collections.abc import Sequence
from dataclasses import dataclass

from adaptntk.core.calibration import Calibration
from adaptntk.md.rules import Observation, Rule


@dataclass(frozen=True)
class StopReason:
    """Why a run ended: the rule, what happened, and at which step."""

    rule: str
    text: str
    step: int

    def __str__(self) -> str:
        return f"step {self.step}: {self.text} ({self.rule})"


class Monitor:
    """Applies rules to one observation after the other; one monitor for each run.

    Args:
        rules: what must not happen.
        calibration: of the uncertainty, which uncertainty rules need.
    """

    def __init__(self, rules: Sequence[Rule], calibration: Calibration | None = None) -> None:
        self.rules = tuple(rules)
        self.calibration = calibration
        self._alarms = [0] * len(self.rules)
        for rule in rules:
            rule.check_calibration(calibration)

    def observe(self, observation: Observation) -> StopReason | None:
        """Look at the next moment; the reason to stop, if there is one."""
        for place, rule in enumerate(self.rules):
            reason = self._patiently(place, rule, observation)
            if reason is not None:
                return StopReason(rule.name, reason, observation.step)
        return None

    def _patiently(self, place: int, rule: Rule, observation: Observation) -> str | None:
        """Count an alarm, or forget those before once the score is well below the threshold."""
        alarm = rule.check(observation, self.calibration)
        excess = rule.excess(observation, self.calibration)
        if alarm is None:
            if excess is not None and excess < rule.release:
                self._alarms[place] = 0
            return None
        self._alarms[place] += 1
        if excess is not None and excess > rule.lost:
            return f"{alarm}, more than {rule.lost:.4g} times"
        if self._alarms[place] < rule.patience:
            return None
        return alarm if rule.patience == 1 else f"{alarm}, alarm {self._alarms[place]}"
