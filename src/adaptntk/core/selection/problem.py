"""What a rule for choosing a batch is given, what the batch must respect, and what the rule returns."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from adaptntk.core.blocks import Blocks, TensorBlocks, as_blocks, asked_rows, sum_over_asked
from adaptntk.core.posterior import FeaturePosterior, sequential_variances
from adaptntk.errors import InputError
from adaptntk.representation import short_repr


@short_repr
@dataclass(frozen=True)
class Constraints:
    """What a batch must respect besides its size.

    Args:
        excluded: candidates that must not be picked (labelled already).
        min_separation: smallest allowed distance of two picks, ``|w(x) - w(z)|^2 / (U(x) + U(z))`` under the
            posterior before the batch: 0 for the same structure, 1 for unrelated ones, whatever the scale. From 0 to 1.
        groups: a label per candidate, and
        per_group_max: how many picks may share a label.
    """

    excluded: Sequence[bool] | None = None
    min_separation: float = 0.0
    groups: Sequence[Hashable] | None = None
    per_group_max: int | None = None

    def without(self, left_out: Sequence[bool]) -> "Constraints":
        """The same, with further candidates that must not be picked."""
        excluded = self.excluded or [False] * len(left_out)
        return replace(self, excluded=[bool(a or b) for a, b in zip(excluded, left_out, strict=True)])

    def check(self, count: int, candidates: int) -> None:
        """Refuse what cannot be satisfied, before any work is done."""
        if count < 1:
            raise InputError(f"cannot pick {count} structures: ask for at least one")
        if not 0 <= self.min_separation <= 1:
            what = f"the smallest separation of two picks is {self.min_separation:g}"
            raise InputError(f"{what}: it lies between 0 (the same structure) and 1 (unrelated ones)")
        if self.per_group_max is not None and self.per_group_max < 1:
            raise InputError(f"at most {self.per_group_max} picks per group leaves none: allow at least one")
        available = candidates - sum(self.excluded or ())
        if available < count:
            raise InputError(f"{count} structures asked for, but only {available} candidates may be picked")


@dataclass(frozen=True)
class Selection:
    """Picks in order, each with what the rule looked at.

    That is ``U`` after the picks before it for the sequential rule, ``U`` before the batch for ``topb`` and ``random``,
    the squared distance to the nearest centre for the rules of distances, the fall of the summed variance for ``bait``.
    """

    indices: list[int] = field(default_factory=list)
    criteria: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    """For the sequential rule: ``(U1 - U2)/(2 lam + U1 + U2)`` at each step, the corollary's margin."""
    scores: list[float] = field(default_factory=list)
    """``U`` of each pick given those before it, whatever the rule; `registry.select` adds them."""

    def add(self, index: int, criterion: float) -> None:
        """Append a pick; only a rule that is at work calls this."""
        self.indices.append(index)
        self.criteria.append(criterion)


