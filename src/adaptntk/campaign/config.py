"""What a campaign is: every field with its type, default and meaning in one place."""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, model_validator

from adaptntk.core.calibration import MINIMUM_STRUCTURES
from adaptntk.core.ridge import PRIOR_ALPHA
from adaptntk.core.selection.registry import SELECTORS, check_selector
from adaptntk.core.sketch.registry import make_sketch
from adaptntk.data.extxyz import check_readable
from adaptntk.data.xtb_md import build_molecule
from adaptntk.errors import InputError, require
from adaptntk.files import shortened
from adaptntk.labelers.labeler import LabelerSpec
from adaptntk.labelers.registry import LABELERS, check_kind
from adaptntk.md.dynamics import MDSettings
from adaptntk.md.watch import Watch
from adaptntk.training.recipe import PRESETS, Recipe, find_preset

# What may be changed when a campaign is resumed: how far it goes and where it runs, not what it does.
CHANGEABLE = ("stop", "execution", "label.time_limit", "label.attempts", "label.pause_after", "label.folder")
LONGEST_NAME = 100  # bytes
MOST_ENTRIES = 10_000


def _absolute(path: Path, info: ValidationInfo) -> Path:
    """As it is seen from anywhere, where the folder of the configuration is known."""
    return (info.context or Path()) / path


File = Annotated[Path, AfterValidator(_absolute)]


def _folder_name(name: str) -> str:
    """Refuse what would lead out of ``runs/``, or name a folder that nobody can see, type or trust."""
    why = {
        "is too long": len(name.encode(errors="replace")) > LONGEST_NAME,
        "holds a separator of folders": any(sign in name for sign in "/\\"),
        "holds a character that cannot be seen": not name.isprintable(),
        "begins with a dot or a dash, or begins or ends with a space": name[:1] in ".-" or name != name.strip(),
    }
    for fault, found in why.items():
        require(not found, f"{shortened(repr(name))} {fault}; a folder is named after it: use letters, digits, - and _")
    return name


