"""What a campaign is: every field with its type, default and meaning in one place."""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
)

from adaptntk.campaign.fields import Count, File, Number, Section, Temperature, folder_name
from adaptntk.data.labels import parse_energies
from adaptntk.data.xtb_md import build_molecule
from adaptntk.errors import require
from adaptntk.files import shortened
from adaptntk.labelers.labeler import LabelerSpec
from adaptntk.labelers.registry import LABELERS, check_kind
from adaptntk.models.sizes import SIZES

if TYPE_CHECKING:
    from adaptntk.md.dynamics import MDSettings
    from adaptntk.md.watch import Watch
    from adaptntk.training.recipe import Recipe
    from adaptntk.uncertainty.feature_method import NTKOptions

# Names and numbers of rooms that need torch, which takes longer to import than a configuration to check; a test
# compares them with the registries.
SELECTOR_NAMES = (
    "adaptntk", "adaptntk+forces", "topb", "lcmd", "adaptntk+lcmd", "maxdist", "kmeans++", "bait", "bait+forces",
    "random",
)  # fmt: skip
PRESET_NAMES = ("fast", "standard", "paper", "small", "tiny")
FEWEST_VALID = 10

# What may be changed when a campaign is resumed: how far it goes and where it runs, not what it does.
CHANGEABLE = ("stop", "execution", "label.time_limit", "label.attempts", "label.pause_after", "label.folder")
MANY = 1_000_000


class Start(Section):
    """What the campaign begins with: at least one of structures, molecule and labelled."""

    structures: File | None = Field(None, description="File of structures from which simulations start.")
    molecule: str | None = Field(None, description="Instead: a molecule by name, such as ethanol.")
    labelled: File | None = Field(None, description="File of structures that are labelled already; they cost nothing.")
    energy_key: str = Field("REF_energy", description="Where the labelled file has its energies.")
    forces_key: str = Field("REF_forces", description="Where the labelled file has its forces.")
    stress_key: str = Field("REF_stress", description="Where it has stress, which structures may lack.")
    model: File | None = Field(None, description="A trained MACE model to begin with, such as a foundation model.")
    head: str | None = Field(None, description="Which head of that model, where it has several.")
    sampling: Literal["displacement", "normal_modes"] = Field(
        "displacement", description="How structures for the first labels are made from those given."
    )
    displacement: Number = Field(0.05, gt=0, le=2, description="Standard deviation of a random displacement, Å.")
    temperature: Temperature = Field(500.0, description="Temperature of normal-mode sampling (modes of GFN2-xTB), K.")

    def check(self) -> None:
        given = {name for name in ("structures", "molecule", "labelled") if getattr(self, name) is not None}
        require(bool(given), "give structures, a molecule or a labelled file to start from")
        require(not given >= {"structures", "molecule"}, "give structures or a molecule, not both")
        require(self.head is None or self.model is not None, "a head is one of a model: give model, or leave out head")
        if self.molecule is not None:
            build_molecule(self.molecule)


class Labels(Section):
    """How many labels, and for what."""

    @property
    def total(self) -> int:
        return sum(self.model_dump().values())


class FirstLabels(Labels):
    """Labels before the first model, all drawn at random."""

    train: Count = Field(40, ge=2, le=MANY, description="To learn from.")
    valid: Count = Field(20, ge=FEWEST_VALID, le=MANY, description="To end the training and to calibrate.")
    holdout: Count = Field(20, ge=2, le=MANY, description="To measure the error, never learnt from.")


class RoundLabels(Labels):
    """Labels in each later round."""

    train: Count = Field(20, ge=1, le=MANY, description="To learn from, chosen by the selection.")
    valid: Count = Field(5, ge=0, le=MANY, description="To end the training and to calibrate, drawn at random.")
    holdout: Count = Field(5, ge=0, le=MANY, description="To measure the error, drawn at random, never learnt from.")


