"""Molecular dynamics under a monitor."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms, units
from ase.calculators.calculator import CalculationFailed
from ase.md.langevin import Langevin
from ase.md.md import MolecularDynamics

from adaptntk.core.calibration import Calibration
from adaptntk.errors import InputError
from adaptntk.md.calculator import UncertaintyCalculator
from adaptntk.md.monitor import Monitor, StopReason
from adaptntk.md.physical_rules import PHYSICAL_RULES, NotFinite
from adaptntk.md.rules import Observation, Rule
from adaptntk.progress import Progress, silent
from adaptntk.uncertainty.fitted import Fitted


@dataclass(frozen=True)
class MDSettings:
    """Langevin dynamics.

    Args:
        temperature: of the thermostat, K.
        steps: at most so many.
        timestep: fs.
        friction: of the thermostat, 1/fs.
        interval: steps between observations, at which the uncertainty is computed and a frame is kept.
    """

    temperature: float = 300.0
    steps: int = 1000
    timestep: float = 0.5
    friction: float = 0.01
    interval: int = 10

    def __post_init__(self) -> None:
        for name in ("temperature", "steps", "timestep", "friction", "interval"):
            if not 0 < getattr(self, name) < np.inf:
                raise InputError(f"the {name} of the dynamics must be positive, not {getattr(self, name)}")


@dataclass(frozen=True)
class SimulationResult:
    """What a run left: frames with their uncertainty, why it ended early (if it did), and how many steps it took.

    Every frame is finite. ``info`` holds the uncertainties under the names of `UncertaintyCalculator`, ``step``,
    ``time`` (fs) and ``temperature`` (K); energy and forces of the potential are in its calculator.
    """

    frames: list[Atoms]
    stopped: StopReason | None
    steps: int


def run_md(
    uncertainty: Fitted,
    start: Atoms,
    settings: MDSettings,
    rules: Sequence[Rule] = PHYSICAL_RULES,
    seed: int = 0,
    coverage: float = 0.9,
    progress: Progress = silent,
) -> SimulationResult:
    """Langevin dynamics from ``start`` until a rule is broken or the steps are done.

    The same arguments give the same trajectory. Labels and other entries of ``start`` are not handed on: they belong to
    another geometry.

    Args:
        uncertainty: with the potential that moves the atoms.
        start: geometry, cell, masses and constraints; not changed.
        rules: what must not happen.
        seed: of velocities and noise.
        coverage: probability stated for ``forces_error_bound`` in the frames.
    """
    rng = np.random.default_rng(seed)
    atoms = Atoms(numbers=start.numbers, positions=start.positions, cell=start.cell, pbc=start.pbc)
    atoms.set_masses(start.get_masses())
    atoms.set_constraint([constraint.copy() for constraint in start.constraints])
    deviation = np.sqrt(units.kB * settings.temperature / atoms.get_masses())[:, None]
    atoms.set_velocities(rng.standard_normal((len(atoms), 3)) * deviation)
    atoms.calc = UncertaintyCalculator(uncertainty, settings.interval, coverage)
    dynamics = Langevin(
        atoms,
        settings.timestep * units.fs,
        temperature_K=settings.temperature,
        friction=settings.friction / units.fs,
        rng=rng,
        fixcm=False,
    )
    return watch(dynamics, rules, settings.steps, settings.interval, settings.temperature, progress)


def watch(
    dynamics: MolecularDynamics,
    rules: Sequence[Rule],
    steps: int,
    interval: int = 10,
    target: float | None = None,
    progress: Progress = silent,
) -> SimulationResult:
    """Run any ASE dynamics whose atoms have an `UncertaintyCalculator`, until a rule is broken or the steps are done.

    Args:
        dynamics: not yet begun. With ``every`` of its calculator equal to ``interval`` no pass through the network is
            done twice.
        rules: what must not happen.
        steps: at most so many.
        interval: steps between observations.
        target: the thermostat's temperature, K, for rules that need it.
    """
    atoms = dynamics.atoms
    calculator = atoms.calc
    if not isinstance(calculator, UncertaintyCalculator):
        raise InputError("the atoms of the dynamics have no UncertaintyCalculator: set atoms.calc to one")
    calibration: Calibration | None = calculator.uncertainty.calibration
    monitor = Monitor(rules, calibration)
    start = atoms.copy()
    frames: list[Atoms] = []
    # An exploding run overflows before it ends.
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            for _ in progress(dynamics.irun(steps), _title(target), steps):
                if dynamics.nsteps % interval:
                    continue
                observation = _observe(dynamics, calculator, start, target)
                if NotFinite().check(observation) is None:
                    frames.append(_frame(calculator, observation))
                stopped = monitor.observe(observation)
                if stopped is not None:
                    return SimulationResult(frames, stopped, dynamics.nsteps)
        except CalculationFailed as error:
            return SimulationResult(frames, StopReason(NotFinite.name, str(error), dynamics.nsteps), dynamics.nsteps)
    return SimulationResult(frames, None, dynamics.nsteps)


def _title(target: float | None) -> str:
    return "MD" if target is None else f"MD at {target:.0f} K"


def _observe(
    dynamics: MolecularDynamics, calculator: UncertaintyCalculator, start: Atoms, target: float | None
) -> Observation:
    atoms = dynamics.atoms
    calculator.get_property(calculator.uncertainty_keys[0], atoms)
    results = calculator.results
    return Observation(
        step=dynamics.nsteps,
        time=dynamics.get_time() / units.fs,
        atoms=atoms,
        start=start,
        temperature=float(atoms.get_temperature()),
        target=target,
        energy=results["energy"],
        forces=results["forces"],
        variance=results[calculator.uncertainty_keys[0]],
        sigma=results.get("forces_uncertainty"),
        bound=results.get("forces_error_bound"),
    )


def _frame(calculator: UncertaintyCalculator, observation: Observation) -> Atoms:
    frame = calculator.frame(observation.atoms)
    frame.info |= {"step": observation.step, "time": observation.time, "temperature": observation.temperature}
    return frame
