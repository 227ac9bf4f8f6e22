from . import testing, verbs
from .campaign.loop import run_campaign
from .core.calibration import Calibration, VarianceCalibration
from .core.posterior import DualPosterior, Posterior
from .core.selection.bait import bait
from .core.selection.distances import kmeans_pp, lcmd, max_dist
from .core.selection.greedy import greedy, random, top_b
from .core.selection.problem import Constraints, Selection
from .core.sketch.gaussian import GaussianSketch, NoSketch
from .core.sketch.quality import SketchAdvice, effective_dimension, sketch_error
from .core.sketch.structured import SparseSignSketch, SRHTSketch
from .data.rmd17 import load_rmd17
from .data.splits import check_disjoint, split_structures
from .data.structures import read_structures, structure_hash, write_structures
from .data.xtb_md import build_molecule, sample_md
from .errors import AdaptNTKError, IndefiniteMatrixError, InputError, MismatchError, ModelError
from .evaluation import Evaluation, evaluate
from .features.energy_gradients import estimate_features, extract_features
from .md.calculator import PotentialCalculator, UncertaintyCalculator
from .md.dynamics import MDSettings, Trajectory, run_md, watch
from .md.exploration import MDJob, collect, displaced, fingerprint, normal_modes, plan_trajectories
from .md.monitor import Monitor, StopReason
from .md.physical_rules import PHYSICAL_RULES, FlyingAtoms, FusedAtoms, NotFinite, TemperatureLimit
from .md.rules import ConformalThreshold, ErrorLevel, Observation, RelativeThreshold, Rule, UncertaintyRule
from .models.mace.potential import MACEPotential
from .models.protocol import Capabilities, Potential, PotentialBase, Predictions, SinglePoint
from .models.registry import load_potential
from .models.torch_module import TorchModulePotential
from .training.loop import PRESETS, Recipe, Trained, train
from .uncertainty.calibrated import CalibratedMethod, load_method, save_method
from .uncertainty.load import load_fitted
from .uncertainty.method import Assessment, Method, MethodState, Workbench
from .uncertainty.ntk import NTKUncertainty, Scores
from .uncertainty.ntk_file import load_uncertainty, save_uncertainty
from .uncertainty.registry import METHODS, fit_method
from .uncertainty.workbench import FolderWorkbench
from .version import __version__

__all__ = [
    "METHODS",
    "PHYSICAL_RULES",
    "PRESETS",
    "AdaptNTKError",
    "Assessment",
    "CalibratedMethod",
    "Calibration",
    "Capabilities",
    "ConformalThreshold",
    "Constraints",
    "DualPosterior",
    "ErrorLevel",
    "Evaluation",
    "FlyingAtoms",
    "FolderWorkbench",
    "FusedAtoms",
    "GaussianSketch",
    "IndefiniteMatrixError",
    "InputError",
    "MACEPotential",
    "MDJob",
    "MDSettings",
    "Method",
    "MethodState",
    "MismatchError",
    "ModelError",
    "Monitor",
    "NTKUncertainty",
    "NoSketch",
    "NotFinite",
    "Observation",
    "Posterior",
    "Potential",
    "PotentialBase",
    "PotentialCalculator",
    "Predictions",
    "Recipe",
    "RelativeThreshold",
    "Rule",
    "SRHTSketch",
    "Scores",
    "Selection",
    "SinglePoint",
    "SketchAdvice",
    "SparseSignSketch",
    "StopReason",
    "TemperatureLimit",
    "TorchModulePotential",
    "Trained",
    "Trajectory",
    "UncertaintyCalculator",
    "UncertaintyRule",
    "VarianceCalibration",
    "Workbench",
    "__version__",
    "bait",
    "build_molecule",
    "check_disjoint",
    "collect",
    "displaced",
    "effective_dimension",
    "estimate_features",
    "evaluate",
    "extract_features",
    "fingerprint",
    "fit_method",
    "greedy",
    "kmeans_pp",
    "lcmd",
    "load_fitted",
    "load_method",
    "load_potential",
    "load_rmd17",
    "load_uncertainty",
    "max_dist",
    "normal_modes",
    "plan_trajectories",
    "random",
    "read_structures",
    "run_campaign",
    "run_md",
    "sample_md",
    "save_method",
    "save_uncertainty",
    "sketch_error",
    "split_structures",
    "structure_hash",
    "testing",
    "top_b",
    "train",
    "verbs",
    "watch",
    "write_structures",
]
