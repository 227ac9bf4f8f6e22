import numpy as np
import pytest

from adaptntk.core.sketch.gaussian import GaussianSketch
from adaptntk.errors import InputError
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.workbench import GivenModel


def test_what_costs_something_is_done_once(tiny, parts, monkeypatch):
    bench = GivenModel(parts["train"][:8], parts["valid"][:5], potential=tiny)
    first, predicted = bench.extracted(EnergyGradients(GaussianSketch(16))), bench.predicted_valid()
    assert first.train.shape == (8, 1, 16)
    assert np.array_equal(predicted.energies, tiny.predict(parts["valid"][:5]).energies)
    other = bench.extracted(EnergyGradients(GaussianSketch(16, seed=1)))
    assert not np.allclose(other.train.tensor, first.train.tensor)
    monkeypatch.setattr(type(tiny), "energy_gradients", None)
    monkeypatch.setattr(type(tiny), "predict", None)
    assert bench.extracted(EnergyGradients(GaussianSketch(16))) is first
    assert bench.predicted_valid() is predicted


@pytest.mark.parametrize("name", ["ensemble", "dropout", "swag"])
def test_one_model_is_not_enough_for_every_method(name, given):
    with pytest.raises(InputError, match="none can be trained: use a FolderWorkbench"):
        fit(given, name)
