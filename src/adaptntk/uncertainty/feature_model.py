"""Training structures in the space of a feature map, and how far from them others are."""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from adaptntk.core.blocks import Blocks, TensorBlocks, join
from adaptntk.core.metrics import Array
from adaptntk.core.posterior import FeaturePosterior, fit_posterior
from adaptntk.core.ridge import RidgeChoice
from adaptntk.core.rows import compressed
from adaptntk.core.selection.problem import Constraints, FeatureSpace, Labels, Problem
from adaptntk.core.selection.registry import select
from adaptntk.core.sketch.quality import SketchAdvice, halves, halves_of_rows, jaccard
from adaptntk.data.structures import Structures, structure_hashes
from adaptntk.errors import InputError
from adaptntk.features.feature_map import FeatureMap, check_finite
from adaptntk.features.store import FeatureStore, StoredBlocks
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.models.protocol import Potential, check_species, parameters_hash
from adaptntk.progress import Progress, silent
from adaptntk.representation import short_repr
from adaptntk.uncertainty.method import Assessment

log = logging.getLogger(__name__)

# Structures whose features are computed before they are written to a store, or scored.
STORE_STEP = 256
SCORE_STEP = 8192
# Structures that stand for all whose forces are to become sure.
_AIMS = 128


def rows_of_forces(labels: Labels | None, structures: Structures) -> Callable[[], Tensor] | None:
    """What makes rows of the forces of these structures, or of some where they are many; None without `labels`."""
    if labels is None:
        return None
    some = np.random.default_rng(0).permutation(len(structures))[:_AIMS]
    return lambda: labels.of(np.sort(some).tolist()).flatten(0, 1)


