"""Blocks of the sets that a fit needs, with all checks made before and after."""

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ase import Atoms

from adaptntk.core.blocks import TensorBlocks
from adaptntk.errors import InputError
from adaptntk.features.feature_map import FeatureMap, check_finite
from adaptntk.models.protocol import Potential, check_species
from adaptntk.progress import Progress, silent

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Extracted:
    """Blocks of the training and of the validation structures; the exact ones too, where they fit into memory."""

    train: TensorBlocks
    valid: TensorBlocks
    exact: tuple[TensorBlocks, TensorBlocks] | None = None


def extract_blocks(
    feature_map: FeatureMap,
    potential: Potential,
    structures: Sequence[Atoms],
    memory_budget: int,
    name: str = "structures",
    progress: Progress = silent,
    numbers: Sequence[int] | None = None,
) -> TensorBlocks:
    """Blocks of any structures; ``name`` and ``numbers`` are what errors call the set and its frames."""
    if not structures:
        raise InputError(f"{name}: no structures")
    check_species(potential, structures, name)
    blocks = feature_map.extract(potential, structures, memory_budget, progress)
    check_finite(blocks, name, numbers)
    return TensorBlocks(blocks, feature_map.asked)


def announce(
    feature_map: FeatureMap, potential: Potential, structures: Sequence[Atoms], memory_budget: int, kept: bool = True
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
    train: Sequence[Atoms],
    valid: Sequence[Atoms],
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
    blocks = extract_blocks(exact or feature_map, potential, frames, memory_budget, "training set", progress)
    if exact is None:
        return Extracted(_part(blocks, slice(count)), _part(blocks, slice(count, None)))
    projected = dataclasses.replace(blocks, tensor=feature_map.project(blocks.tensor))
    parts = [_part(found, place) for found in (projected, blocks) for place in (slice(count), slice(count, None))]
    return Extracted(parts[0], parts[1], (parts[2], parts[3]))


def _part(blocks: TensorBlocks, place: slice) -> TensorBlocks:
    return dataclasses.replace(blocks, tensor=blocks.tensor[place])
