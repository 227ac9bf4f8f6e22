import pytest
import torch
from ase import Atoms

from adaptntk.errors import InputError
from adaptntk.models.protocol import check_species, choose_device


def test_unknown_elements_are_named(tiny):
    with pytest.raises(InputError, match=r"pool\.xyz, frame 1: the model does not know the element S .*H, C, O"):
        check_species(tiny, [Atoms("H2", positions=[[0, 0, 0], [0, 0, 0.7]]), Atoms("S")], "pool.xyz")


def test_devices():
    assert choose_device("cpu").type == "cpu"
    with pytest.raises(InputError, match="cannot be used"):
        choose_device("abacus")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="cannot be used"):
            choose_device("cuda")
