"""What a label teaches about the stress, if asked to."""

import numpy as np
import pytest

from adaptntk.errors import InputError
from adaptntk.uncertainty.feature_method import NTKOptions
from adaptntk.uncertainty.file import load_fitted, save_fitted
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.workbench import GivenModel
from tests.conftest import tiny_network
from tests.crystals import strained_metals

EXACT = {"force_rows": 4, "committee": 16, "sketch": "none"}


@pytest.fixture(scope="module")
def metals():
    return strained_metals(30, sizes=(1, 2))


@pytest.fixture(scope="module")
def bench(metals):
    return GivenModel(metals[:6], metals[6:20], potential=tiny_network(numbers=(29,)))


def stress_variance(fitted, frames):
    changes = fitted.check_committee().changes(frames, stress=True, energies=False)
    return np.mean([change.stress_variance.mean() for change in changes])


def test_strain_rows_tell_the_committee_about_the_stress(bench, metals, tmp_path):
    """Of the structures that taught it, and of others like them; the file brings back the same."""
    without, fitted = (fit(bench, "ntk", EXACT | {"strain_rows": rows}) for rows in (0, 8))
    for frames in (metals[:6], metals[20:]):
        assert stress_variance(fitted, frames) < 0.7 * stress_variance(without, frames)
    save_fitted(fitted, tmp_path / "a.ntk")
    again = load_fitted(tmp_path / "a.ntk", potential=fitted.potential)
    assert again.features.feature_map == fitted.features.feature_map
    assert stress_variance(again, metals[20:]) == pytest.approx(stress_variance(fitted, metals[20:]), rel=1e-9)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"strain_rows": -1}, "strain rows must be 0 to 1000"),
        ({"strain_rows": 2, "features": "energy"}, "strain rows are of joint features"),
    ],
)
def test_what_cannot_be(options, why):
    with pytest.raises(InputError, match=why):
        NTKOptions(**options)
