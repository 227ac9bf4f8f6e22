"""The next picks from a pool of candidates."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from ase import Atoms

from adaptntk.campaign.config import Campaign
from adaptntk.campaign.steps.driver import Driver
from adaptntk.campaign.steps.learn import load_ntk
from adaptntk.core.blocks import TensorBlocks
from adaptntk.core.posterior import sequential_variances
from adaptntk.core.selection.problem import Constraints
from adaptntk.core.selection.registry import select

# Structures whose features are computed in one job: the same for every executor, because rows differ in their last
# digits with the structures they are computed beside.
SHARD = 128


@dataclass(frozen=True)
class Choice:
    """A structure of the pool, its U given all picks before it, and what its label is expected to tell."""

    index: int
    variance: float
    information: float


def pool_features(driver: Driver, ntk: Path, pool: Sequence[Atoms]) -> np.ndarray:
    """Feature blocks of all candidates, computed side by side."""
    device = driver.config.execution.device
    shards = [(ntk, pool[i : i + SHARD], device) for i in range(0, len(pool), SHARD)]
    return np.concatenate(driver.map(shard_features, shards, "features"))


def shard_features(ntk: Path, frames: Sequence[Atoms], device: str) -> np.ndarray:
    """Feature blocks of a part of the pool: structures x rows x width."""
    fitted = load_ntk(ntk, device)
    assert fitted.features is not None
    return fitted.features.extract(fitted.potential, frames, "pool").tensor.cpu().numpy()


def choose(
    ntk: Path, blocks: np.ndarray, count: int, excluded: list[bool], labelled: list[int], config: Campaign, seed: int
) -> list[Choice]:
    """The next picks, given that some were picked and labelled already."""
    fitted = load_ntk(ntk, config.execution.device)
    features = fitted.features
    assert features is not None
    pool = TensorBlocks(torch.as_tensor(blocks, device=fitted.potential.device), features.blocks.asked)
    if labelled:
        features = features.condition(pool.tensor[labelled])
    found = select(config.select.method, features.problem(pool, count, Constraints(excluded), seed))
    # U given everything before the pick, whatever the rule maximises: what the label is expected to tell.
    picks = TensorBlocks(pool.tensor[found.indices], pool.asked)
    variances = sequential_variances(features.posterior, picks).tolist()
    return [
        Choice(index, variance, float(np.log1p(variance / features.posterior.lam)))
        for index, variance in zip(found.indices, variances, strict=True)
    ]
