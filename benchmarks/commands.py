"""The benchmarks by name; what one of them needs is imported when it runs."""

import importlib
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from adaptntk.progress import Show
from adaptntk.verbs.settings import Settings, Verb
from benchmarks import settings as asked


@dataclass(frozen=True)
class Printed:
    """What is shown in the end."""

    text: str

    def lines(self) -> Iterable[str]:
        yield self.text


def command(name: str, settings: type[Settings], module: str) -> Verb[Any, Printed]:
    """A benchmark is a module with a function ``run``: settings in, files and a text out."""

    def function(given: Any, show: Show) -> Printed:
        return Printed(importlib.import_module(f"benchmarks.{module}").run(given))

    function.__name__, function.__doc__ = name, inspect.getdoc(settings)
    return Verb(settings, function)


COMMANDS = (
    command("uq", asked.Uncertainty, "uq.run"),
    command("growth", asked.Growth, "uq.growth"),
    command("al", asked.LearningCurves, "al.run"),
    command("sketch", asked.SketchDimension, "al.sketch"),
    command("timing", asked.RoundTiming, "al.timing"),
    command("campaign", asked.Campaigns, "campaigns"),
    command("features", asked.Features, "cost.features"),
    command("selection", asked.Selection, "cost.selection"),
    command("scores", asked.Scores, "cost.scores"),
    command("step", asked.Step, "cost.step"),
    command("training", asked.Training, "training.run"),
    command("starts", asked.Starts, "starts"),
    command("monitor", asked.MonitorStudy, "monitor.run"),
    command("aspirin", asked.Aspirin, "aspirin"),
    command("ablation", asked.Ablation, "uq.ablation"),
    command("other-data", asked.OtherData, "uq.other_data"),
    command("batches", asked.Batches, "al.batches"),
    command("reactions", asked.ReactionPaths, "reactions.command"),
    command("kills", asked.Kills, "kills.run"),
    command("fuzz", asked.Fuzz, "fuzz.run"),
)
