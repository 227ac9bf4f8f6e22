import hashlib
import io
import os
import tokenize
from pathlib import Path

import pytest
import torch

import adaptntk
from adaptntk.errors import InputError, ModelError
from adaptntk.models.family import EnergyReference, Family
from adaptntk.models.registry import FAMILIES, file_hash, find_family, load_potential, register_family
from adaptntk.models.torch_module import TorchModulePotential
from adaptntk.training.recipe import PRESETS, find_preset

SOURCE = Path(adaptntk.__file__).parent
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# What is measured there is MACE itself.
AT_HOME = [SOURCE / "models", BENCHMARKS / "cost", BENCHMARKS / "training", BENCHMARKS / "monitor" / "cost.py"]


class Spring(torch.nn.Module):
    """The simplest network: a spring from every atom to the centre."""

    def __init__(self):
        super().__init__()
        self.strength = torch.nn.Parameter(torch.tensor(0.5))

    def forward(self, positions, numbers):
        return self.strength * (positions - positions.mean(0)).square().sum()


class SpringFamily(Family):
    name = "spring"
    files = ".spring files"

    def recognises(self, path):
        return path.suffix == ".spring"

    def load(self, path, device, dtype, head):
        module = Spring()
        module.load_state_dict(torch.load(path, weights_only=True))
        return TorchModulePotential(module.to(device=device, dtype=dtype), source=str(path))


@pytest.fixture
def spring_file(tmp_path):
    register_family(SpringFamily())
    torch.save(Spring().state_dict(), tmp_path / "a.spring")
    yield tmp_path / "a.spring"
    del FAMILIES["spring"]


def test_files_are_recognised(spring_file, trained, ethanol_frames):
    spring = load_potential(spring_file, "cpu", dtype="float64")
    assert (spring.description, spring.dtype, spring.source) == ("Spring", torch.float64, str(spring_file))
    assert spring.predict(ethanol_frames[:1]).energies[0] > 0
    assert load_potential(trained.source, "cpu").fingerprint == trained.fingerprint
    # The fingerprint is that of the file, whatever weights are put into a copy.
    other = spring.copy()
    other.set_weights(2 * other.weights())
    assert spring.fingerprint == other.fingerprint == hashlib.sha256(spring_file.read_bytes()).hexdigest()


def test_a_file_with_another_name(spring_file, trained, tmp_path):
    """MACE's files are known by what is in them, those of others by the name of the family."""
    renamed = tmp_path / "downloaded"
    renamed.write_bytes(Path(trained.source).read_bytes())
    assert load_potential(renamed, "cpu").fingerprint == trained.fingerprint
    assert load_potential(f"mace:{renamed}", "cpu").fingerprint == trained.fingerprint
    other = spring_file.rename(tmp_path / "weights.pt")
    assert load_potential(f"spring:{other}", "cpu").description == "Spring"
    with pytest.raises(ModelError, match=r"no family of models recognises this file .*mace: .*spring: \.spring files"):
        load_potential(other)


def test_what_is_unknown_gets_one_line(tmp_path):
    with pytest.raises(InputError, match="unknown model family 'spring': choose one of mace"):
        load_potential("spring:a.model")
    with pytest.raises(ModelError, match=r"absent\.pt: no such file"):
        load_potential(tmp_path / "absent.pt")
    with pytest.raises(InputError, match="unknown dtype 'float8'"):
        load_potential(tmp_path / "a.model", dtype="float8")


def test_a_pipe_is_not_waited_for(tmp_path):
    for name in ("pipe.model", "pipe"):
        os.mkfifo(tmp_path / name)
        for path in (tmp_path / name, f"mace:{tmp_path / name}"):
            for look in (load_potential, file_hash):
                with pytest.raises(ModelError, match="no ordinary file"):
                    look(path)


def test_a_path_with_a_colon_is_a_path(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("run:3.model").write_bytes(Path(trained.source).read_bytes())
    assert load_potential("run:3.model", "cpu").fingerprint == trained.fingerprint


def test_a_family_that_only_loads_cannot_be_trained(spring_file):
    with pytest.raises(ModelError, match="'spring' cannot be trained"):
        find_family("spring").build(None, EnergyReference((1,), (0.0,), 1.0, 0.0), [], torch.float32, 0)
    with pytest.raises(InputError, match="'spring' has no preset 'small'"):
        find_preset("spring:small")
    assert find_preset("mace:small") == PRESETS["small"]


class _EntryPoint:
    name = "spring"

    def load(self):
        return SpringFamily


def test_installed_packages_may_offer_families(monkeypatch):
    monkeypatch.setattr("adaptntk.models.registry.entry_points", lambda group: [_EntryPoint()])
    try:
        assert find_family("spring").files == ".spring files"
    finally:
        FAMILIES.pop("spring", None)


def test_nothing_outside_models_names_mace():
    """No module, class, function or variable; the words of a docstring or of a help text may."""
    named = []
    for path in sorted({*SOURCE.rglob("*.py"), *BENCHMARKS.rglob("*.py")}):
        if any(path.is_relative_to(place) for place in AT_HOME):
            continue
        tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        names = {token.string for token in tokens if token.type == tokenize.NAME}
        named += [f"{path}: {name}" for name in names if "mace" in name.lower()]
    assert not named
