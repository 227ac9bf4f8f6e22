"""What turns structures into blocks of feature rows, and what all such maps share."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from ase import Atoms
from numpy.typing import NDArray
from torch import Tensor

from adaptntk.data.structures import Structures, structure_sizes
from adaptntk.errors import InputError
from adaptntk.features.estimate import Estimate
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.models.protocol import Potential, Predictions, SinglePoint
from adaptntk.progress import Progress, silent

log = logging.getLogger(__name__)

NORMALISATIONS = {"none": 0.0, "sqrt_n": 0.5, "per_atom": 1.0}
"""``phi / N^k``: the total energy grows with the number of atoms N, the force error does not."""
DEFAULT_NORMALISATION = "per_atom"
"""What ``auto`` means: only so have n copies of a structure, far from one another, the score of one."""


class FeatureMap(ABC):
    """(potential, structures) to a block of rows per structure. A value: it knows no model and no structure."""

    name: ClassVar[str]
    """Under which `features.registry` finds it."""
    rows: int = 1
    """In each block."""
    asked: int = 1
    """Leading rows of a block whose variances are the score."""
    further_rows: int = 0
    """How many rows `further` gives of each structure."""
    normalise: str
    """A name of `NORMALISATIONS`."""

    def __post_init__(self) -> None:
        check_normalisation(self.normalise)

    @property
    def any_size(self) -> bool:
        """Whether the score of n copies of a structure is that of one, so that it holds for structures of any size."""
        return NORMALISATIONS[self.normalise] == 1.0

    def check_sizes(
        self, known: frozenset[int] | None, structures: Structures, name: str, numbers: Sequence[int] | None = None
    ) -> None:
        """Refuse numbers of atoms that features which grow with them were not fitted with; None: those are unknown."""
        if self.any_size or known is None:
            return
        for index, size in enumerate(structure_sizes(structures).tolist()):
            if size not in known:
                frame = numbers[index] if numbers else index
                trained = ", ".join(map(str, sorted(known)))
                raise InputError(
                    f"{name}, frame {frame}: fitted with features of the total energy (--normalise {self.normalise}) "
                    f"on structures of {trained} atoms: cannot speak of {size}; fit with --normalise per_atom"
                )

    @abstractmethod
    def width(self, potential: Potential) -> int:
        """Numbers in a row."""

    @abstractmethod
    def extract(
        self,
        potential: Potential,
        structures: Structures,
        memory_budget: int = DEFAULT_BUDGET,
        progress: Progress = silent,
    ) -> Tensor:
        """Blocks of the structures: (structures, rows, width)."""

    def further(
        self,
        potential: Potential,
        structures: Structures,
        memory_budget: int = DEFAULT_BUDGET,
        progress: Progress = silent,
    ) -> Tensor:
        """Rows that labels teach beyond the blocks, and nobody asks about: (structures, K, width); here none."""
        return torch.empty(len(structures), 0, self.width(potential), dtype=torch.float64, device=potential.device)

    @abstractmethod
    def observe(self, potential: Potential, atoms: Atoms) -> tuple[SinglePoint, Tensor]:
        """What the potential says of one structure, and its block, in one pass where that is possible."""

    @abstractmethod
    def spec(self, potential: Potential) -> dict[str, Any]:
        """What must be written down to build the same map again, with its name under ``map``."""

    def identity(self, potential: Potential) -> dict[str, Any]:
        """What the blocks depend on: all of the `spec`, but for what is about further rows only."""
        return self.spec(potential)

    @abstractmethod
    def summary(self, potential: Potential) -> str:
        """What its rows are, in a few words."""

    @classmethod
    @abstractmethod
    def restore(cls, spec: dict[str, Any], memory_budget: int = DEFAULT_BUDGET) -> Self:
        """The map of which that was written down."""

    def extract_and_predict(
        self,
        potential: Potential,
        structures: Structures,
        batch_size: int = 16,
        memory_budget: int = DEFAULT_BUDGET,
        progress: Progress = silent,
    ) -> tuple[Tensor, Predictions]:
        """Blocks and predictions, in one pass where that is possible."""
        blocks = self.extract(potential, structures, memory_budget, progress)
        return blocks, potential.predict(structures, batch_size, progress)

    def unsketched(self) -> "FeatureMap | None":
        """The exact map that this one approximates by a projection; None if it is exact itself."""
        return None

    def project(self, full: Tensor) -> Tensor:
        """Blocks of this map from those of the `unsketched` one."""
        return full

    def estimate(
        self,
        potential: Potential,
        structures: Structures,
        memory_budget: int,
        kept: bool = True,
        taught: Structures = (),
    ) -> Estimate | None:
        """What `extract` will take, and `further` of those ``taught``, if it is worth telling.

        ``kept``: all blocks are held at once, as further rows always are.
        """
        return None

    def announce(
        self,
        potential: Potential,
        structures: Structures,
        memory_budget: int,
        kept: bool = True,
        beside: int = 0,
        standing_for: int | None = None,
        taught: Structures = (),
    ) -> None:
        """Say what the features will cost, and refuse what does not fit.

        Args:
            beside: bytes held for other ends.
            standing_for: how many structures there are, if these are only some of them.
            taught: structures whose `further` rows are wanted too.
        """
        estimate = self.estimate(potential, structures, memory_budget, kept, taught)
        if estimate is not None:
            count = standing_for or len(structures)
            seconds = estimate.seconds * count / len(structures)
            estimate = replace(estimate, structures=count, seconds=seconds, memory=estimate.memory + beside)
            log.info("energy gradients of %s", estimate)
            estimate.check(memory_budget)
            if estimate.remark is not None:
                log.info(estimate.remark)


def check_normalisation(normalise: str, automatic: bool = False) -> None:
    """Refuse an unknown name; ``automatic``: ``auto`` is one."""
    known = [*NORMALISATIONS, *(["auto"] if automatic else [])]
    if normalise not in known:
        raise InputError(f"unknown normalisation {normalise!r}: choose one of {', '.join(known)}")


def choose_normalisation(normalise: str) -> str:
    """Resolve ``auto``."""
    check_normalisation(normalise, automatic=True)
    return DEFAULT_NORMALISATION if normalise == "auto" else normalise


def size_powers(structures: Structures, power: float) -> NDArray[np.float64]:
    """``N^power`` of each structure."""
    return structure_sizes(structures).astype(float) ** power


def check_finite(blocks: Tensor, name: str, numbers: Sequence[int] | None = None) -> None:
    """Refuse structures on which the model itself breaks down; ``numbers`` are what errors call them."""
    finite = torch.isfinite(blocks).flatten(1).all(dim=1)
    if not bool(finite.all()):
        index = int((~finite).nonzero()[0])
        index = numbers[index] if numbers else index
        raise InputError(f"{name}, frame {index}: the model's gradient is NaN or infinite; remove the frame")
