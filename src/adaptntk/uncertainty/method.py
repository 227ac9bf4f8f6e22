"""What every uncertainty method offers, so that all are fitted, scored and compared in the same way."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

import numpy as np
from ase import Atoms
from numpy.typing import NDArray
from torch import Tensor

from adaptntk.models.protocol import Potential
from adaptntk.progress import Progress, silent

Array = NDArray[np.float64]
Kind = Literal["variance", "std"]


@dataclass(frozen=True)
class Assessment:
    """Scores of structures, and what the model says that the method is defined on.

    Args:
        score: one number per structure, larger where the error is expected to be larger.
        kind: whether the score is meant as a variance or as a standard deviation.
        energies, forces: predictions of the method's own model (the mean of a committee, for example).
    """

    score: Array
    kind: Kind
    energies: Array
    forces: list[Array]

    @property
    def variance(self) -> Array:
        """The score as a variance, which ``sigma^2 = a u + b^2`` needs."""
        return self.score**2 if self.kind == "std" else self.score


@dataclass(frozen=True)
class MethodState:
    """What a fitted method is made of: all that a file must hold to bring it back.

    Args:
        networks: the trained networks it asks, the model itself first; of these the file holds path and SHA-256.
        tensors: arrays by name.
        settings: numbers and strings by name.
    """

    networks: tuple[Potential, ...]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


class Method(Protocol):
    """An uncertainty method. `fit` and `restore` make one; options of `fit` beyond the workbench have defaults."""

    name: str

    @classmethod
    def fit(cls, workbench: "Workbench") -> Self:
        """Make one from training and validation structures."""

    def assess(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Assessment:
        """Scores and predictions."""

    def state(self) -> MethodState:
        """What it is made of."""

    @classmethod
    def restore(cls, state: MethodState) -> Self:
        """The method with that state."""


class Workbench(Protocol):
    """What a method may ask for while it is fitted. What is trained is trained once, whoever asks."""

    train: Sequence[Atoms]
    valid: Sequence[Atoms]
    seed: int

    def member(self, number: int) -> Potential:
        """A network trained with a seed of its own; number 0 is the model itself."""

    def snapshots(self) -> list[dict[str, Tensor]]:
        """Weights of the model itself, from the last quarter of the epochs of its training."""

    def dropout_member(self, rate: float) -> Potential:
        """A network trained with dropout, which is still active in it."""


def spread_of_forces(predictions: Sequence[list[Array]]) -> tuple[Array, list[Array]]:
    """Standard deviation of the force components over predictions, averaged over atoms and directions; and the mean.

    ``predictions`` holds, for each member or draw, the forces on every structure.
    """
    spread, mean = [], []
    for forces in zip(*predictions, strict=True):
        stacked = np.stack(forces)
        spread.append(stacked.std(axis=0, ddof=1).mean())
        mean.append(stacked.mean(axis=0))
    return np.array(spread), mean