class Explore(Section):
    """How candidates are found: molecular dynamics with the current model, watched by a monitor."""

    temperatures: list[Temperature] = Field(
        [300.0, 600.0], min_length=1, max_length=100, description="K; one or more runs at each."
    )
    trajectories: Count = Field(2, ge=1, le=10_000, description="Runs per starting structure and temperature.")
    starts: Count = Field(
        4, ge=1, le=10_000, description="At most so many starting structures a round, drawn at random."
    )
    steps: Count = Field(1000, ge=1, le=10**9, description="Length of a run, if nothing stops it.")
    timestep: Number = Field(0.5, gt=0, le=10, description="fs; 0.5 with hydrogen, 1 to 2 without.")
    friction: Number = Field(0.02, gt=0, le=10, description="Of the Langevin thermostat, 1/fs.")
    interval: Count = Field(10, ge=1, description="Steps between frames that are scored and kept.")
    coverage: Number = Field(
        0.95, gt=0, lt=1, description="A frame alarms if its score exceeds those of this share of validation frames."
    )
    max_error: Number | None = Field(None, gt=0, description="A frame alarms if its error bound exceeds this, eV/Å.")
    patience: Count = Field(5, ge=1, description="Alarms after which a run is stopped.")
    lost: Number = Field(
        2.0, ge=1, description="A score beyond this multiple of the alarm ends the run at once, and is no candidate."
    )
    above: Number = Field(
        0.5, ge=0, lt=1, description="Candidates are frames with a score above this share of the validation frames."
    )
    min_distance: Number = Field(
        0.05, ge=0, le=10, description="Frames whose atoms moved less than this from one taken before are dropped, Å."
    )
    pool: File | None = Field(None, description="Instead of dynamics: a file of candidates.")

    def check(self) -> None:
        holds = self.interval <= self.steps
        require(holds, f"an interval of {self.interval} keeps no frame of a run of {self.steps} steps")

    @property
    def watch(self) -> "Watch":
        """What ends a simulation; models of early rounds may keep the level of errors nowhere."""
        from adaptntk.md.watch import Watch

        return Watch(self.coverage, self.max_error, self.patience, self.lost, above=self.above, early=True)

    def dynamics(self, temperature: float) -> "MDSettings":
        from adaptntk.md.dynamics import MDSettings

        return MDSettings(temperature, self.steps, self.timestep, self.friction, self.interval)


class Select(Section):
    """How a batch is chosen from the candidates."""

    method: str = Field("adaptntk", description="The rule.", examples=list(SELECTOR_NAMES))

    def check(self) -> None:
        if self.method not in SELECTOR_NAMES:
            from adaptntk.core.selection.registry import check_selector

            check_selector(self.method)


class Label(Section):
    """Who computes energies and forces."""

    kind: Annotated[str, AfterValidator(check_kind)] = Field(
        "tblite", description="The labeler, or a class of yours as package.module.Name.", examples=list(LABELERS)
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="Its keyword arguments.")
    time_limit: Number = Field(3600.0, gt=0, description="Seconds after which a calculation is ended.")
    attempts: Count = Field(2, ge=1, le=100, description="How often a structure is tried that fails.")
    closest: Number = Field(
        0.5, ge=0, description="Atoms nearer than this fraction of their covalent radii are not calculated."
    )
    largest_force: Number = Field(100.0, gt=0, description="A label with a larger force is not believed, eV/Å.")
    pause_after: Count = Field(
        10,
        ge=1,
        description="Failures in a row after which the campaign pauses (3 before the first label).",
    )
    folder: File = Field(
        Path("."),
        validate_default=True,
        description="Where its programs and modules are, from the folder of this file.",
    )

    def check(self) -> None:
        complete = self.kind != "dataset" or isinstance(self.settings.get("file"), str)
        require(complete, "the labeler dataset needs settings: {file: labelled.xyz}")

    @property
    def spec(self) -> LabelerSpec:
        limits = self.time_limit, self.attempts, self.closest, self.largest_force
        return LabelerSpec(self.kind, self.settings, *limits, folder=str(self.folder))


