from . import testing, verbs
from .campaign.config import Overrides
from .campaign.loop import run_campaign
from .core.blocks import Blocks, TensorBlocks
from .core.calibration import Calibration, VarianceCalibration
from .core.posterior import DualPosterior, Posterior
from .core.selection.problem import Allowed, Constraints, Problem, Selection
from .core.selection.registry import SELECTORS, register_selector, select
from .core.sketch.gaussian import GaussianSketch, NoSketch
from .core.sketch.quality import SketchAdvice, effective_dimension, sketch_error
from .core.sketch.structured import SparseSignSketch, SRHTSketch
from .data.rmd17 import load_rmd17
from .data.splits import check_disjoint, split_structures
from .data.structure_file import open_structures
from .data.structures import read_structures, structure_hash, write_structures
from .data.xtb_md import build_molecule, sample_md
from .errors import AdaptNTKError, IndefiniteMatrixError, InputError, MismatchError, ModelError
from .features.energy_gradients import EnergyGradients
from .features.feature_map import FeatureMap
from .features.last_layer import LastLayerFeatures
from .labelers.labeler import Labeler, LabelError, LabelerSpec
from .labelers.registry import LABELERS, build_labeler
from .md.calculator import PotentialCalculator, UncertaintyCalculator
from .md.dynamics import MDSettings, SimulationResult, run_md, watch
from .md.exploration import MDJob, collect, displaced, fingerprint, normal_modes, plan_trajectories
from .md.monitor import Monitor, StopReason
from .md.physical_rules import PHYSICAL_RULES, FlyingAtoms, FusedAtoms, NotFinite, TemperatureLimit
from .md.rules import ConformalThreshold, ErrorLevel, Observation, RelativeThreshold, Rule, UncertaintyRule
from .md.watch import Watch
from .models.family import Architecture, EnergyReference, Family, Trainable
from .models.mace.potential import MACEPotential
from .models.protocol import Capabilities, Potential, Predictions, SinglePoint
from .models.registry import FAMILIES, load_potential, register_family
from .models.torch_module import TorchModulePotential
from .progress import Progress, silent
from .training.loop import Trained, TrainingOptions, train
from .training.recipe import PRESETS, Recipe
from .uncertainty.candidates import Candidates
from .uncertainty.evaluate import Evaluation, evaluate
from .uncertainty.file import load_fitted, read_header, save_fitted
from .uncertainty.fit import fit
from .uncertainty.fitted import Fitted
from .uncertainty.folder_workbench import FolderWorkbench
from .uncertainty.method import Assessment, Method, MethodState, ScoresOnly
from .uncertainty.registry import METHODS, register_method
from .uncertainty.scores import Scores
from .uncertainty.workbench import GivenModel, Workbench
from .version import __version__

__all__ = [
    "FAMILIES",
    "LABELERS",
    "METHODS",
    "PHYSICAL_RULES",
    "PRESETS",
    "SELECTORS",
    "AdaptNTKError",
    "Allowed",
    "Architecture",
    "Assessment",
    "Blocks",
    "Calibration",
    "Candidates",
    "Capabilities",
    "ConformalThreshold",
    "Constraints",
    "DualPosterior",
    "EnergyGradients",
    "EnergyReference",
    "ErrorLevel",
    "Evaluation",
    "Family",
    "FeatureMap",
    "Fitted",
    "FlyingAtoms",
    "FolderWorkbench",
    "FusedAtoms",
    "GaussianSketch",
    "GivenModel",
    "IndefiniteMatrixError",
    "InputError",
    "LabelError",
    "Labeler",
    "LabelerSpec",
    "LastLayerFeatures",
    "MACEPotential",
    "MDJob",
    "MDSettings",
    "Method",
    "MethodState",
    "MismatchError",
    "ModelError",
    "Monitor",
    "NoSketch",
    "NotFinite",
    "Observation",
    "Overrides",
    "Posterior",
    "Potential",
    "PotentialCalculator",
    "Predictions",
    "Problem",
    "Progress",
    "Recipe",
    "RelativeThreshold",
    "Rule",
    "SRHTSketch",
    "Scores",
    "ScoresOnly",
    "Selection",
    "SimulationResult",
    "SinglePoint",
    "SketchAdvice",
    "SparseSignSketch",
    "StopReason",
    "TemperatureLimit",
    "TensorBlocks",
    "TorchModulePotential",
    "Trainable",
    "Trained",
    "TrainingOptions",
    "UncertaintyCalculator",
    "UncertaintyRule",
    "VarianceCalibration",
    "Watch",
    "Workbench",
    "__version__",
    "build_labeler",
    "build_molecule",
    "check_disjoint",
    "collect",
    "displaced",
    "effective_dimension",
    "evaluate",
    "fingerprint",
    "fit",
    "load_fitted",
    "load_potential",
    "load_rmd17",
    "normal_modes",
    "open_structures",
    "plan_trajectories",
    "read_header",
    "read_structures",
    "register_family",
    "register_method",
    "register_selector",
    "run_campaign",
    "run_md",
    "sample_md",
    "save_fitted",
    "select",
    "silent",
    "sketch_error",
    "split_structures",
    "structure_hash",
    "testing",
    "train",
    "verbs",
    "watch",
    "write_structures",
]
