"""Query by committee: networks that differ in the seed of their training."""

from dataclasses import dataclass

import numpy as np

from adaptntk.data.structures import Structures
from adaptntk.errors import InputError
from adaptntk.models.protocol import Potential
from adaptntk.progress import Progress, silent
from adaptntk.representation import short_repr
from adaptntk.uncertainty.method import Assessment, MethodState, ScoresOnly
from adaptntk.uncertainty.stored import Stored
from adaptntk.uncertainty.workbench import Workbench


@dataclass(frozen=True)
class EnsembleOptions:
    """Of the method: how many networks."""

    members: int = 3

    def __post_init__(self) -> None:
        if self.members < 2:
            raise InputError(f"an ensemble needs at least two members, not {self.members}")


@short_repr
@dataclass(frozen=True)
class Ensemble(ScoresOnly):
    """The score is the standard deviation of the members' forces; predictions are their mean."""

    members: tuple[Potential, ...]
    name = "ensemble"
    stored = Stored({}, {})
    Options = EnsembleOptions

    @classmethod
    def fit(cls, bench: Workbench, rng: np.random.Generator, options: EnsembleOptions) -> "Ensemble":
        """Train the members that are not there yet."""
        found = tuple(bench.member(number) for number in range(options.members))
        if len({member.fingerprint for member in found}) < options.members:
            raise InputError("two members of the ensemble are the same network, which says nothing; give others")
        return cls(found)

    @property
    def potential(self) -> Potential:
        return self.members[0]

    def assess(self, structures: Structures, batch_size: int = 16, progress: Progress = silent) -> Assessment:
        return Assessment.of_committee([member.predict(structures, batch_size, progress) for member in self.members])

    def state(self) -> MethodState:
        return MethodState(self.members)

    @classmethod
    def restore(cls, state: MethodState) -> "Ensemble":
        return cls(state.networks)
