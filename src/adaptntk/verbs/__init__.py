"""The verbs of the command line as functions: files in, files out.

``verbs.score(ntk="a.ntk", structures="pool.xyz", output="scored.xyz")`` does what ``adaptntk score`` does; a verb takes
keywords, or its settings as one object, and returns a report. Heavy packages are imported when a verb is called.
"""

from adaptntk.verbs import config as config, data as data
from adaptntk.verbs.demo import DemoSettings as DemoSettings, demo as demo
from adaptntk.verbs.evaluate import EvaluateSettings as EvaluateSettings, evaluate as evaluate
from adaptntk.verbs.fit import FitSettings as FitSettings, fit as fit
from adaptntk.verbs.md import SimulationSettings as SimulationSettings, md as md
from adaptntk.verbs.report import ReportSettings as ReportSettings, report as report
from adaptntk.verbs.run import RunSettings as RunSettings, run as run
from adaptntk.verbs.score import ScoreSettings as ScoreSettings, score as score
from adaptntk.verbs.select import SelectSettings as SelectSettings, select as select
from adaptntk.verbs.shared import RunFolder as RunFolder
from adaptntk.verbs.status import status as status
from adaptntk.verbs.train import TrainSettings as TrainSettings, train as train
