import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from adaptntk.models.protocol import Predictions
from adaptntk.uncertainty.method import Assessment, ScoresOnly


def test_spread_by_hand():
    a = Predictions(np.array([1.0]), [np.array([[0.0, 0.0, 0.0]])])
    b = Predictions(np.array([4.0]), [np.array([[2.0, 0.0, 4.0]])])
    found = Assessment.of_committee([a, b])
    assert found.kind == "std"
    assert found.score[0] == pytest.approx((math.sqrt(2) + 0 + 2 * math.sqrt(2)) / 3)
    assert found.forces[0].tolist() == [[1.0, 0.0, 2.0]]
    assert found.energies.tolist() == [2.5]


def test_a_standard_deviation_is_squared():
    score = np.array([0.5, 2.0])
    assert Assessment(score, "std", np.zeros(2), []).variance.tolist() == [0.25, 4.0]
    assert Assessment(score, "variance", np.zeros(2), []).variance.tolist() == [0.5, 2.0]


@dataclass(frozen=True)
class Example(ScoresOnly):
    weights: torch.Tensor
    potential: object
    power: float
    label: str


def test_the_state_of_a_method_is_its_fields(tiny):
    method = Example(torch.arange(3.0), tiny, 0.5, "x")
    state = method.state()
    assert state.networks == (tiny,)
    assert state.tensors.keys() == {"weights"}
    assert state.settings == {"power": 0.5, "label": "x"}
    assert Example.restore(state) == method