class Section(BaseModel):
    """A part of the configuration: unknown fields are refused, nothing is changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="after")
    def _checked(self) -> Self:
        self.check()
        return self

    def check(self) -> None:
        """Refuse fields that cannot be used, or not together."""


class Start(Section):
    """What the campaign begins with: at least one of structures, molecule and labelled."""

    structures: File | None = Field(None, description="File of structures from which simulations start.")
    molecule: str | None = Field(None, description="Instead: a molecule by name, such as ethanol.")
    labelled: File | None = Field(None, description="File of structures that are labelled already; they cost nothing.")
    energy_key: str = Field("REF_energy", description="Where the labelled file has its energies.")
    forces_key: str = Field("REF_forces", description="Where the labelled file has its forces.")
    model: File | None = Field(None, description="A trained MACE model to begin with, such as a foundation model.")
    sampling: Literal["displacement", "normal_modes"] = Field(
        "displacement", description="How structures for the first labels are made from those given."
    )
    displacement: float = Field(0.05, gt=0, description="Standard deviation of a random displacement, Å.")
    temperature: float = Field(500.0, gt=0, description="Temperature of normal-mode sampling (modes of GFN2-xTB), K.")

    def check(self) -> None:
        given = {name for name in ("structures", "molecule", "labelled") if getattr(self, name) is not None}
        require(bool(given), "give structures, a molecule or a labelled file to start from")
        require(not given >= {"structures", "molecule"}, "give structures or a molecule, not both")
        if self.molecule is not None:
            build_molecule(self.molecule)


class Labels(Section):
    """How many labels, and for what."""

    @property
    def total(self) -> int:
        return sum(self.model_dump().values())


class FirstLabels(Labels):
    """Labels before the first model, all drawn at random."""

    train: int = Field(40, ge=2, description="To learn from.")
    valid: int = Field(20, ge=MINIMUM_STRUCTURES, description="To choose the epoch and to calibrate.")
    holdout: int = Field(20, ge=2, description="To measure the error, never learnt from.")


class RoundLabels(Labels):
    """Labels in each later round."""

    train: int = Field(20, ge=1, description="To learn from, chosen by the selection.")
    valid: int = Field(5, ge=0, description="To choose the epoch and to calibrate, drawn at random.")
    holdout: int = Field(5, ge=0, description="To measure the error, drawn at random, never learnt from.")


class Explore(Section):
    """How candidates are found: molecular dynamics with the current model, watched by a monitor."""

    temperatures: list[float] = Field([300.0, 600.0], min_length=1, description="K; one or more runs at each.")
    trajectories: int = Field(2, ge=1, description="Runs per starting structure and temperature.")
    starts: int = Field(4, ge=1, description="At most so many starting structures per round, drawn at random.")
    steps: int = Field(1000, ge=1, description="Length of a run, if nothing stops it.")
    timestep: float = Field(0.5, gt=0, description="fs.")
    friction: float = Field(0.02, gt=0, description="Of the Langevin thermostat, 1/fs.")
    interval: int = Field(10, ge=1, description="Steps between frames that are scored and kept.")
    coverage: float = Field(
        0.95, gt=0, lt=1, description="A frame alarms if its score exceeds those of this share of validation frames."
    )
    max_error: float | None = Field(None, gt=0, description="A frame alarms if its error bound exceeds this, eV/Å.")
    patience: int = Field(5, ge=1, description="Alarms after which a run is stopped.")
    lost: float = Field(
        2.0, ge=1, description="A score beyond this multiple of the alarm ends the run at once, and is no candidate."
    )
    above: float = Field(
        0.5, ge=0, lt=1, description="Candidates are frames with a score above this share of the validation frames."
    )
    min_distance: float = Field(
        0.05, ge=0, description="Frames whose atoms moved less than this from one taken before are dropped, Å."
    )
    pool: File | None = Field(None, description="Instead of dynamics: a file of candidates.")

    @property
    def watch(self) -> Watch:
        """What ends a simulation; models of early rounds may keep the level of errors nowhere."""
        return Watch(self.coverage, self.max_error, self.patience, self.lost, above=self.above, early=True)

    def dynamics(self, temperature: float) -> MDSettings:
        return MDSettings(temperature, self.steps, self.timestep, self.friction, self.interval)


class Select(Section):
    """How a batch is chosen from the candidates."""

    method: str = Field("adaptntk", description=f"One of {', '.join(SELECTORS)}.")

    def check(self) -> None:
        check_selector(self.method)


class Label(Section):
    """Who computes energies and forces."""

    kind: Annotated[str, AfterValidator(check_kind)] = Field(
        "tblite", description=f"{', '.join(LABELERS)}, or a class of yours as package.module.Name."
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="Its keyword arguments.")
    time_limit: float = Field(3600.0, gt=0, description="Seconds after which a calculation is ended.")
    attempts: int = Field(2, ge=1, description="How often a structure is tried that fails.")
    closest: float = Field(
        0.5, ge=0, description="Atoms nearer than this fraction of their covalent radii are not calculated."
    )
    largest_force: float = Field(100.0, gt=0, description="A label with a larger force is not believed, eV/Å.")
    pause_after: int = Field(
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
        complete = self.kind != "dataset" or "file" in self.settings
        require(complete, "the labeler dataset needs settings: {file: labelled.xyz}")

    @property
    def spec(self) -> LabelerSpec:
        limits = self.time_limit, self.attempts, self.closest, self.largest_force
        return LabelerSpec(self.kind, self.settings, *limits, folder=str(self.folder))


class Train(Section):
    """How the network is trained in each round."""

    preset: str = Field("small", description=f"One of {', '.join(PRESETS)}.")
    mode: Literal["scratch", "fine-tune"] = Field(
        "scratch", description="Begin with random weights, or with the model of the round before."
    )
    epochs: int | None = Field(None, ge=1, description="As in the preset when not given.")
    batch_size: int | None = Field(None, ge=1, description="As in the preset when not given.")
    learning_rate: float | None = Field(None, gt=0, description="As in the preset when not given.")
    dtype: Literal["float32", "float64"] = Field("float32", description="Precision of the network.")

    @property
    def recipe(self) -> Recipe:
        given = self.model_dump(include={"epochs", "batch_size", "learning_rate"}, exclude_none=True)
        return replace(find_preset(self.preset), **given)

    def check(self) -> None:
        require(self.preset in PRESETS, f"unknown preset {self.preset!r}: choose one of {', '.join(PRESETS)}")


class Uncertainty(Section):
    """The features and the ridge."""

    sketch: str = Field("gaussian", description="gaussian, srht, sparse, or none for exact scores.")
    sketch_dim: int = Field(512, ge=1, description="Dimensions of the sketch.")
    alpha: float | None = Field(
        None, gt=0, description="The relative ridge; where not given 1e-4, which the validation set may move."
    )

    def check(self) -> None:
        make_sketch(self.sketch, self.sketch_dim, 0)


class Stop(Section):
    """When the campaign ends: as soon as one of these says so."""

    force_rmse: float | None = Field(None, gt=0, description="Target: hold-out force RMSE below this, eV/Å, ...")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="... with this confidence.")
    information: float | None = Field(
        None, gt=0, description="Mean of log(1 + U/lam) over the picks of a round below this."
    )
    labels: int | None = Field(None, ge=1, description="Budget: so many labels in all, those given not counted.")
    rounds: int = Field(5, ge=1, description="So many rounds after the first model.")


class Execution(Section):
    """Where the work runs; the results do not depend on it."""

    executor: Literal["serial", "local", "dask"] = Field("local", description="This process, several, or Dask.")
    workers: int | None = Field(None, ge=1, description="As many as there are cores when not given.")
    scheduler: str | None = Field(None, description="Address of a Dask scheduler; a local cluster when not given.")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, ...")


class Campaign(Section):
    """A campaign. Paths are relative to the file that holds this configuration."""

    name: Annotated[str, AfterValidator(_folder_name)] = Field(
        ..., min_length=1, description="What the reports call it; a folder is named after it."
    )
    output: File | None = Field(None, description="The run directory; runs/NAME when not given.")
    seed: int = Field(0, ge=0, description="Fixes everything that is random.")
    threads: int = Field(1, ge=1, description="Of each worker; another number changes the last digits of results.")
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

    def identity(self) -> dict[str, Any]:
        """What the results depend on."""
        content = self.model_dump(mode="json", exclude={"output"})
        for section, _, field in (name.partition(".") for name in CHANGEABLE):
            (content[section] if field else content).pop(field or section)
        # Runs of before wrote the default down.
        content["uncertainty"]["alpha"] = self.uncertainty.alpha or PRIOR_ALPHA
        return content

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
    workers: int | None = None
    scheduler: str | None = None
    device: str | None = None
    output: str | Path | None = None

    def applied_to(self, config: Campaign) -> Campaign:
        given = {name: value for name, value in asdict(self).items() if value is not None}
        output = Path(given.pop("output")).absolute() if "output" in given else config.output
        return config.model_copy(update={"execution": config.execution.model_copy(update=given), "output": output})


def read_config(path: str | Path) -> Campaign:
    """Read and check a YAML file and the files that it names; everything that is wrong is said in one line."""
    path = Path(path)
    check_readable(path)
    try:
        content = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a YAML file ({' '.join(str(error).split())})") from None
    folder = path.absolute().parent
    config = check_content(content, path, folder)
    if config.label.kind == "dataset":
        config.label.settings["file"] = str(folder / config.label.settings["file"])
    for file in config.input_files().values():
        check_readable(file)
    return config.model_copy(update={"output": config.output or folder / "runs" / config.name})


def check_content(content: Any, path: Path, folder: Path | None = None) -> Campaign:
    """What a file says as a campaign, with paths seen from a folder; all that is wrong with it is told in one line."""
    require(isinstance(content, dict), f"{path}: holds no campaign; see adaptntk config template")
    fault = _unusable(content)
    require(fault is None, f"{path}: {fault}")
    try:
        return Campaign.model_validate(content, context=folder)
    except ValidationError as error:
        raise InputError(f"{path}: {'; '.join(_explain(item) for item in error.errors())}") from None


def _unusable(content: Any) -> str | None:
    """What no file of ours can say again, in free settings too: numbers that are not finite, YAML that holds itself."""
    todo = [("", content)]
    for _ in range(MOST_ENTRIES):
        if not todo:
            return None
        where, value = todo.pop()
        if isinstance(value, float) and not math.isfinite(value):
            return f"{where} is infinite or no number"
        named = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        todo += [(f"{where}.{key}".lstrip("."), part) for key, part in named]
    return f"holds more than {MOST_ENTRIES} entries, or an anchor that holds itself"


def _explain(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"]) or "campaign"
    said = {"extra_forbidden": "there is no such field", "missing": "is missing"}
    return f"{where}: {said.get(error['type']) or error['msg'].removeprefix('Value error, ')}"


def template() -> str:
    """A configuration with every field, its default and its meaning, ready to be edited."""
    lines = ["# A campaign of adaptntk: edit it, then run  adaptntk run campaign.yaml"]
    for name, field in Campaign.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            lines += ["", f"{name}:  # {(section.__doc__ or '').splitlines()[0]}"]
            fields = section.model_fields.items()
            lines += [f"  {_line(n, f.get_default(call_default_factory=True), f.description)}" for n, f in fields]
        else:
            value = {"name": "ethanol", "output": None, "test": None}.get(name, field.default)
            lines.append(_line(name, value, field.description))
    text = "\n".join(lines) + "\n"
    return text.replace("  molecule: null", "  molecule: ethanol")


def _line(name: str, value: Any, description: str | None) -> str:
    shown = (
        yaml.safe_dump(str(value) if isinstance(value, Path) else value, default_flow_style=True)
        .split("\n")[0]
        .removesuffix("...")
        .strip()
    )
    return f"{name}: {shown}  # {description}"


def schema() -> dict[str, Any]:
    """The JSON schema, for editors that complete and check YAML files."""
    return Campaign.model_json_schema()
