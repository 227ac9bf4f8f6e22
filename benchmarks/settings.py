"""What can be asked of each benchmark, and what it answers; options that several have are written once."""

from pathlib import Path
from typing import Any

from adaptntk.verbs.settings import Settings, option
from adaptntk.verbs.shared import Device, LabelNames, Seed


def folder(default: str) -> Any:
    """Where results go."""
    return option("The folder to write to.", Path(default), short="-o")


class Cost(Settings):
    """Measured in one go."""

    output: Path = folder("benchmark")
    preset: str = option("full, or smoke for a test in seconds.", "full")


class CostOnStructures(Cost, LabelNames):
    """Measured on given structures."""

    structures: Path | None = option("Labelled structures of one composition.", None, default_text="made with xTB")


class Features(CostOnStructures, Device):
    """Gradients and sketches: against one backward per structure, torch.func, TRAK and dattri."""


class Selection(Cost):
    """Batches from large pools: against recomputation and bmdal_reg; peak memory of a pool on disk."""


class Scores(Cost):
    """What it costs to ask about a structure: the energy row, that of joint features, a committee."""


class Step(Cost):
    """A step of training, ours and that of MACE; and several networks as one computation."""


class Training(Cost):
    """Test error against time of training: our recipes, and beside mace_run_train. Goes on after an interruption."""

    output: Path = folder("benchmark-training")
    study: str = option("race (against mace_run_train) or recipes (variants of ours, in less time).", "race")
    data: str | None = option(
        "Names with commas between them.", None, default_text="ethanol,naphthalene,aspirin,silicon that are there"
    )
    entrants: str | None = option("Names with commas between them.", None, default_text="those of the study")
    seeds: int = option("How often, each time with other first weights.", 3, least=1)
    seconds: float | None = option("Length of each training.", None, default_text="by data set, see docs/benchmarks.md")
    jobs: int = option("How many run side by side, with one thread each.", 1, least=1)
    recorded: bool = option("Judge the trainings that are there, and make no others.", False, flag="--recorded")


class Starts(Settings):
    """Rounds from scratch or from the model of the round before: error and time. Goes on after an interruption."""

    output: Path = folder("benchmark-starts")
    preset: str = option("full (half an hour of one core), or smoke for a test in seconds.", "full")
    seeds: int = option("How often, each time with another order of the frames.", 3)
    jobs: int | None = option("How many run side by side.", 1)


class Experiment(Device):
    """Hours of work, which may be interrupted."""

    preset: str = option("cpu (small network, hours), paper (for a GPU) or smoke (a test in minutes).", "cpu")


class Repeated(Experiment):
    """With several seeds."""

    seeds: int = option("How often, each time with another split and other weights.", 3)
    jobs: int | None = option("How many run side by side.", None, default_text="one per core")


class OnData(Experiment, LabelNames):
    """On published data, or data made on the spot."""

    output: Path
    data: str | None = option(
        "rmd17, xtb (dynamics made on the spot), sets (six of several kinds) or a labelled extxyz file; where labels "
        "are bought, also t1x (Transition-1X, or reactions made on the spot where it is not) or an HDF5 file like it.",
        None,
        default_text="xtb for smoke, sets for converged, else rmd17",
    )
    molecules: str | None = option("Names with commas between them.", None, default_text="those of docs/benchmarks.md")
    data_dir: Path | None = option("Folder with published data sets.", None, default_text="ADAPTNTK_DATA")

    @property
    def source(self) -> str:
        """Data that are not given are made on the spot for a test, and the published set otherwise."""
        return self.data if self.data is not None else {"smoke": "xtb", "converged": "sets"}.get(self.preset, "rmd17")

    @property
    def keys(self) -> tuple[str, str]:
        """Names of the labels."""
        return self.energy_key, self.forces_key


class Uncertainty(OnData, Repeated):
    """All uncertainty methods side by side: ranking, retention and calibration. Goes on after an interruption."""

    output: Path = folder("benchmark-uq")
    preset: str = option(
        "cpu (small network, hours), converged (trained until labels are the limit, a day of one core), paper (for a "
        "GPU) or smoke (a test in minutes).",
        "cpu",
    )
    methods: str | None = option(
        "Names with commas between them, NAME:KEY=VALUE to set an option.", None, default_text="those of the preset"
    )
    error_model: bool = option("Add a row: the NTK score combined with cheap covariates.", False, flag="--error-model")
    seeds: int = option("How often, each time with another split and other weights.", 2)


