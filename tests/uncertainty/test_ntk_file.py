import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from adaptntk.uncertainty.ntk import NTKUncertainty
from adaptntk.uncertainty.ntk_file import load_uncertainty, read_header, save_uncertainty
from safetensors import safe_open
from safetensors.torch import save_file

from adaptntk.core.sketch.gaussian import NoSketch
from adaptntk.errors import InputError, MismatchError
from adaptntk.models.registry import load_potential
from tests.conftest import tiny_network


def test_round_trip(ntk_file, fitted, parts):
    again = load_uncertainty(ntk_file)
    a, b = fitted.score(parts["pool"]), again.score(parts["pool"])
    assert np.allclose(a.variance, b.variance, rtol=1e-6)
    assert np.allclose(a.sigma, b.sigma, rtol=1e-6)
    assert np.allclose(a.energy_sigma, b.energy_sigma, rtol=1e-6)
    assert again.train_hashes == fitted.train_hashes
    assert again.sketch == fitted.sketch


def test_exact_files_round_trip(trained, parts, tmp_path):
    exact = NTKUncertainty.fit(trained, parts["train"], NoSketch())
    save_uncertainty(exact, tmp_path / "exact.ntk")
    again = load_uncertainty(tmp_path / "exact.ntk", potential=trained)
    assert np.allclose(exact.score(parts["pool"]).variance, again.score(parts["pool"]).variance, rtol=1e-6)
    assert again.calibration is None


def test_it_is_a_safetensors_file_with_a_readable_header(ntk_file, fitted):
    with safe_open(ntk_file, framework="pt") as file:
        header = json.loads(file.metadata()["adaptntk"])
    assert header == read_header(ntk_file)
    assert header["format"] == 2
    assert header["sketch"] == {"kind": "gaussian", "dim": 512, "seed": 0}
    assert header["model_sha256"] == fitted.potential.fingerprint
    assert header["model"] == "ethanol.model"
    assert header["calibration"]["thresholds"]["0.9"]["error_over_sigma"] > 0
    assert header["calibration"]["thresholds"]["0.95"].keys() == {"error_over_sigma", "ntk_variance"}


def test_the_pair_can_be_moved_together(ntk_file, fitted, parts, tmp_path):
    for path in (ntk_file, Path(fitted.potential.source)):
        shutil.copy(path, tmp_path)
    assert load_uncertainty(tmp_path / "ethanol.ntk").potential.source == str(tmp_path / "ethanol.model")


def test_a_moved_model_must_be_pointed_to(ntk_file, fitted, tmp_path):
    shutil.copy(ntk_file, tmp_path)
    with pytest.raises(InputError, match="say where with --model"):
        load_uncertainty(tmp_path / "ethanol.ntk")
    load_uncertainty(tmp_path / "ethanol.ntk", model=fitted.potential.source)


def test_another_model_is_refused_with_both_hashes(ntk_file, fitted, tmp_path):
    other = load_potential(fitted.potential.source)
    with torch.no_grad():
        next(other.module.parameters())[0] += 1e-3
    other.save(tmp_path / "other.model")
    with pytest.raises(MismatchError) as caught:
        load_uncertainty(ntk_file, model=tmp_path / "other.model")
    assert fitted.potential.fingerprint in str(caught.value)
    assert load_potential(tmp_path / "other.model").fingerprint in str(caught.value)


def test_another_head_is_refused(ntk_file, fitted):
    potential = load_potential(fitted.potential.source)
    potential.head = "ccsd"
    with pytest.raises(MismatchError, match="fitted for head 'Default' of the model, not 'ccsd'"):
        load_uncertainty(ntk_file, potential=potential)


def test_another_list_of_parameters_is_refused(ntk_file, fitted):
    module = tiny_network(torch.float32, numbers=(1, 6)).module
    impostor = type(fitted.potential)(module, fitted.potential.fingerprint)
    with pytest.raises(MismatchError, match="parameter list"):
        load_uncertainty(ntk_file, potential=impostor)


def test_files_that_are_none(ntk_file, tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load_uncertainty(tmp_path / "absent.ntk")
    for name, content in (("junk.ntk", b"junk"), ("cut.ntk", ntk_file.read_bytes()[:2000]), ("empty.ntk", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=r"not a \.ntk file, or truncated"):
            load_uncertainty(tmp_path / name)
    save_file({"a": torch.zeros(2)}, tmp_path / "other.ntk", {"adaptntk": json.dumps({"format": 99})})
    with pytest.raises(InputError, match="written in format 99"):
        load_uncertainty(tmp_path / "other.ntk")