class Train(Section):
    """How the network is trained in each round."""

    preset: str = Field(
        "standard", description="Size of the network and how it is trained.", examples=list(PRESET_NAMES)
    )
    mode: Literal["scratch", "fine-tune"] = Field(
        "scratch", description="Begin with random weights, or with the model of the round before."
    )
    steps: Count | None = Field(None, ge=1, le=10**8, description="Optimisation steps, at most; as in the preset ...")
    epochs: Count | None = Field(None, ge=1, le=10**6, description="... when neither is given: passes over the labels.")
    batch_size: Count | None = Field(None, ge=1, description="As in the preset when not given.")
    learning_rate: Number | None = Field(None, gt=0, le=10, description="As in the preset when not given.")
    channels: Count | None = Field(None, ge=1, le=1024, description=SIZES["channels"])
    max_ell: Count | None = Field(None, ge=0, le=6, description=SIZES["max_ell"])
    hidden_ell: Count | None = Field(None, ge=0, le=6, description=SIZES["hidden_ell"])
    correlation: Count | None = Field(None, ge=1, le=4, description=SIZES["correlation"])
    interactions: Count | None = Field(None, ge=1, le=10, description=SIZES["interactions"])
    cutoff: Number | None = Field(None, gt=0, le=20, description=SIZES["cutoff"])
    dtype: Literal["float32", "float64"] | None = Field(
        None, description="Precision of the network; where not given that of the one it begins with, else float32."
    )
    e0s: dict[str | int, Number] | Literal["average", "mean"] | None = Field(
        None, description="Energies of isolated atoms by element, eV; or average (least squares), or mean (per atom)."
    )
    extensions: Count = Field(
        1, ge=0, le=10, description="How often steps are doubled while they still pay, before labels are bought."
    )

    @property
    def sizes(self) -> dict[str, float]:
        """Of the network, as far as they are not the preset's."""
        return self.model_dump(include=set(SIZES), exclude_none=True)

    @property
    def recipe(self) -> "Recipe":
        from adaptntk.models.family import resized
        from adaptntk.training.recipe import find_preset
        from adaptntk.training.reference import counting_from

        given = self.model_dump(include={"batch_size", "learning_rate"}, exclude_none=True)
        recipe = replace(find_preset(self.preset, self.epochs, self.steps), **given)
        if recipe.schedule == "settle":  # the others have a length that cannot change once they have begun
            recipe = replace(recipe, extensions=self.extensions)
        recipe = recipe if self.e0s is None else counting_from(recipe, self.e0s, "train.e0s")
        return replace(recipe, architecture=resized(recipe.architecture, self.sizes))

    @property
    def later_recipe(self) -> "Recipe":
        """Of rounds that go on from the model before; what is chosen here stays."""
        return self.recipe.restarted(self.learning_rate is None, self.steps is None and self.epochs is None)

    def check(self) -> None:
        require(self.steps is None or self.epochs is None, "give steps or epochs, not both")
        if isinstance(self.e0s, dict):
            parse_energies(self.e0s, "e0s")
        known = self.preset in PRESET_NAMES
        require(known, f"unknown preset {shortened(self.preset)!r}: choose one of {', '.join(PRESET_NAMES)}")


class Uncertainty(Section):
    """The features, the ridge and the committee."""

    features: Literal["energy", "joint"] = Field(
        "joint", description="What a label teaches: energy and forces, or its energy alone (the paper)."
    )
    force_rows: Count | None = Field(
        None, ge=1, le=1000, description="Of joint features: force directions of a label; 16 up to 1,000 labels."
    )
    strain_rows: Count = Field(
        0, ge=0, le=1000, description="Of joint features: strains of the cell of a label, for models that learn stress."
    )
    committee: Count | None = Field(
        None,
        ge=0,
        le=1000,
        description="Directions drawn from the posterior, for forces and atoms; 16, or 0 (none) with energy features.",
    )
    sketch: Literal["auto", "gaussian", "srht", "sparse", "none"] = Field(
        "auto",
        description="How gradients are projected, none for exact scores; sparse, or gaussian for energy features.",
    )
    sketch_dim: Count | None = Field(
        None, ge=1, le=10**6, description="Dimensions of the sketch; by the labels, or 512 for energy features."
    )
    alpha: Number | None = Field(
        None,
        gt=0,
        description="The relative ridge; 1e-8, or with energy features 1e-4, which the validation set may move.",
    )

    @property
    def options(self) -> "NTKOptions":
        """Of the method ntk."""
        from adaptntk.uncertainty.feature_method import NTKOptions

        return NTKOptions(**self.model_dump(exclude={"sketch_dim"}), dim=self.sketch_dim)

    def identity(self) -> dict[str, Any]:
        """What it comes to: runs of before wrote down numbers where nothing is said now."""
        from adaptntk.core.ridge import PRIOR_ALPHA

        # Nor of strain rows, where there are none.
        content = self.model_dump(mode="json", exclude=set() if self.strain_rows else {"strain_rows"})
        if self.features == "energy":
            content |= {"sketch": content["sketch"].replace("auto", "gaussian"), "sketch_dim": self.sketch_dim or 512}
            content |= {"alpha": self.alpha or PRIOR_ALPHA, "committee": self.committee or 0, "force_rows": None}
        return content


