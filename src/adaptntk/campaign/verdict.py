"""When a campaign may stop, and what it then says."""

from collections.abc import Callable

from adaptntk.campaign.config import Campaign
from adaptntk.campaign.records import RoundSummary, Verdict


def target(config: Campaign, last: RoundSummary) -> str | None:
    """The error is low enough, even at the upper bound of what the hold-out structures tell."""
    stop, errors = config.stop, last.errors
    if stop.force_rmse is None or errors.force_rmse_high > stop.force_rmse:
        return None
    return (
        f"the force RMSE on {last.labels.holdout} hold-out structures is {errors.force_rmse:.4f} eV/Å, "
        f"and below the target of {stop.force_rmse:g} with {stop.confidence:.0%} confidence"
    )


def information(config: Campaign, last: RoundSummary) -> str | None:
    """The labels of the round told little."""
    limit, told = config.stop.information, last.information_per_label
    if limit is None or told is None or told >= limit:
        return None
    return f"a label of the last round told {told:.3g} nats by log(1 + U/lam), less than {limit:g}"


def candidates(config: Campaign, last: RoundSummary) -> str | None:
    """Nothing was left to pick."""
    if last.round == 0 or last.information_per_label is not None:
        return None
    return "the exploration found no structure that is not labelled already"


def budget(config: Campaign, last: RoundSummary) -> str | None:
    """Another round would cost too much."""
    limit, spent, more = config.stop.labels, last.labels_spent, config.round.total
    if limit is None or spent + more <= limit:
        return None
    return f"{spent} labels were spent, and a round of {more} more would exceed the budget of {limit}"


def rounds(config: Campaign, last: RoundSummary) -> str | None:
    """All that were planned are done."""
    if last.round < config.stop.rounds:
        return None
    missed = "" if config.stop.force_rmse is None else "; the target was not reached"
    planned = config.stop.rounds
    return ("the planned round is done" if planned == 1 else f"all {planned} rounds are done") + missed


# Each reason to stop with a headline for the report, and a function that says why in a sentence, or None. The target
# comes first: a campaign that reaches it with its last label has reached it.
STOP_RULES: dict[str, tuple[str, Callable[[Campaign, RoundSummary], str | None]]] = {
    "target": ("Target reached", target),
    "information": ("Little left to learn", information),
    "candidates": ("Nothing new found", candidates),
    "budget": ("Label budget spent", budget),
    "rounds": ("Planned rounds done", rounds),
}


def judge(config: Campaign, last: RoundSummary) -> Verdict | None:
    """The verdict after a round; None to go on."""
    said = ((reason, why(config, last)) for reason, (_, why) in STOP_RULES.items())
    found = ((reason, text + labels_remark(last)) for reason, text in said if text is not None)
    return next((Verdict(reason=reason, text=text) for reason, text in found), None)


def labels_remark(last: RoundSummary) -> str:
    """What else must be known before more labels are bought: they are not what the last model lacks."""
    limit = last.limit
    return "" if limit is None or limit.by == "labels" else f"; the last model is {limit.verdict}: {limit.advice}"


def headline(verdict: Verdict) -> str:
    """The verdict in three words."""
    return STOP_RULES[verdict.reason][0] if verdict.reason in STOP_RULES else verdict.reason
