import numpy as np
import pytest
import torch

from adaptntk.errors import InputError
from adaptntk.uncertainty.baselines.dropout import Dropout, DropoutOptions
from adaptntk.uncertainty.method import Assessment


def test_the_score_is_the_spread_over_passes(fit_by_name, parts):
    method, frames = fit_by_name("dropout").method, parts["test"][:3]
    with method.potential.dropout_enabled(), torch.random.fork_rng():
        torch.manual_seed(method.seed)
        passes = [method.potential.predict(frames) for _ in range(4)]
    expected = Assessment.of_committee(passes)
    found = method.assess(frames)
    assert np.array_equal(found.score, expected.score)
    assert np.array_equal(found.forces[2], expected.forces[2])
    assert np.allclose(found.energies, np.mean([predicted.energies for predicted in passes], axis=0))
    assert (found.score > 0).all()


def test_masks_do_not_depend_on_what_was_drawn_before(fit_by_name, parts):
    method = fit_by_name("dropout").method
    before = method.assess(parts["test"][:3]).score
    state = torch.get_rng_state()
    torch.rand(5)
    assert np.array_equal(method.assess(parts["test"][:3]).score, before)
    torch.set_rng_state(state)
    other = Dropout(method.potential, method.rate, method.passes, method.seed + 1)
    assert not np.array_equal(other.assess(parts["test"][:3]).score, before)


def test_a_network_trained_with_dropout_is_saved_as_a_stock_one(workbench):
    workbench.dropout_member(0.1)
    module = torch.load(workbench.folder / "dropout-0.1.model", weights_only=False)
    assert not any(isinstance(child, torch.nn.Dropout) for child in module.modules())


def test_impossible_options():
    with pytest.raises(InputError, match="at least two passes"):
        DropoutOptions(passes=1)
    with pytest.raises(InputError, match="rate must lie between"):
        DropoutOptions(rate=1.0)
