"""Monte Carlo dropout (Gal and Ghahramani, 2016): one network, trained and asked with random features left out."""

from dataclasses import dataclass

import numpy as np
import torch

from adaptntk.data.structures import Structures
from adaptntk.errors import InputError
from adaptntk.models.protocol import Potential, check_dropout_rate
from adaptntk.progress import Progress, silent
from adaptntk.uncertainty.method import Assessment, MethodState, ScoresOnly
from adaptntk.uncertainty.stored import Fraction, Seed, Several, Stored
from adaptntk.uncertainty.workbench import Workbench


@dataclass(frozen=True)
class DropoutOptions:
    """Of the method: the rate of dropout, and how many random passes."""

    rate: float = 0.1
    passes: int = 20

    def __post_init__(self) -> None:
        check_dropout_rate(self.rate)
        if self.passes < 2:
            raise InputError(f"dropout needs at least two passes, not {self.passes}")


@dataclass(frozen=True)
class Dropout(ScoresOnly):
    """The score is the standard deviation of the forces over random passes; predictions are their mean.

    Energy and forces of a pass come from one forward pass and so from the same mask.
    """

    potential: Potential
    rate: float
    passes: int
    seed: int
    name = "dropout"
    stored = Stored({"rate": Fraction, "passes": Several, "seed": Seed}, {})
    Options = DropoutOptions

    @classmethod
    def fit(cls, bench: Workbench, rng: np.random.Generator, options: DropoutOptions) -> "Dropout":
        """Train a network with dropout after the non-linearity of its last readout (the first one is linear)."""
        return cls(bench.dropout_member(options.rate), options.rate, options.passes, bench.seed)

    def assess(self, structures: Structures, batch_size: int = 16, progress: Progress = silent) -> Assessment:
        # Masks depend on the seed and on the structures, on nothing that was computed before.
        with self.potential.dropout_enabled(), torch.random.fork_rng():
            torch.manual_seed(self.seed)
            passes = progress(range(self.passes), "passes with dropout", self.passes)
            return Assessment.of_committee([self.potential.predict(structures, batch_size) for _ in passes])

    @classmethod
    def restore(cls, state: MethodState) -> "Dropout":
        return cls(state.networks[0].with_dropout(state.settings["rate"]), **state.settings)
