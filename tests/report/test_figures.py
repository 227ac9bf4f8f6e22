"""Figures are drawn without touching what the user has set up in matplotlib."""

import json
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from adaptntk.files import write_table
from adaptntk.report import figures
from adaptntk.report.axes import error_limits, log_ticks, plain_log_ticks, scatter_errors
from adaptntk.report.campaign_figures import _reliability

CODE = """
import importlib, pkgutil, sys
import matplotlib
matplotlib.use("template")
import adaptntk
for module in pkgutil.walk_packages(adaptntk.__path__, "adaptntk."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from adaptntk.campaign.layout import read_run
from adaptntk.report.campaign import campaign_page
from adaptntk.report.figures import draw_selection
before = dict(matplotlib.rcParams)  # mace sets the size of its fonts when it is imported
assert "<svg" in campaign_page(read_run(sys.argv[1]))
assert draw_selection(sys.argv[2]).stat().st_size > 1000
assert matplotlib.get_backend() == "template", matplotlib.get_backend()
changed = {key for key, value in matplotlib.rcParams.items() if value != before[key]}
assert not changed, changed
"""

TABLE = """structure,pick,pick_score,map_x,map_y,variance,forces_uncertainty
0,1,0.5,0.1,0.2,0.5,0.1
1,0,nan,0.3,0.1,0.2,0.2
2,2,0.3,0.5,0.4,0.4,0.3
"""


def test_matplotlib_stays_as_the_user_left_it(run_folder, tmp_path):
    (tmp_path / "table.csv").write_text(TABLE)
    command = [sys.executable, "-c", CODE, str(run_folder), str(tmp_path / "table.csv")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr


def overlapping(axes):
    """Neighbouring tick labels that touch each other."""
    renderer = FigureCanvasAgg(axes.figure).get_renderer()
    found = []
    for axis, side in ((axes.xaxis, 0), (axes.yaxis, 1)):
        low, high = axis.get_view_interval()
        pairs = zip(axis.get_majorticklocs(), axis.get_ticklabels(), strict=True)
        shown = [label for tick, label in pairs if low <= tick <= high]
        boxes = [label.get_window_extent(renderer) for label in shown if label.get_text()]
        edges = sorted((box.x0, box.x1) if side == 0 else (box.y0, box.y1) for box in boxes)
        found += [pair for pair in pairwise(edges) if pair[0][1] > pair[1][0]]
    return found


@pytest.mark.parametrize("low", [3e-7, 0.012, 0.95, 330.0, 12_345.0])
@pytest.mark.parametrize("ratio", [1.01, 1.3, 3.0, 25.0, 1e3, 1e9])
def test_ticks_are_few_round_and_apart(low, ratio):
    ticks = log_ticks(low, low * ratio)
    assert 2 <= len(ticks) <= 6
    assert all(low <= tick <= low * ratio for tick in ticks)
    figure = Figure(figsize=(2.7, 2.8), layout="constrained")
    axes = figure.subplots()
    axes.set(xscale="log", yscale="log", xlim=(low, low * ratio), ylim=(low, low * ratio))
    plain_log_ticks(axes.xaxis, axes.yaxis)
    figure.draw_without_rendering()
    assert ratio < 1.1 or not overlapping(axes)  # six digits have to be there


def test_no_point_is_cut_off():
    """Also where the error vanishes by symmetry, as in perfect crystals."""
    rng = np.random.default_rng(0)
    sigma = 0.3 * (1 + 0.01 * rng.random(60))
    error = np.where(np.arange(60) < 13, 1e-9 * rng.random(60), rng.gamma(5.0, 0.05, 60))
    limits = error_limits([sigma], [error])
    axes = Figure().subplots()
    below = scatter_errors(axes, sigma, error, limits, 9)
    axes.set(yscale="log", ylim=limits)
    drawn = np.concatenate([points.get_offsets()[:, 1] for points in axes.collections])
    assert below == 13
    assert len(drawn) == 60
    assert drawn.min() > limits[0]
    assert drawn.max() < limits[1]
    assert limits[1] / limits[0] < 200


def test_bins_without_errors_are_drawn_too():
    """A round whose hold-out structures are mostly perfect crystals."""
    sigma, error = np.linspace(10, 20, 24), np.where(np.arange(24) < 16, 1e-9, 12.0)
    limits, axes = error_limits([sigma], [error]), Figure().subplots()
    _reliability(axes, sigma, error, limits)
    heights = [float(y) for line in axes.lines for y in np.atleast_1d(line.get_ydata()) if line.get_marker() in "ov"]
    assert len(heights) == 3
    assert min(heights) > limits[0]


@pytest.mark.parametrize("picks", [1, 2, 4, 30])
def test_picks_are_whole_numbers(picks):
    axes = Figure().subplots()
    numbers = np.arange(40.0)
    pick = np.where(numbers < picks, numbers + 1, 0)
    figures.picks_panel(axes, {"pick": pick, "variance": 1e-7 / (1 + numbers), "pick_score": 1e-7 / (1 + numbers)})
    low, high = axes.get_xlim()
    ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
    assert ticks
    assert all(tick == round(tick) for tick in ticks)


@pytest.mark.parametrize("parts", [("forces", "energy"), ("forces",), ("energy",), ()])
def test_a_figure_of_what_is_known(parts, tmp_path):
    """With undefined correlations, constant uncertainties and crystals without forces."""
    rng, count = np.random.default_rng(0), 40
    columns = {"frame": np.arange(count), "atoms": np.full(count, 8), "force_score": np.ones(count)}
    blank = [None] * count
    columns |= {"forces_uncertainty": np.full(count, 0.3), "force_error": np.where(np.arange(count) < 9, 0.0, 0.2)}
    columns |= {"energy_uncertainty": rng.random(count) + 1, "energy_error": rng.normal(size=count)}
    columns["energy_error_without_offset"] = columns["energy_error"] - 0.1
    for kind, prefix in (("forces", "force"), ("energy", "energy")):
        if kind not in parts:
            columns |= {name: blank for name in columns if name.startswith(prefix)}
    write_table(tmp_path / "evaluation.csv", {"structure": ["x"] * count, **columns})
    quality = {"spearman": None, "aurc_n": None, "ence": 0.1, "ence_floor": 0.1}
    summary = {"method": "ntk", "energy": quality | {"power": 1.0} if "energy" in parts else None}
    summary |= quality if "forces" in parts else {}
    (tmp_path / "evaluation.json").write_text(json.dumps(summary))
    assert figures.draw_evaluation(tmp_path).stat().st_size > 1000
