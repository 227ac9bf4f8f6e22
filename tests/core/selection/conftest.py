import numpy as np
import pytest


@pytest.fixture
def bmdal(monkeypatch):
    """The reference implementation of Holzmüller et al. (2023): its module of rules, and features from rows."""
    monkeypatch.setattr(np, "Inf", np.inf, raising=False)  # the package was written for NumPy 1
    from bmdal_reg.bmdal import selection
    from bmdal_reg.bmdal.feature_data import TensorFeatureData
    from bmdal_reg.bmdal.feature_maps import IdentityFeatureMap
    from bmdal_reg.bmdal.features import Features

    def wrap(rows):
        return Features(IdentityFeatureMap(n_features=rows.shape[1]), TensorFeatureData(rows))

    return selection, wrap