@short_repr
@dataclass(frozen=True)
class Labels:
    """What labels of candidates would teach beyond their blocks: so many rows each, made when they are asked for.

    ``make`` turns numbers of candidates into rows, (candidates, rows, width); none is made twice.
    """

    rows: int
    make: Callable[[list[int]], Tensor]
    made: dict[int, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def of(self, indices: Sequence[int]) -> Tensor:
        """The rows of these candidates."""
        missing = [index for index in indices if index not in self.made]
        if missing:
            self.made.update(zip(missing, self.make(missing), strict=True))
        return torch.stack([self.made[index] for index in indices])


@short_repr
@dataclass(frozen=True)
class FeatureSpace:
    """Where structures are: the posterior, the blocks of the training structures and those of the candidates.

    ``labels`` are there where a label of a candidate would teach more than its block, and ``aims`` makes the rows (of
    forces) whose variance is to become small.
    """

    posterior: FeaturePosterior
    training: Blocks
    candidates: Blocks
    labels: Labels | None = None
    aims: Callable[[], Tensor] | None = None


@short_repr
@dataclass(frozen=True)
class Problem:
    """How many structures are to be chosen from what: from features, or from scores where there are none.

    ``weights``, one for each candidate, multiply the scores that candidates are compared by, now and after each pick.
    """

    source: FeatureSpace | Tensor
    count: int
    constraints: Constraints = Constraints()
    seed: int = 0
    weights: Tensor | None = None

    @classmethod
    def of_features(
        cls,
        posterior: FeaturePosterior,
        training: Tensor | Blocks,
        candidates: Tensor | Blocks,
        count: int,
        constraints: Constraints | None = None,
        seed: int = 0,
    ) -> "Problem":
        """``training`` and ``candidates`` are blocks of rows; a matrix is one row for each structure."""
        space = FeatureSpace(posterior, as_blocks(training), as_blocks(candidates))
        return cls(space, count, constraints or Constraints(), seed)

    @classmethod
    def of_scores(cls, scores: Tensor, count: int, constraints: Constraints | None = None, seed: int = 0) -> "Problem":
        """One number per candidate is all that is known."""
        return cls(scores, count, constraints or Constraints(), seed)

    @cached_property
    def scores(self) -> Tensor:
        """``U`` of every candidate before the batch."""
        if isinstance(self.source, Tensor):
            return self.source
        return self.source.posterior.variance(self.source.candidates)

    def weighted(self, scores: Tensor, indices: Tensor | None = None) -> Tensor:
        """Scores of all candidates, or of some, times their weights."""
        if self.weights is None:
            return scores
        return scores * (self.weights if indices is None else self.weights[indices])

    def scores_when_picked(self, indices: Sequence[int], labelled: bool = False) -> list[float]:
        """``U`` of each of these picks given those before it; before the batch, where there are only scores.

        With all that labels of those before it would teach, if ``labelled``; else with their blocks.
        """
        chosen = torch.tensor(indices, dtype=torch.int64)
        if isinstance(self.source, Tensor):
            return self.source[chosen.to(self.source.device)].tolist()
        picks, asked = self.source.candidates[chosen], self.source.candidates.asked
        if labelled and self.source.labels is not None:
            picks = torch.cat([picks.double(), self.source.labels.of(indices).double()], dim=1)
        return sequential_variances(self.source.posterior, TensorBlocks(picks, asked)).tolist()

    @property
    def features(self) -> FeatureSpace:
        """The features, for rules that need them."""
        if isinstance(self.source, Tensor):
            raise InputError("this rule needs features, and there are only scores: use topb or random")
        return self.source

    def __len__(self) -> int:
        """The number of candidates."""
        return len(self.source if isinstance(self.source, Tensor) else self.source.candidates)

    def generator(self) -> torch.Generator:
        """Of random numbers, on the CPU: the same picks on every device."""
        return torch.Generator().manual_seed(self.seed)


class Allowed:
    """Which candidates may still be picked."""

    def __init__(self, problem: Problem) -> None:
        constraints = problem.constraints
        constraints.check(problem.count, len(problem))
        self.problem = problem
        self.picked = 0
        source = problem.source if isinstance(problem.source, Tensor) else problem.source.candidates[:0]
        self.open = torch.ones(len(problem), dtype=torch.bool, device=source.device)
        if constraints.excluded is not None:
            self.open &= ~torch.as_tensor(list(constraints.excluded), device=source.device)
        self.group_counts: Counter[Hashable] = Counter()
        if constraints.min_separation > 0:
            self.variance = problem.features.posterior.variance(problem.features.candidates)

    def pick(self, index: int) -> None:
        """Close a candidate, and with it those that are too close to it or of a group that is full."""
        self.picked += 1
        self.open[index] = False
        constraints = self.problem.constraints
        if constraints.min_separation > 0:
            total = self.variance + self.variance[index]
            self.open &= (total - 2 * self._covariance(index)) >= constraints.min_separation * total
        if constraints.groups is not None and constraints.per_group_max is not None:
            group = constraints.groups[index]
            self.group_counts[group] += 1
            if self.group_counts[group] >= constraints.per_group_max:
                self.open &= torch.tensor([other != group for other in constraints.groups], device=self.open.device)

    def check_open(self) -> None:
        """Say so when nothing is left and the batch is not complete."""
        if not bool(self.open.any()):
            found = f"only {self.picked} of the {self.problem.count} structures asked for satisfy the constraints"
            raise InputError(f"{found}: ask for fewer, lower --min-separation or raise the limit per group")

    def _covariance(self, index: int) -> Tensor:
        """Of every candidate with one of them, row by row of what is asked."""
        space = self.problem.features
        asked = space.candidates.asked
        own = space.posterior.representers(asked_rows(space.candidates[torch.tensor([index])], asked))

        def products(rows: Tensor) -> Tensor:
            return (rows.view(-1, asked, rows.shape[1]).double() * own).sum(2).view(-1)

        return sum_over_asked(space.candidates, products)
