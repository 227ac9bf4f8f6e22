"""Figures are drawn without touching what the user has set up in matplotlib."""

import subprocess
import sys

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
