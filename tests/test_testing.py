"""The public checks find what is wrong."""

import dataclasses

import pytest
import torch

from adaptntk.core.selection.problem import Constraints, Selection
from adaptntk.core.selection.registry import SELECTORS
from adaptntk.progress import silent
from adaptntk.testing import check_method, check_rule
from adaptntk.uncertainty.baselines.random_numbers import RandomNumbers


class Restless(RandomNumbers):
    """Answers differently every time."""

    calls = 0

    def assess(self, structures, batch_size=16, progress=silent):
        type(self).calls += 1
        found = super().assess(structures, batch_size, progress)
        return dataclasses.replace(found, score=found.score + type(self).calls)


class Negative(RandomNumbers):
    def assess(self, structures, batch_size=16, progress=silent):
        found = super().assess(structures, batch_size, progress)
        return dataclasses.replace(found, score=-found.score)


class Relative(RandomNumbers):
    def assess(self, structures, batch_size=16, progress=silent):
        found = super().assess(structures, batch_size, progress)
        return dataclasses.replace(found, score=found.score / found.score.sum())


class Constant(RandomNumbers):
    def assess(self, structures, batch_size=16, progress=silent):
        found = super().assess(structures, batch_size, progress)
        return dataclasses.replace(found, score=found.score * 0 + 1)


class Forgetful(RandomNumbers):
    @classmethod
    def restore(cls, state):
        return cls(state.networks[0], state.settings["seed"] + 1)


class Careless(RandomNumbers):
    """Leaves a network as it was drawn."""

    def assess(self, structures, batch_size=16, progress=silent):
        found = super().assess(structures, batch_size, progress)
        self.potential.set_weights(self.potential.weights() + 1e-3)
        return found


class Demanding(RandomNumbers):
    @dataclasses.dataclass(frozen=True)
    class Options:
        needed: int


class Pretending(RandomNumbers):
    features = torch.zeros(3, 1, 2)


def test_a_good_method_passes(tiny, ethanol_frames):
    check_method(RandomNumbers(tiny, 0), ethanol_frames[:8])


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (Restless, "same question"),
        (Negative, "cannot be negative"),
        (Relative, "single structure"),
        (Constant, "same for all"),
        (Forgetful, "restored from its state"),
        (Careless, "did not put them back"),
        (Demanding, "must have a default: needed"),
        (Pretending, "must be a FeatureModel"),
    ],
)
def test_a_bad_method_is_found_out(kind, cause, tiny, ethanol_frames):
    with pytest.raises(AssertionError, match=cause):
        check_method(kind(tiny.copy(), 0), ethanol_frames[:8])


def forgets_what_is_excluded(problem):
    constraints = dataclasses.replace(problem.constraints, excluded=None)
    return SELECTORS["topb"](dataclasses.replace(problem, constraints=constraints))


def forgets_groups(problem):
    constraints = Constraints(problem.constraints.excluded)
    return SELECTORS["topb"](dataclasses.replace(problem, constraints=constraints))


def repeats_itself(problem):
    found = SELECTORS["topb"](problem)
    return Selection(found.indices[:1] * problem.count, found.criteria[:1] * problem.count)


def reads_one_row_only(problem):
    """Assumes that row i is structure i."""
    rows = problem.features.candidates[:].flatten(0, 1)
    order = rows.square().sum(1).argsort(descending=True).tolist()
    allowed = [i for i in order if not (problem.constraints.excluded or [False] * len(rows))[i]]
    chosen, groups = [], problem.constraints.groups
    for index in allowed:
        if groups is None or sum(groups[i] == groups[index] for i in chosen) < problem.constraints.per_group_max:
            chosen.append(index)
    problem.constraints.check(problem.count, len(problem))
    return Selection(chosen[: problem.count], [0.0] * problem.count)


def takes_what_there_is(problem):
    excluded = problem.constraints.excluded
    available = len(problem) - sum(excluded or ())
    return SELECTORS["topb"](dataclasses.replace(problem, count=min(problem.count, available)))


def changes_its_input(problem):
    found = SELECTORS["topb"](problem)
    problem.features.candidates.tensor.mul_(2)
    return found


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        (forgets_what_is_excluded, "excluded"),
        (forgets_groups, "too many picks of one group"),
        (repeats_itself, "picked twice"),
        (takes_what_there_is, "must be refused"),
        (changes_its_input, "input was changed"),
    ],
)
def test_a_bad_rule_is_found_out(rule, cause):
    with pytest.raises(AssertionError, match=cause):
        check_rule(rule)


def test_a_rule_for_one_row_per_structure_is_found_out():
    with pytest.raises((AssertionError, IndexError)):
        check_rule(reads_one_row_only)
