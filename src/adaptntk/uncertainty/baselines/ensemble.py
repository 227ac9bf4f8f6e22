"""Query by committee: networks that differ in the seed of their training."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms

from adaptntk.errors import InputError
from adaptntk.models.protocol import Potential
from adaptntk.progress import Progress, silent
from adaptntk.uncertainty.method import Assessment, MethodState, Workbench, spread_of_forces


@dataclass(frozen=True)
class Ensemble:
    """The score is the standard deviation of the members' forces; predictions are their mean."""

    members: tuple[Potential, ...]
    name = "ensemble"

    @classmethod
    def fit(cls, workbench: Workbench, members: int = 3) -> "Ensemble":
        """Train the members that are not there yet."""
        if members < 2:
            raise InputError(f"an ensemble needs at least two members, not {members}")
        found = tuple(workbench.member(number) for number in range(members))
        if len({member.fingerprint for member in found}) < members:
            raise InputError("two members of the ensemble are the same network, which says nothing; give others")
        return cls(found)

    def assess(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Assessment:
        predictions = [member.predict(structures, batch_size, progress) for member in self.members]
        spread, forces = spread_of_forces([predicted.forces for predicted in predictions])
        energies = np.mean([predicted.energies for predicted in predictions], axis=0)
        return Assessment(spread, "std", energies, forces)

    def state(self) -> MethodState:
        return MethodState(self.members)

    @classmethod
    def restore(cls, state: MethodState) -> "Ensemble":
        return cls(state.networks)
