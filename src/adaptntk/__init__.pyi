# isort: skip_file
from . import testing as testing, verbs as verbs
from .campaign.config import Overrides as Overrides
from .campaign.loop import run_campaign as run_campaign
from .core.blocks import Blocks as Blocks, TensorBlocks as TensorBlocks
from .core.calibration import Calibration as Calibration, VarianceCalibration as VarianceCalibration
from .core.posterior import DualPosterior as DualPosterior, Posterior as Posterior
from .core.selection.problem import Allowed as Allowed, Constraints as Constraints, Problem as Problem
from .core.selection.problem import Selection as Selection
from .core.selection.registry import SELECTORS as SELECTORS, register_selector as register_selector, select as select
from .core.sketch.gaussian import GaussianSketch as GaussianSketch, NoSketch as NoSketch
from .core.sketch.quality import SketchAdvice as SketchAdvice, effective_dimension as effective_dimension
from .core.sketch.quality import sketch_error as sketch_error
from .core.sketch.structured import SparseSignSketch as SparseSignSketch, SRHTSketch as SRHTSketch
from .data.published import load_rmd17 as load_rmd17
from .data.splits import check_disjoint as check_disjoint, split_structures as split_structures
from .data.structures import open_structures as open_structures
from .data.structures import read_structures as read_structures, structure_hash as structure_hash
from .data.structures import write_structures as write_structures
from .data.xtb_md import build_molecule as build_molecule, sample_md as sample_md
from .errors import AdaptNTKError as AdaptNTKError, IndefiniteMatrixError as IndefiniteMatrixError
from .errors import InputError as InputError, MismatchError as MismatchError, ModelError as ModelError
from .features.energy_gradients import EnergyGradients as EnergyGradients
from .features.feature_map import FeatureMap as FeatureMap
from .features.last_layer import LastLayerFeatures as LastLayerFeatures
from .labelers.labeler import Labeler as Labeler, LabelError as LabelError, LabelerSpec as LabelerSpec
from .labelers.registry import LABELERS as LABELERS, build_labeler as build_labeler
from .md.calculator import PotentialCalculator as PotentialCalculator, UncertaintyCalculator as UncertaintyCalculator
from .md.distinct import Distinct as Distinct, structure_distance as structure_distance
from .md.dynamics import MDSettings as MDSettings, Monitor as Monitor, SimulationResult as SimulationResult
from .md.dynamics import StopReason as StopReason, run_md as run_md, watch as watch
from .md.exploration import MDJob as MDJob, Sifted as Sifted, collect as collect, displaced as displaced
from .md.exploration import normal_modes as normal_modes, plan_trajectories as plan_trajectories, sift as sift
from .md.physical_rules import PHYSICAL_RULES as PHYSICAL_RULES, FlyingAtoms as FlyingAtoms, FusedAtoms as FusedAtoms
from .md.physical_rules import LoneAtoms as LoneAtoms, NotFinite as NotFinite, TemperatureLimit as TemperatureLimit
from .md.rules import (
    AtomErrorLevel as AtomErrorLevel,
    ConformalThreshold as ConformalThreshold,
    ErrorLevel as ErrorLevel,
    Observation as Observation,
)
from .md.rules import RelativeThreshold as RelativeThreshold, Rule as Rule, UncertaintyRule as UncertaintyRule
from .md.watch import Watch as Watch
from .models.family import Architecture as Architecture, EnergyReference as EnergyReference, Family as Family
from .models.family import Trainable as Trainable
from .models.mace.potential import MACEPotential as MACEPotential
from .models.protocol import Capabilities as Capabilities, Potential as Potential, Predictions as Predictions
from .models.protocol import SinglePoint as SinglePoint
from .models.registry import FAMILIES as FAMILIES, load_potential as load_potential
from .models.registry import register_family as register_family
from .models.torch_module import TorchModulePotential as TorchModulePotential
from .progress import Progress as Progress, silent as silent
from .training.loop import Trained as Trained, TrainingOptions as TrainingOptions, train as train
from .training.recipe import PRESETS as PRESETS, Recipe as Recipe
from .uncertainty.candidates import Candidates as Candidates
from .uncertainty.evaluate import Evaluation as Evaluation, evaluate as evaluate
from .uncertainty.file import load_fitted as load_fitted, read_header as read_header, save_fitted as save_fitted
from .uncertainty.fit import fit as fit
from .uncertainty.fitted import Fitted as Fitted
from .uncertainty.folder_workbench import FolderWorkbench as FolderWorkbench
from .uncertainty.method import Assessment as Assessment, Method as Method, MethodState as MethodState
from .uncertainty.method import Scores as Scores, ScoresOnly as ScoresOnly
from .uncertainty.registry import METHODS as METHODS, register_method as register_method
from .uncertainty.workbench import GivenModel as GivenModel, Workbench as Workbench
from .version import __version__ as __version__
