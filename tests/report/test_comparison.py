"""Learning curves beside one another, by hand."""

import numpy as np
import pytest

from adaptntk.report.comparison import (
    Curve,
    compare_curves,
    comparison_table,
    curve_area,
    labels_needed,
    ratio_interval,
    show_ratio,
)


def test_labels_needed_by_hand():
    labels, errors = np.array([50.0, 100.0, 200.0]), np.array([4.0, 2.0, 1.0])
    assert labels_needed(labels, errors, 2.0) == pytest.approx(100)
    assert labels_needed(labels, errors, np.sqrt(2)) == pytest.approx(100 * np.sqrt(2))
    assert labels_needed(labels, errors, 5.0) == 50
    assert labels_needed(labels, errors, 0.5) is None
    assert curve_area(labels, errors) == pytest.approx(2.0)
    assert curve_area(labels[:1], errors[:1]) == 4


def test_ratios_of_pairs():
    assert ratio_interval([2.0, 8.0], [1.0, 1.0])["mean"] == pytest.approx(4)
    assert ratio_interval([2.0, 2.0], [1.0, 1.0])["low"] == pytest.approx(2)
    assert ratio_interval([2.0], [1.0])["low"] is None
    assert show_ratio({"mean": 0.5, "low": 0.25, "high": 1.0}) == "0.500 (0.250 .. 1.000)"
    assert show_ratio({"mean": 0.5, "low": None, "high": None}) == "0.500"


def curve(*errors: float) -> Curve:
    tail = [2 * error for error in errors]
    return Curve([50 * (n + 1) for n in range(len(errors))], {"force_rmse": list(errors), "force_rmse_p99": tail})


def test_a_comparison_and_its_table():
    curves = {"adaptntk": [curve(0.4, 0.1), curve(0.8, 0.9)], "random": [curve(0.4, 0.2), curve(0.8, 0.4)]}
    summary = compare_curves(curves)
    assert summary["random"]["labels_to_random"] == pytest.approx([100, 100])
    assert summary["adaptntk"]["labels_to_random"] == [pytest.approx(50 * np.sqrt(2)), None]
    assert summary["adaptntk"]["final_over_random"]["mean"] == pytest.approx(np.sqrt(0.5 * 2.25))
    areas = (summary["adaptntk"][name]["mean"] for name in ("area_over_random", "p99_area_over_random"))
    assert list(areas) == pytest.approx([(0.5 * 2.25) ** 0.25] * 2)
    lines = comparison_table(curves, summary).splitlines()
    assert lines[0] == "Force RMSE (meV/Å) on common test structures, mean of 2 seeds:"
    cells = [cell.strip() for cell in lines[4].strip("|").split("|")]
    assert cells[:3] == ["adaptntk", "600.0", "500.0"]
    assert cells[-1] == "71, never"
    assert curves["random"][0].content().keys() == {"labels", "force_rmse", "force_rmse_p99"}
