"""The verbs of the command line as functions: files in, files out.

``verbs.score(ntk="a.ntk", structures="pool.xyz", output="scored.xyz")`` does what ``adaptntk score`` does; a verb takes
keywords, or its settings as one object, and returns a report. Heavy packages are imported when a verb is called.
"""

from adaptntk.verbs import config, data
from adaptntk.verbs.demo import DemoSettings, demo
from adaptntk.verbs.evaluate import EvaluateSettings, evaluate
from adaptntk.verbs.fit import FitSettings, fit
from adaptntk.verbs.md import SimulationSettings, md
from adaptntk.verbs.report import ReportSettings, report
from adaptntk.verbs.run import RunSettings, run
from adaptntk.verbs.score import ScoreSettings, score
from adaptntk.verbs.select import SelectSettings, select
from adaptntk.verbs.shared import RunFolder
from adaptntk.verbs.status import status
from adaptntk.verbs.train import TrainSettings, train

__all__ = [
    "DemoSettings",
    "EvaluateSettings",
    "FitSettings",
    "ReportSettings",
    "RunFolder",
    "RunSettings",
    "ScoreSettings",
    "SelectSettings",
    "SimulationSettings",
    "TrainSettings",
    "config",
    "data",
    "demo",
    "evaluate",
    "fit",
    "md",
    "report",
    "run",
    "score",
    "select",
    "status",
    "train",
]
