import numpy as np

from adaptntk.core.metrics import spearman


def test_it_ranks_by_energy(fit_by_name, parts):
    method = fit_by_name("energy").method
    found = method.assess(parts["test"])
    assert spearman(found.score, found.energies) > 0.99
    lowest = (method.potential.predict(parts["train"]).energies / 9).min()
    assert np.allclose(found.score, np.maximum(found.energies / 9 - lowest, 0), atol=1e-9)
