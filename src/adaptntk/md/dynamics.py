"""Molecular dynamics under a monitor."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from ase import Atoms, units
from ase.calculators.calculator import CalculationFailed
from ase.md.langevin import Langevin
from ase.md.md import MolecularDynamics

from adaptntk.core.calibration import Calibration
from adaptntk.errors import InputError, require
from adaptntk.md.calculator import UncertaintyCalculator
from adaptntk.md.physical_rules import PHYSICAL_RULES, NotFinite
from adaptntk.md.rules import AtomErrorLevel, Observation, Rule
from adaptntk.progress import Progress, silent
from adaptntk.representation import short_repr
from adaptntk.uncertainty.fitted import Fitted
from adaptntk.uncertainty.method import LONE_ATOMS, OF_ATOMS

# Beyond these nothing is physical, and powers of far larger numbers overflow.
_LARGEST = {"temperature": 10**6, "steps": 10**12, "timestep": 1000, "friction": 1000, "interval": 10**12}


@dataclass(frozen=True)
class MDSettings:
    """Langevin dynamics: temperature of the thermostat in K, timestep in fs, friction in 1/fs, and how many steps.

    Every ``interval`` steps there is an observation, at which the uncertainty is computed and a frame is kept.
    """

    temperature: float = 300.0
    steps: int = 1000
    timestep: float = 0.5
    friction: float = 0.01
    interval: int = 10

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            most = _LARGEST[name]
            require(0 < value <= most, f"the {name} of the dynamics must be positive and at most {most:,}, not {value}")


@dataclass(frozen=True)
class StopReason:
    """Why a run ended: the rule, what happened, and at which step."""

    rule: str
    text: str
    step: int

    def __str__(self) -> str:
        return f"step {self.step}: {self.text} ({self.rule})"


class Monitor:
    """Applies rules to one observation after the other; one for each run. Uncertainty rules need a calibration."""

    def __init__(self, rules: Sequence[Rule], calibration: Calibration | None = None) -> None:
        self.rules = tuple(rules)
        self.calibration = calibration
        self._alarms = [0] * len(self.rules)
        for rule in rules:
            rule.check_calibration(calibration)

    def observe(self, observation: Observation) -> StopReason | None:
        """Look at the next moment; the reason to stop, if there is one."""
        for place, rule in enumerate(self.rules):
            reason = self._patiently(place, rule, observation)
            if reason is not None:
                return StopReason(rule.name, reason, observation.step)
        return None

    def _patiently(self, place: int, rule: Rule, observation: Observation) -> str | None:
        """Count an alarm, or forget those before once the score is well below the threshold."""
        alarm = rule.check(observation, self.calibration)
        excess = rule.excess(observation, self.calibration)
        if alarm is None:
            if excess is not None and excess < rule.release:
                self._alarms[place] = 0
            return None
        self._alarms[place] += 1
        if excess is not None and excess > rule.lost:
            return f"{alarm}, more than {rule.lost:.4g} times"
        if self._alarms[place] < rule.patience:
            return None
        return alarm if rule.patience == 1 else f"{alarm}, alarm {self._alarms[place]}"


@short_repr
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
    per_atom: bool = False,
) -> SimulationResult:
    """Langevin dynamics from ``start`` until a rule is broken or the steps are done.

    The same arguments give the same trajectory. Labels and other entries of ``start`` are not handed on: they belong to
    another geometry.

    Args:
        uncertainty: with the potential that moves the atoms.
        start: geometry, cell, masses and constraints; not changed.
        seed: of velocities and noise.
        coverage: probability stated for ``forces_error_bound`` in the frames.
        per_atom: frames also hold the uncertainty of each atom, see `UncertaintyCalculator`; always so where a rule
            looks at it.
    """
    per_atom = per_atom or _looks_at_atoms(rules)
    rng = np.random.default_rng(seed)
    atoms = Atoms(numbers=start.numbers, positions=start.positions, cell=start.cell, pbc=start.pbc)
    atoms.set_masses(start.get_masses())
    atoms.set_constraint([constraint.copy() for constraint in start.constraints])
    deviation = np.sqrt(units.kB * settings.temperature / atoms.get_masses())[:, None]
    atoms.set_velocities(rng.standard_normal((len(atoms), 3)) * deviation)
    at_once = any(rule.asks_committee for rule in rules)
    calculator = UncertaintyCalculator(uncertainty, settings.interval, coverage, per_atom, at_once)
    atoms.calc = calculator
    thermostat = {"temperature_K": settings.temperature, "friction": settings.friction / units.fs, "rng": rng}
    dynamics = Langevin(atoms, settings.timestep * units.fs, fixcm=False, **thermostat)
    found = watch(dynamics, rules, settings.steps, settings.interval, settings.temperature, progress)
    calculator.complete(found.frames)
    return found


def _looks_at_atoms(rules: Sequence[Rule]) -> bool:
    return any(isinstance(rule, AtomErrorLevel) for rule in rules)


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
        interval: steps between observations.
        target: the thermostat's temperature, K, for rules that need it.
    """
    calculator = dynamics.atoms.calc
    if not isinstance(calculator, UncertaintyCalculator):
        raise InputError("the atoms of the dynamics have no UncertaintyCalculator: set atoms.calc to one")
    if _looks_at_atoms(rules) and not calculator.per_atom:
        raise InputError(f"the rule {AtomErrorLevel.name} needs UncertaintyCalculator(..., per_atom=True)")
    monitor = Monitor(rules, calculator.uncertainty.calibration)
    start = dynamics.atoms.copy()
    frames: list[Atoms] = []
    stopped = None
    title = "MD" if target is None else f"MD at {target:.0f} K"
    # An exploding run overflows before it ends.
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            for _ in progress(dynamics.irun(steps), title, steps):
                if dynamics.nsteps % interval:
                    continue
                now = _observe(dynamics, calculator, start, target)
                if NotFinite().check(now) is None:
                    frame = calculator.frame(now.atoms)
                    frame.info |= {"step": now.step, "time": now.time, "temperature": now.temperature}
                    frames.append(frame)
                stopped = monitor.observe(now)
                if stopped is not None:
                    break
        except CalculationFailed as error:
            stopped = StopReason(NotFinite.name, str(error), dynamics.nsteps)
    return SimulationResult(frames, stopped, dynamics.nsteps)


def _observe(
    dynamics: MolecularDynamics, calculator: UncertaintyCalculator, start: Atoms, target: float | None
) -> Observation:
    atoms = dynamics.atoms
    variance = calculator.get_property(calculator.uncertainty_keys[0], atoms)
    results = calculator.results
    return Observation(
        dynamics.nsteps, dynamics.get_time() / units.fs, atoms, start, float(atoms.get_temperature()), target,
        results["energy"], results["forces"], variance,
        results.get("forces_uncertainty"), results.get("forces_error_bound"),
        float(results[OF_ATOMS].max()) if OF_ATOMS in results else None,
        results.get(LONE_ATOMS) == len(atoms),
    )  # fmt: skip
