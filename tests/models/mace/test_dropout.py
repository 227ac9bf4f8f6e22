import numpy as np
import pytest
import torch

from adaptntk.errors import InputError


def test_masks(tiny, ethanol_frames):
    """Energy and forces come from one mask: forces are the gradient of the energy of the same pass."""
    potential = tiny.with_dropout(0.5)

    def evaluate(structures, seed):
        with potential.dropout_enabled(), torch.random.fork_rng():
            torch.manual_seed(seed)
            return potential.predict(structures)

    first = evaluate(ethanol_frames[:2], seed=0)
    step = 1e-5
    moved = ethanol_frames[0].copy()
    moved.positions[0, 0] += step
    shifted = evaluate([moved, ethanol_frames[1]], seed=0)
    # Positions are centred, which does not change the energy.
    assert (shifted.energies[0] - first.energies[0]) / step == pytest.approx(-first.forces[0][0, 0], abs=1e-4)
    assert not np.allclose(evaluate(ethanol_frames[:2], seed=1).energies, first.energies)
    assert np.array_equal(potential.predict(ethanol_frames[:2]).energies, tiny.predict(ethanol_frames[:2]).energies)


def test_a_network_with_dropout_is_saved_as_a_stock_one(tiny, tmp_path):
    potential = tiny.with_dropout(0.5)
    potential.save(tmp_path / "a.model")
    saved = torch.load(tmp_path / "a.model", weights_only=False)
    assert [name for name, _ in saved.named_modules()] == [name for name, _ in tiny.module.named_modules()]
    assert any(isinstance(child, torch.nn.Dropout) for child in potential.module.modules())


def test_another_rate_takes_the_place_of_the_first(tiny, tmp_path):
    potential = tiny.with_dropout(0.1).with_dropout(0.2)
    assert [child.p for child in potential.module.modules() if isinstance(child, torch.nn.Dropout)] == [0.2]
    potential.save(tmp_path / "a.model")
    saved = torch.load(tmp_path / "a.model", weights_only=False)
    assert [name for name, _ in saved.named_modules()] == [name for name, _ in tiny.module.named_modules()]
    for rate in (0.0, 1.0, -1):
        with pytest.raises(InputError, match="rate must lie between"):
            tiny.with_dropout(rate)
