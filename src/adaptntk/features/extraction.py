"""Blocks of the sets that a fit needs, with all checks made before and after."""

import logging
from dataclasses import dataclass

from torch import Tensor

from adaptntk.core.blocks import TensorBlocks
from adaptntk.data.structures import Structures
from adaptntk.features.feature_map import FeatureMap, check_finite
from adaptntk.models.protocol import Potential
from adaptntk.progress import Progress, silent

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Extracted:
    """Blocks of the training and of the validation structures; the exact ones too, where they fit into memory."""

    train: TensorBlocks
    valid: TensorBlocks
    exact: tuple[TensorBlocks, TensorBlocks] | None = None


def announce(
    feature_map: FeatureMap, potential: Potential, structures: Structures, memory_budget: int, kept: bool = True
) -> None:
    """Say what the features will cost, and refuse what does not fit into memory."""
    estimate = feature_map.estimate(potential, structures, memory_budget, kept)
    if estimate is not None:
        log.info("energy gradients of %s", estimate)
        estimate.check(memory_budget)
        if estimate.remark is not None:
            log.info(estimate.remark)


def extract_sets(
    feature_map: FeatureMap,
    potential: Potential,
    train: Structures,
    valid: Structures,
    memory_budget: int,
    progress: Progress = silent,
) -> Extracted:
    """Both sets in one pass: a sketch too large to keep is then drawn for both at once.

    When the exact blocks of both sets fit into a quarter of the budget, they are kept to check the sketch with.
    """
    frames, count = [*train, *valid], len(train)
    exact = feature_map.unsketched()
    if exact is not None:
        size = len(frames) * exact.rows * exact.width(potential) * potential.dtype.itemsize
        exact = exact if size <= memory_budget // 4 else None
    announce(feature_map, potential, frames, memory_budget)
    found = (exact or feature_map).extract(potential, frames, memory_budget, progress)
    check_finite(found, "training set")

    def parts(blocks: Tensor) -> tuple[TensorBlocks, TensorBlocks]:
        return TensorBlocks(blocks[:count], feature_map.asked), TensorBlocks(blocks[count:], feature_map.asked)

    return Extracted(*parts(found)) if exact is None else Extracted(*parts(feature_map.project(found)), parts(found))