class Growth(OnData, Repeated):
    """How the NTK score grows with force rows, members, dimensions, labels and width. Goes on after an interruption."""

    output: Path = folder("benchmark-uq")
    preset: str = option("converged, in the folder of benchmarks uq, or smoke for a test in minutes.", "converged")
    sized: str | None = option(
        "The data set whose labels and network are varied.", None, default_text="the first of all"
    )


class LearningCurves(OnData, Repeated):
    """Learning curves: labels are hidden, bought in batches, and the model trained anew. Goes on where it was."""

    output: Path = folder("benchmark-al")
    methods: str = option(
        "Names with commas between them: selectors (adaptntk, adaptntk+forces, topb, lcmd, adaptntk+lcmd, maxdist, "
        "kmeans++, bait, bait+forces, random; SELECTOR@256 for another sketch) and scores (qbc, mcd, swag, edl, llpr).",
        "adaptntk,topb,lcmd,bait,qbc,random",
    )


class SketchDimension(OnData, Repeated):
    """Learning curves of AdaptNTK with sketches of several dimensions, and how far their batches agree."""

    output: Path = folder("benchmark-sketch")
    dims: str | None = option(
        "Dimensions with commas between them, exact for full gradients (which fit nowhere with the preset paper).",
        None,
        default_text="128,256,512,1024,2048,exact",
    )


class RoundTiming(OnData):
    """One round of active learning with each method: training, uncertainty, selection, as ratios to AdaptNTK."""

    output: Path = folder("benchmark-timing")
    methods: str = option(
        "Names with commas between them, those of al.", "adaptntk,topb,lcmd,bait,qbc,mcd,swag,edl,llpr,random"
    )


class Campaigns(Repeated):
    """Whole campaigns with labels from GFN2-xTB that differ in how they select: labels for the same error."""

    output: Path = folder("benchmark-campaign")
    preset: str = option("cpu or smoke.", "cpu")
    molecule: str = option("Any molecule that adaptntk data md can build.", "ethanol")
    methods: str = option("Ways to select, with commas between them.", "adaptntk,random")


class MonitorStudy(Settings):
    """Does the monitor stop a simulation before the forces go wrong, and what does it cost? An hour on one core."""

    output: Path = folder("benchmark-monitor")
    recorded: bool = option("Judge the runs that are there, and make no others.", False, flag="--recorded")


class Aspirin(Settings):
    """Train, fit and evaluate on aspirin of the revised MD17 data set: what README.md shows."""

    output: Path = folder("benchmark-aspirin")


class Ablation(Seed):
    """Why the NTK score is where it is: ridge, sketch, features, length of training. Reads networks of uq."""

    output: Path = option("The folder of uq, with its networks.", Path("benchmark-uq"), short="-o")
    molecule: str = option("Of rmd17.", "aspirin")
    epochs: str = option("Other lengths of training, with commas between them.", "")


class OtherData(Settings):
    """Scores of single networks on acetylacetone, and on molecules with GFN2-xTB, also hotter than trained."""

    output: Path = folder("benchmark-other-data")


class Batches(Settings):
    """Where the first batches of al --data t1x come from, and how large the forces are. Reads what al left."""

    output: Path = option("The folder of al --data t1x.", Path("benchmark-al"), short="-o")


class ReactionPaths(Seed):
    """Make reaction paths with GFN2-xTB, in the layout of Transition-1X: minutes, no download."""

    output: Path = option("The HDF5 file to write.", Path("reactions.h5"), short="-o")
    only: str | None = option("Only reactions with one of these words in the name, commas between them.", None)
    jobs: int | None = option("How many run side by side.", None, default_text="one per core")


class Fuzz(Seed):
    """Malformed files and command lines from a seed, with what must come of each; ends with code 1 if one fails."""

    count: int = option("How many cases.", 1000)
    case: int | None = option("Only the case with this number.", None)
    keep: Path | None = option("Copy the files of every case to this folder, before it runs.", None)
    verbose: bool = option("Say what came of every case.", False)
    output: Path | None = option("Folder for a record of the counts.", None, short="-o")


class Kills(Seed):
    """Kill a small campaign at random moments and resume it: is anything lost, paid twice or different?"""

    output: Path = folder("benchmark-kills")
    count: int = option("How many kills.", 100, least=1)


def listed(text: str) -> list[str]:
    """The words between the commas."""
    return [word.strip() for word in text.split(",") if word.strip()]
