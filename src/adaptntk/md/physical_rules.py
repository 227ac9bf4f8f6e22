"""Rules that end a run at once: what no trustworthy simulation does, whatever the uncertainty says."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from adaptntk.core.calibration import Calibration
from adaptntk.data.geometry import fragments, fused_atoms
from adaptntk.errors import require
from adaptntk.md.rules import Observation, Rule


@dataclass(frozen=True)
class NotFinite(Rule):
    """Positions, energy, forces or the score are NaN or infinite."""

    name: ClassVar[str] = "not-finite"
    asks_committee: ClassVar[bool] = False

    def check(self, observation: Observation, calibration: Calibration | None = None) -> str | None:
        now = observation
        values = {"positions": now.atoms.positions, "energy": now.energy, "forces": now.forces}
        for name, value in (values | {"uncertainty": now.variance}).items():
            if value is not None and not np.isfinite(value).all():
                return f"{name}: NaN or infinite"
        return None


@dataclass(frozen=True)
class TemperatureLimit(Rule):
    """``T > kelvin`` or ``T > factor x target`` (K), whichever is lower: the run explodes.

    The temperature of N atoms scatters by ``sqrt(2/3N)`` of itself, 27 % for nine atoms: a factor below 2 fires by
    chance.
    """

    factor: float | None = 5.0
    kelvin: float | None = None
    name: ClassVar[str] = "temperature-limit"
    asks_committee: ClassVar[bool] = False

    def __post_init__(self) -> None:
        limits = [value for value in (self.factor, self.kelvin) if value is not None]
        require(bool(limits), "a temperature limit needs a factor or a temperature in K")
        for value in limits:
            require(value > 0, f"a temperature limit must be positive, not {value}")

    def check(self, observation: Observation, calibration: Calibration | None = None) -> str | None:
        limit = math.inf if self.kelvin is None else self.kelvin
        if self.factor is not None and observation.target is not None:
            limit = min(limit, self.factor * observation.target)
        if observation.temperature <= limit:
            return None
        return f"the temperature {observation.temperature:.0f} K passed {limit:.0f} K"


@dataclass(frozen=True)
class FusedAtoms(Rule):
    """``d_ij < fraction x (r_i + r_j)`` (Å), r the covalent radii: two atoms are on one another."""

    fraction: float = 0.5
    name: ClassVar[str] = "fused-atoms"
    asks_committee: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(0 < self.fraction < 1, f"the fraction of a bond must lie between 0 and 1, not {self.fraction}")

    def check(self, observation: Observation, calibration: Calibration | None = None) -> str | None:
        if not np.isfinite(observation.atoms.positions).all():
            return None  # for another rule to say
        return fused_atoms(observation.atoms, self.fraction)


@dataclass(frozen=True)
class LoneAtoms(Rule):
    """No atom has a neighbour within the cutoff of the model: its score is small, and says nothing."""

    name: ClassVar[str] = "lone-atoms"
    asks_committee: ClassVar[bool] = False

    def check(self, observation: Observation, calibration: Calibration | None = None) -> str | None:
        return "no atom has a neighbour that the model sees, so it says nothing any more" if observation.lone else None


@dataclass(frozen=True)
class FlyingAtoms(Rule):
    """More fragments than at the start, when atoms closer than ``distance`` (Å) belong together."""

    distance: float = 4.0
    name: ClassVar[str] = "flying-atoms"
    asks_committee: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(self.distance > 0, f"the distance of fragments must be positive (Å), not {self.distance}")

    def check(self, observation: Observation, calibration: Calibration | None = None) -> str | None:
        if not np.isfinite(observation.atoms.positions).all():
            return None  # for another rule to say
        count, member = fragments(observation.atoms, self.distance)
        if count <= 1 or count <= fragments(observation.start, self.distance)[0]:
            return None
        smallest = int(np.argmin(np.bincount(member)))
        lost = observation.atoms.symbols[member == smallest].get_chemical_formula()
        return f"{lost} is more than {self.distance:.4g} Å from everything else"


PHYSICAL_RULES: tuple[Rule, ...] = (NotFinite(), TemperatureLimit(), FusedAtoms(), LoneAtoms(), FlyingAtoms())
