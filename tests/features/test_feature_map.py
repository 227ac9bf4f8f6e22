import pytest
import torch
from ase import Atoms

from adaptntk.errors import InputError
from adaptntk.features.feature_map import check_finite, choose_normalisation, size_powers


def test_normalisation_is_chosen_by_the_training_set(parts):
    water = Atoms("OH2", positions=[[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
    assert choose_normalisation("auto", parts["train"]) == "none"
    assert choose_normalisation("auto", [*parts["train"], water]) == "per_atom"
    assert choose_normalisation("sqrt_n", parts["train"]) == "sqrt_n"
    with pytest.raises(InputError, match="unknown normalisation 'often'"):
        choose_normalisation("often", parts["train"])
    assert size_powers([water, parts["train"][0]], 0.5).tolist() == [3**0.5, 3.0]


def test_any_row_of_a_block_may_be_the_bad_one():
    blocks = torch.zeros(4, 3, 2)
    check_finite(blocks, "pool")
    blocks[2, 1, 0] = torch.inf
    with pytest.raises(InputError, match="pool, frame 2: the model's gradient is NaN or infinite"):
        check_finite(blocks, "pool")
