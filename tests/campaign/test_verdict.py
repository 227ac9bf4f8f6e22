"""When a campaign stops, and which reason comes first."""

import pytest

from adaptntk.campaign.config import Campaign
from adaptntk.campaign.records import ErrorRecord, LabelCounts, RoundSummary
from adaptntk.campaign.verdict import headline, judge
from adaptntk.training.limits import what_limits


def summary(round=1, rmse=0.1, high=0.12, information=0.5, spent=100, limit=None):
    return RoundSummary(
        round=round,
        labels=LabelCounts(50, 20, 30, 0),
        labels_spent=spent,
        confidence=0.95,
        coverage=0.9,
        errors=ErrorRecord(rmse, 0.9 * rmse, high, 2 * rmse, 0.01),
        information_per_label=information,
        limit=limit,
    )


@pytest.mark.parametrize(
    ("stop", "last", "reason"),
    [
        ({}, {}, None),
        ({"force_rmse": 0.13}, {}, "target"),
        ({"force_rmse": 0.11}, {}, None),  # reached, but not with confidence
        ({"force_rmse": 0.13, "labels": 100}, {}, "target"),  # with the last label
        ({"information": 0.6}, {}, "information"),
        ({"information": 0.4}, {}, None),
        ({"information": 0.4}, {"information": None, "round": 0}, None),
        ({}, {"information": None, "round": 2}, "candidates"),
        ({"labels": 129}, {}, "budget"),
        ({"labels": 130}, {}, None),
        ({"rounds": 1}, {}, "rounds"),
        ({"rounds": 2}, {}, None),
    ],
)
def test_verdicts(stop, last, reason):
    config = Campaign(name="x", start={"molecule": "water"}, stop={"rounds": 9, **stop})
    verdict = judge(config, summary(**last))
    assert (verdict and verdict.reason) == reason
    if verdict is not None:
        assert headline(verdict) != verdict.reason
        assert "\n" not in verdict.text


def test_who_lacks_no_labels_is_told_so():
    config = Campaign(name="x", start={"molecule": "water"}, stop={"rounds": 1})
    done = "the planned round is done"
    assert judge(config, summary()).text == done
    assert judge(config, summary(limit=what_limits(0.03, 0.1, 0.0))).text == done
    network = judge(config, summary(limit=what_limits(0.1, 0.1, 0.0))).text
    assert network.startswith(f"{done}; the last model is limited by the network: more labels will help little: ")
    steps = judge(config, summary(limit=what_limits(0.1, 0.1, 0.2))).text
    assert steps == f"{done}; the last model is limited by steps: train longer (--steps) before you buy labels"