@short_repr
@dataclass(frozen=True)
class FeatureModel:
    """Blocks of the training structures, the ridge and the posterior; a value, `condition` returns a new one.

    Args:
        further: rows that the labels of the training structures teach beyond their blocks, (m, p) with m <= p.
        sizes: the numbers of atoms of the training structures; None in files that were written without them.
    """

    feature_map: FeatureMap
    blocks: TensorBlocks
    further: Tensor
    ridge: RidgeChoice
    posterior: FeaturePosterior
    sketch_check: SketchAdvice | None = None
    sizes: frozenset[int] | None = None
    memory_budget: int = DEFAULT_BUDGET

    def check(
        self, potential: Potential, structures: Structures, name: str, numbers: Sequence[int] | None = None
    ) -> None:
        """Refuse what it cannot speak of."""
        if not structures:
            raise InputError(f"{name}: no structures")
        check_species(potential, structures, name)
        self.feature_map.check_sizes(self.sizes, structures, name, numbers)

    def extract(
        self,
        potential: Potential,
        structures: Structures,
        name: str = "structures",
        progress: Progress = silent,
        numbers: Sequence[int] | None = None,
    ) -> TensorBlocks:
        """Blocks of any structures; ``name`` and ``numbers`` are what errors call the set and its frames."""
        self.check(potential, structures, name, numbers)
        blocks = self.feature_map.extract(potential, structures, self.memory_budget, progress)
        check_finite(blocks, name, numbers)
        return TensorBlocks(blocks, self.feature_map.asked)

    def assess(
        self,
        potential: Potential,
        structures: Structures,
        batch_size: int = 16,
        progress: Progress = silent,
        name: str = "structures",
    ) -> Assessment:
        """Scores and predictions, a part of the blocks at a time."""
        self.check(potential, structures, name)
        found, extract = [], self.feature_map.extract_and_predict
        for part in self.parts(structures):
            frames = structures if len(part) == len(structures) else structures[part.start : part.stop]
            blocks, predicted = extract(potential, frames, batch_size, self.memory_budget, progress)
            check_finite(blocks, name, part)
            # Not the features of the atoms, which take far more memory.
            found.append((self.variance(TensorBlocks(blocks, self.blocks.asked)), predicted.energies, predicted.forces))
        variances, energies, forces = zip(*found, strict=True)
        return Assessment(np.concatenate(variances), "variance", np.concatenate(energies), [*chain(*forces)])

    def announce(
        self, potential: Potential, structures: Structures, kept: bool = True, store: str | Path | None = None
    ) -> None:
        """Log what the features of these structures will take, but for those in a store; refuse what does not fit."""
        if store is None:
            self.feature_map.announce(potential, structures, self.memory_budget, kept)
            return
        missing = np.flatnonzero(~FeatureStore.held(store, structure_hashes(structures))).tolist()
        if missing:
            # So many are computed at a time; some from everywhere stand for all.
            some = [structures[index] for index in missing[:: -(-len(missing) // STORE_STEP)]]
            self.feature_map.announce(potential, some, self.memory_budget, kept=False, standing_for=len(missing))

    def extract_stored(
        self,
        potential: Potential,
        structures: Structures,
        folder: str | Path,
        name: str = "structures",
        progress: Progress = silent,
    ) -> StoredBlocks:
        """Blocks in a store: those that it lacks are computed and added, a part at a time."""
        self.check(potential, structures, name)
        store = self.open_store(potential, folder)
        hashes = structure_hashes(structures)
        numbers = store.find(hashes)
        store.check(numbers[numbers >= 0])
        # A structure that occurs twice is computed once.
        missing = sorted({hashes[i]: i for i in reversed(range(len(hashes))) if numbers[i] < 0}.values())
        held = f"{len(hashes) - len(missing)} of" if missing else "all"
        log.info("%s %d structures are in the feature store", held, len(hashes))
        step = self._structures_at_once(STORE_STEP)
        for start in progress(range(0, len(missing), step), "energy gradients", -(-len(missing) // step)):
            part = missing[start : start + step]
            blocks = self.extract(potential, [structures[index] for index in part], name, numbers=part)
            store.append([hashes[index] for index in part], blocks.tensor)
        return store.blocks(store.find(hashes), potential.device)

    def open_store(self, potential: Potential, folder: str | Path) -> FeatureStore:
        """A store of features on disk that fits this model and map; made if it is not there."""
        identity = {
            "model": potential.fingerprint,
            "precision": str(potential.dtype).removeprefix("torch."),
            "head": potential.head,
            "parameters": parameters_hash(potential),
            **self.feature_map.identity(potential),
        }
        _, rows, width = self.blocks.shape
        return FeatureStore(folder, identity, width, rows, self.blocks.asked)

    def labels(self, potential: Potential, structures: Structures) -> Labels | None:
        """The rows that labels of these structures would teach beyond their blocks; None for maps without such rows."""
        feature_map = self.feature_map

        def make(indices: list[int]) -> Tensor:
            rows = feature_map.further(potential, [structures[index] for index in indices], self.memory_budget)
            check_finite(rows, "structures", indices)
            return rows

        return Labels(feature_map.further_rows, make) if feature_map.further_rows else None

    def variance(self, blocks: Blocks) -> Array:
        """The score of each block."""
        return self.posterior.variance(blocks).cpu().numpy()

    def parts(self, structures: Structures) -> list[range]:
        """Ranges of structures whose blocks may be held beside everything else."""
        step = self._structures_at_once(SCORE_STEP)
        return [range(start, min(start + step, len(structures))) for start in range(0, len(structures), step)]

    def condition(self, blocks: Tensor | Blocks, further: Tensor | None = None) -> "FeatureModel":
        """As if structures with these blocks had been in the training set; no labels, no retraining.

        ``further`` are the rows that their labels would teach beyond the blocks.
        """
        tensor = blocks if isinstance(blocks, Tensor) else blocks[:]
        known = self.further
        if further is not None:
            known = compressed(torch.cat([known, further.flatten(0, -2).to(known.dtype)]))
        posterior = self.posterior.condition(tensor, further)
        return dataclasses.replace(self, blocks=join(self.blocks, tensor), further=known, posterior=posterior)

    def sketch_overlap(self, candidates: Blocks, count: int, constraints: Constraints) -> float | None:
        """How much the batch depends on the sketch: Jaccard overlap of the batches of its two halves."""
        if self.feature_map.unsketched() is None:
            return None
        # Distances differ between the halves: the same separation might leave too few candidates in one.
        constraints = dataclasses.replace(constraints, min_separation=0.0)
        batches = []
        for training, further, pool in zip(
            halves(self.blocks), halves_of_rows(self.further), halves(candidates), strict=True
        ):
            space = FeatureSpace(fit_posterior(training, self.ridge.lam, further), training, pool)
            batches.append(select("adaptntk", Problem(space, count, constraints)).indices)
        return jaccard(*batches)

    def _structures_at_once(self, most: int) -> int:
        """How many blocks may be held beside everything else: an eighth of the budget."""
        _, rows, width = self.blocks.shape
        return int(np.clip(self.memory_budget // 8 // (8 * rows * width), 1, most))
