"""When a campaign may stop, and what it then says."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from adaptntk.campaign.config import Campaign


@dataclass(frozen=True)
class Verdict:
    """Why a campaign stopped.

    Args:
        reason: ``target``, ``information``, ``candidates``, ``budget`` or ``rounds``.
        text: the same in a sentence.
    """

    reason: str
    text: str


def judge(config: Campaign, history: Sequence[dict[str, Any]]) -> Verdict | None:
    """The verdict after the last round of the history; None to go on.

    The target comes first: a campaign that reaches it with its last label has reached it.
    """
    stop, last = config.stop, history[-1]
    errors = last["errors"]
    if stop.force_rmse is not None and errors["force_rmse_high"] <= stop.force_rmse:
        return Verdict(
            "target",
            f"the force RMSE on {last['labels']['holdout']} hold-out structures is {errors['force_rmse']:.4f} eV/Å, "
            f"and below the target of {stop.force_rmse:g} with {stop.confidence:.0%} confidence",
        )
    information = last["information_per_label"]
    if stop.information is not None and information is not None and information < stop.information:
        return Verdict(
            "information",
            f"a label of the last round told {information:.3g} nats by log(1 + U/lam), less than {stop.information:g}",
        )
    if last["round"] > 0 and information is None:
        return Verdict("candidates", "the exploration found no structure that is not labelled already")
    if stop.labels is not None and last["labels_spent"] + config.round.total > stop.labels:
        return Verdict(
            "budget",
            f"{last['labels_spent']} labels were spent, and a round of {config.round.total} more would exceed the "
            f"budget of {stop.labels}",
        )
    if last["round"] >= stop.rounds:
        missed = "" if stop.force_rmse is None else "; the target was not reached"
        return Verdict("rounds", f"all {stop.rounds} rounds are done{missed}")
    return None
