"""What a method may ask for while it is fitted. What costs something is done once, whoever asks."""

import json
from dataclasses import dataclass, field

from torch import Tensor

from adaptntk.core.blocks import TensorBlocks
from adaptntk.data.labels import without_isolated
from adaptntk.data.structures import Structures
from adaptntk.errors import InputError
from adaptntk.features.feature_map import FeatureMap, check_finite
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.models.protocol import Potential, Predictions
from adaptntk.progress import Progress, silent
from adaptntk.representation import short_repr

ONE_MODEL = "only one trained model is given, and none can be trained: use a FolderWorkbench"


@short_repr
@dataclass(frozen=True)
class Extracted:
    """Blocks of the training and of the validation structures, and rows that the former teach beyond them.

    ``exact`` are the same without a sketch, where they fit into memory.
    """

    train: TensorBlocks
    valid: TensorBlocks
    further: Tensor
    exact: "Extracted | None" = None


@short_repr
@dataclass
class Workbench:
    """The structures of a fit, and what is computed of them; isolated atoms among them are left out.

    Args:
        train: structures that the model was trained on.
        valid: labelled structures outside the training set; without them nothing is calibrated.
        seed: of everything random, and of the model itself; other networks follow from it.
        batch_size: structures predicted at a time.
        memory_budget: bytes.
    """

    train: Structures
    valid: Structures = ()
    seed: int = 0
    batch_size: int = 16
    memory_budget: int = DEFAULT_BUDGET
    progress: Progress = silent
    _extracted: dict[str, Extracted] = field(default_factory=dict, init=False, repr=False)
    _predicted: list[Predictions] = field(default_factory=list, init=False, repr=False)
    _predicted_train: list[Predictions] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        # No network was trained on them, and no force acts there.
        self.train, self.valid = without_isolated(self.train), without_isolated(self.valid)

    def member(self, number: int) -> Potential:
        """A network trained with a seed of its own; number 0 is the model itself."""
        raise NotImplementedError

    def snapshots(self) -> list[dict[str, Tensor]]:
        """Weights of the model itself, from the last quarter of the epochs of its training."""
        raise InputError(ONE_MODEL)

    def dropout_member(self, rate: float) -> Potential:
        """A network trained with dropout, which is still active in it."""
        raise InputError(ONE_MODEL)

    def extracted(self, feature_map: FeatureMap) -> Extracted:
        """Blocks of the training and the validation structures."""
        key = json.dumps(feature_map.spec(self.member(0)), sort_keys=True)
        if key not in self._extracted:
            self._extracted[key] = self._extract(feature_map, self.member(0))
        return self._extracted[key]

    def _extract(self, feature_map: FeatureMap, potential: Potential) -> Extracted:
        """Both sets in one pass: a sketch too large to keep is then drawn for both at once.

        When the exact blocks of both sets fit into a quarter of the budget, they are kept to check the sketch with.
        """
        frames, count, budget = [*self.train, *self.valid], len(self.train), self.memory_budget
        exact, size = feature_map.unsketched(), 0
        if exact is not None:
            rows = len(frames) * exact.asked + count * exact.further_rows
            size = rows * exact.width(potential) * potential.dtype.itemsize
            exact, size = (exact, size) if size <= budget // 4 else (None, 0)
        feature_map.announce(potential, frames, budget, beside=size, taught=self.train)
        extract = (exact or feature_map).extract_and_predict
        found, predicted = extract(potential, frames, self.batch_size, budget, self.progress)
        # Not the features of the atoms, which take far more memory.
        self._predicted_train[:] = [Predictions(predicted.energies[:count], predicted.forces[:count])]
        check_finite(found[:count], "training set")
        check_finite(found[count:], "validation set")
        further = (exact or feature_map).further(potential, self.train, budget, self.progress)
        check_finite(further, "training set")

        def extracted(blocks: Tensor, further: Tensor, exact: Extracted | None = None) -> Extracted:
            train, valid = (TensorBlocks(part, feature_map.asked) for part in (blocks[:count], blocks[count:]))
            return Extracted(train, valid, further.flatten(0, 1), exact)

        if exact is None:
            return extracted(found, further)
        return extracted(feature_map.project(found), feature_map.project(further), extracted(found, further))

    def predicted_valid(self) -> Predictions:
        """What the model itself says of the validation structures."""
        if not self._predicted:
            self._predicted.append(self.member(0).predict(self.valid, self.batch_size, self.progress))
        return self._predicted[0]

    def predicted_train(self) -> Predictions | None:
        """What the model itself says of the training structures, if that fell off when blocks were extracted."""
        return self._predicted_train[0] if self._predicted_train else None


@short_repr
@dataclass
class GivenModel(Workbench):
    """A workbench with one trained model, for methods that need no others."""

    potential: Potential = field(kw_only=True)

    def member(self, number: int) -> Potential:
        if number > 0:
            raise InputError(ONE_MODEL)
        return self.potential
