import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from adaptntk.errors import InputError, ModelError
from adaptntk.models.family import EnergyReference
from adaptntk.models.mace.family import PAPER, SMALL, build_network
from adaptntk.models.mace.stock import modules, o3, quiet
from adaptntk.models.protocol import parameter_count
from adaptntk.models.registry import load_potential
from adaptntk.testing import check_potential
from tests.conftest import tiny_network


def test_gradients_switched_off_by_the_mace_calculator_are_switched_on(tmp_path):
    network = tiny_network().module
    for p in network.parameters():
        p.requires_grad_(False)
    torch.save(network, tmp_path / "frozen.model")
    assert parameter_count(load_potential(tmp_path / "frozen.model")) == sum(p.numel() for p in network.parameters())


def test_parameters_frozen_on_purpose_stay_out(tmp_path):
    network = tiny_network().module
    network.node_embedding.linear.weight.requires_grad_(False)
    torch.save(network, tmp_path / "partly.model")
    names = [name for name, _ in load_potential(tmp_path / "partly.model").parameters()]
    assert "node_embedding.linear.weight" not in names
    assert len(names) == len(list(network.parameters())) - 1


def test_precision_can_be_chosen(tmp_path, ethanol_frames):
    torch.save(tiny_network(torch.float32).module, tmp_path / "a.model")
    single, double = (load_potential(tmp_path / "a.model", dtype=d) for d in (None, "float64"))
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    assert single.predict(ethanol_frames[:1]).energies == pytest.approx(
        double.predict(ethanol_frames[:1]).energies, abs=1e-4
    )
    with pytest.raises(InputError, match="unknown dtype"):
        load_potential(tmp_path / "a.model", dtype="float16")


def multi_head_network(heads):
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with quiet():
            return modules.ScaleShiftMACE(
                r_max=4.0,
                num_bessel=4,
                num_polynomial_cutoff=5,
                max_ell=1,
                interaction_cls=modules.RealAgnosticResidualInteractionBlock,
                interaction_cls_first=modules.RealAgnosticResidualInteractionBlock,
                num_interactions=2,
                num_elements=3,
                hidden_irreps=o3.Irreps("4x0e + 4x1o"),
                MLP_irreps=o3.Irreps("4x0e"),
                atomic_energies=np.array([[-1.0, -2.0, -3.0]] * len(heads)),
                avg_num_neighbors=8.0,
                atomic_numbers=[1, 6, 8],
                correlation=2,
                gate=torch.nn.functional.silu,
                radial_MLP=[8],
                heads=heads,
                atomic_inter_scale=[1.0] * len(heads),
                atomic_inter_shift=[0.0] * len(heads),
            )
    finally:
        torch.set_default_dtype(default)


def test_multi_head_models(tmp_path, ethanol_frames):
    torch.save(multi_head_network(["dft", "ccsd"]), tmp_path / "heads.model")
    with pytest.raises(ModelError, match="choose one with --head"):
        load_potential(tmp_path / "heads.model")
    with pytest.raises(ModelError, match="no head 'hf'"):
        load_potential(tmp_path / "heads.model", head="hf")
    a, b = (load_potential(tmp_path / "heads.model", head=head) for head in ("dft", "ccsd"))
    check_potential(a, ethanol_frames[:2])
    assert a.predict(ethanol_frames[:1]).energies != b.predict(ethanol_frames[:1]).energies
    rows = [p.energy_gradients([p.graph(ethanol_frames[0])]) for p in (a, b)]
    assert rows[0].shape == rows[1].shape
    assert not torch.allclose(rows[0], rows[1])


def test_a_head_called_default_is_taken(tmp_path):
    torch.save(multi_head_network(["Default", "pt_head"]), tmp_path / "heads.model")
    assert load_potential(tmp_path / "heads.model").head == "Default"


def test_a_model_trained_by_mace_itself(files, parts, tmp_path):
    """`mace_run_train` writes it in float64 with its own settings; we read it."""
    command = [
        sys.executable, "-W", "ignore", "-m", "mace.cli.run_train", "--name=stock", f"--train_file={files['train']}",
        f"--valid_file={files['valid']}", "--E0s=average", "--hidden_irreps=4x0e + 4x1o", "--max_ell=1",
        "--correlation=1", "--r_max=4.0", "--batch_size=20", "--max_num_epochs=1", "--device=cpu",
        f"--work_dir={tmp_path}", "--radial_MLP=[8]", "--eval_interval=1", "--seed=1", "--num_radial_basis=4",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    potential = load_potential(tmp_path / "stock.model")
    assert potential.dtype == torch.float64
    check_potential(potential, parts["test"][:2])


def write_bytes(path, content):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a MACE model file, or truncated"),
        (b"hello world, this is no model", "not a MACE model file, or truncated"),
        (pickle.dumps({"weights": 1}), "not a MACE model file, or truncated"),
    ],
)
def test_files_that_are_no_models(tmp_path, content, message):
    with pytest.raises(ModelError, match=message) as caught:
        load_potential(write_bytes(tmp_path / "bad.model", content))
    assert "\n" not in str(caught.value)


def test_other_things_that_torch_saves(tmp_path):
    path = tmp_path / "thing.model"
    for thing, message in (
        (tiny_network().module.state_dict(), "checkpoint of weights"),
        (torch.nn.Linear(2, 2), "holds a Linear"),
        ([1, 2], "holds a list"),
    ):
        torch.save(thing, path)
        with pytest.raises(ModelError, match=message):
            load_potential(path)
    with pytest.raises(ModelError, match="cannot be read"):
        load_potential(tmp_path / "absent.model")


def test_truncated_model(trained, tmp_path):
    content = Path(trained.source).read_bytes()
    with pytest.raises(ModelError, match="truncated"):
        load_potential(write_bytes(tmp_path / "cut.model", content[: len(content) // 2]))


def test_architectures_have_the_sizes_they_should():
    def count(architecture, elements):
        reference = EnergyReference(tuple(range(1, elements + 1)), (0.0,) * elements, 1.0, 0.0)
        network = build_network(architecture, reference, 10.0, torch.float32, seed=0)
        return sum(p.numel() for p in network.parameters())

    assert count(PAPER, 3) == 724_240
    assert count(PAPER, 4) == 811_664
    assert count(SMALL, 3) == 15_712


def test_building_is_seeded_and_leaves_global_state_alone():
    state, dtype = torch.get_rng_state(), torch.get_default_dtype()
    weights = [torch.cat([p.flatten() for _, p in tiny_network(seed=s).parameters()]) for s in (1, 1, 2)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_default_dtype() == dtype
