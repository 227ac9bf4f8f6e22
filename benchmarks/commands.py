"""The benchmarks by name: the question each one answers. What they need is imported when they run."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from adaptntk.progress import Show
from adaptntk.verbs.settings import Verb, verb
from benchmarks import settings as asked


@dataclass(frozen=True)
class Printed:
    """What is shown in the end."""

    text: str

    def lines(self) -> Iterable[str]:
        yield self.text


@verb(asked.Uncertainty)
def uq(settings: asked.Uncertainty, show: Show) -> Printed:
    """All uncertainty methods side by side: ranking, retention and calibration. Goes on after an interruption."""
    from benchmarks.uq.run import run

    return Printed(run(settings))


@verb(asked.LearningCurves)
def al(settings: asked.LearningCurves, show: Show) -> Printed:
    """Learning curves: labels are hidden, bought in batches, and the model trained anew. Goes on where it was."""
    from benchmarks.al.run import run

    return Printed(run(settings))


@verb(asked.SketchDimension)
def sketch(settings: asked.SketchDimension, show: Show) -> Printed:
    """Learning curves of AdaptNTK with sketches of several dimensions, and how far their batches agree."""
    from benchmarks.al.sketch import run

    return Printed(run(settings))


@verb(asked.RoundTiming)
def timing(settings: asked.RoundTiming, show: Show) -> Printed:
    """One round of active learning with each method: training, uncertainty, selection, as ratios to AdaptNTK."""
    from benchmarks.al.timing import run

    return Printed(run(settings))


@verb(asked.Campaigns)
def campaign(settings: asked.Campaigns, show: Show) -> Printed:
    """Whole campaigns with labels from GFN2-xTB that differ in how they select: labels needed for the same error."""
    from benchmarks.campaigns import run

    return Printed(run(settings))


@verb(asked.Features)
def features(settings: asked.Features, show: Show) -> Printed:
    """Gradients and sketches: against one backward per structure, torch.func, TRAK and dattri."""
    from benchmarks.cost.features import run

    return Printed(run(settings, show.progress))


@verb(asked.Cost)
def selection(settings: asked.Cost, show: Show) -> Printed:
    """Batches from large pools: against recomputation and bmdal_reg; peak memory of a pool on disk."""
    from benchmarks.cost.selection import run

    return Printed(run(settings, show.progress))


@verb(asked.CostOnStructures)
def training(settings: asked.CostOnStructures, show: Show) -> Printed:
    """An epoch of adaptntk train against one of mace_run_train, same network, data and loss."""
    from benchmarks.cost.training import run

    return Printed(run(settings, show.progress))


@verb(asked.MonitorStudy)
def monitor(settings: asked.MonitorStudy, show: Show) -> Printed:
    """Does the monitor stop a simulation before the forces go wrong, and what does it cost? An hour on one core."""
    from benchmarks.monitor.run import run

    return Printed(run(settings))


@verb(asked.Aspirin)
def aspirin(settings: asked.Aspirin, show: Show) -> Printed:
    """Train, fit and evaluate on aspirin of the revised MD17 data set: what README.md shows."""
    from benchmarks.aspirin import run

    return Printed(run(settings))


@verb(asked.Ablation)
def ablation(settings: asked.Ablation, show: Show) -> Printed:
    """Why the NTK score is where it is: ridge, sketch, features, length of training. Reads networks of uq."""
    from benchmarks.uq.ablation import run

    return Printed(run(settings))


@verb(asked.OtherData)
def other_data(settings: asked.OtherData, show: Show) -> Printed:
    """Scores of single networks on acetylacetone, and on molecules with GFN2-xTB, also hotter than trained."""
    from benchmarks.uq.other_data import run

    return Printed(run(settings))


@verb(asked.Batches)
def batches(settings: asked.Batches, show: Show) -> Printed:
    """Where the first batches of al --data t1x come from, and how large the forces are. Reads what al left."""
    from benchmarks.al.batches import run

    return Printed(run(settings))


@verb(asked.ReactionPaths)
def reactions(settings: asked.ReactionPaths, show: Show) -> Printed:
    """Make reaction paths with GFN2-xTB, in the layout of Transition-1X: minutes, no download."""
    from benchmarks.reactions.command import run

    return Printed(run(settings))


COMMANDS: tuple[Verb[Any, Any], ...] = (
    uq, al, sketch, timing, campaign, features, selection, training,
    monitor, aspirin, ablation, other_data, batches, reactions,
)  # fmt: skip