class Stop(Section):
    """When the campaign ends: as soon as one of these says so."""

    force_rmse: Number | None = Field(None, gt=0, description="Target: hold-out force RMSE below this, eV/Å, ...")
    confidence: Number = Field(0.95, gt=0.5, lt=1, description="... with this confidence.")
    information: Number | None = Field(
        None, gt=0, description="Mean of log(1 + U/lam) over the picks of a round below this."
    )
    labels: Count | None = Field(None, ge=1, description="Budget: so many labels in all, those given not counted.")
    rounds: Count = Field(5, ge=1, le=10_000, description="So many rounds after the first model.")


class Execution(Section):
    """Where the work runs; the results do not depend on it."""

    executor: Literal["serial", "local", "dask"] = Field("local", description="This process, several, or Dask.")
    workers: Count | None = Field(None, ge=1, le=10_000, description="As many as there are cores when not given.")
    scheduler: str | None = Field(None, description="Address of a Dask scheduler; a local cluster when not given.")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, ...")


class Campaign(Section):
    """A campaign. Paths are relative to the file that holds this configuration."""

    name: Annotated[str, AfterValidator(folder_name)] = Field(
        ..., min_length=1, description="What the reports call it; a folder is named after it."
    )
    output: File | None = Field(None, description="The run directory; runs/NAME when not given.")
    seed: Count = Field(0, ge=0, lt=2**63, description="Fixes everything that is random.")
    threads: Count = Field(
        1, ge=1, le=1024, description="Of each worker; another number changes the last digits of results."
    )
    test: File | None = Field(
        None, description="Labelled structures on which every model is evaluated as well; never learnt from."
    )
    start: Start
    first: FirstLabels = Field(default_factory=FirstLabels)
    round: RoundLabels = Field(default_factory=RoundLabels)
    explore: Explore = Field(default_factory=Explore)
    select: Select = Field(default_factory=Select)
    label: Label = Field(default_factory=Label)
    train: Train = Field(default_factory=Train)
    uncertainty: Uncertainty = Field(default_factory=Uncertainty)
    stop: Stop = Field(default_factory=Stop)
    execution: Execution = Field(default_factory=Execution)

    def check(self) -> None:
        valid, coverage = self.first.valid, self.explore.coverage
        most, needed = valid / (valid + 1), math.ceil(coverage / (1 - coverage))
        message = f"explore.coverage {coverage:g} needs first.valid of at least {needed}; "
        require(coverage <= most, f"{message}{valid} validation structures can state {most:.3f} at most")
        rows = self.uncertainty.features == "joint" or not self.select.method.endswith("+forces")
        require(rows, f"select.method {self.select.method} needs rows of forces: uncertainty.features must be joint")
        built = self.train.mode == "scratch" or self.start.model is None
        sizes = ", ".join(f"train.{name}" for name in self.train.sizes)
        require(built or not sizes, f"{sizes}: fine-tuning keeps the network of start.model as it is; leave them out")

    def identity(self) -> dict[str, Any]:
        """What the results depend on."""
        content = self.model_dump(mode="json", exclude={"output"})
        for section, _, field in (name.partition(".") for name in CHANGEABLE):
            (content[section] if field else content).pop(field or section)
        content["uncertainty"] = self.uncertainty.identity()
        content["train"]["dtype"] = self.train.dtype or "float32"
        return content

    def head(self, number: int) -> str | None:
        """In which the model of a round is used: that of the start model, and of what is trained from it."""
        return self.start.head if number == 0 or self.train.mode == "fine-tune" else None

    def input_files(self) -> dict[str, Path]:
        """Files that the campaign reads, by the field that names them."""
        found = {
            "start.structures": self.start.structures,
            "start.labelled": self.start.labelled,
            "start.model": self.start.model,
            "explore.pool": self.explore.pool,
            "test": self.test,
            "label.settings.file": Path(self.label.settings["file"]) if self.label.kind == "dataset" else None,
        }
        return {field: path for field, path in found.items() if path is not None}


@dataclass(frozen=True)
class Overrides:
    """What is said when a campaign is started, instead of what its file says; None where the file is right."""

    executor: str | None = None
    workers: Count | None = None
    scheduler: str | None = None
    device: str | None = None
    output: str | Path | None = None

    def applied_to(self, config: Campaign) -> Campaign:
        given = {name: value for name, value in asdict(self).items() if value is not None}
        output = Path(given.pop("output")).absolute() if "output" in given else config.output
        return config.model_copy(update={"execution": config.execution.model_copy(update=given), "output": output})
