import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from adaptntk.errors import InputError, MismatchError
from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.registry import load_potential
from adaptntk.uncertainty.file import load_fitted, read_header, save_fitted
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.workbench import GivenModel
from tests.conftest import tiny_network
from tests.uncertainty.ntk_files import contents_of, write_contents


def test_round_trip(ntk_file, fitted, parts, tmp_path):
    again = load_fitted(ntk_file, device="cpu")
    a, b = fitted.score(parts["pool"]), again.score(parts["pool"])
    for name in ("variance", "sigma", "energy_sigma"):
        assert np.allclose(getattr(a, name), getattr(b, name), rtol=1e-6)
    assert again.train_hashes == fitted.train_hashes
    assert again.features.feature_map == fitted.features.feature_map
    assert again.features.ridge == fitted.features.ridge
    assert again.features.sketch_check == fitted.features.sketch_check
    assert again.learnt == fitted.learnt
    assert again.learnt is not None
    # What is written again is the same file, but for where the model is.
    save_fitted(again, tmp_path / "again.ntk")
    first, second = read_header(ntk_file), read_header(tmp_path / "again.ntk")
    assert (tmp_path / second["networks"][0].pop("path")).resolve() == (ntk_file.parent / "ethanol.model").resolve()
    assert first["networks"][0].pop("path") == "ethanol.model"
    assert first.pop("checksum") != second.pop("checksum")  # the path is part of it
    assert first == second


def test_a_file_need_not_say_how_far_the_model_came(ntk_file, tmp_path):
    header, tensors = contents_of(ntk_file)
    path, model = tmp_path / "before.ntk", ntk_file.parent / "ethanol.model"
    write_contents(path, {key: value for key, value in header.items() if key != "learnt"}, tensors)
    before = load_fitted(path, model, "cpu")
    assert before.learnt is None
    save_fitted(before, tmp_path / "again.ntk")
    assert "learnt" not in read_header(tmp_path / "again.ntk")
    for damage in ({"gain": 2.0}, {"train": -1.0}, {"valid": "low"}, {"other": 1}):
        write_contents(path, header | {"learnt": header["learnt"] | damage}, tensors)
        with pytest.raises(InputError, match=r"before.ntk: was changed or damaged \(header.learnt"):
            load_fitted(path, model, "cpu")


def test_exact_files_round_trip(trained, parts, tmp_path):
    exact = fit(GivenModel(parts["train"], potential=trained), "ntk", {"sketch": "none"})
    save_fitted(exact, tmp_path / "exact.ntk")
    again = load_fitted(tmp_path / "exact.ntk", potential=trained)
    assert np.allclose(exact.score(parts["pool"]).variance, again.score(parts["pool"]).variance, rtol=1e-6)
    assert again.calibration is None


def test_it_is_a_safetensors_file_with_a_readable_header(ntk_file, fitted):
    with safe_open(ntk_file, framework="pt") as file:
        header = json.loads(file.metadata()["adaptntk"])
    assert header == read_header(ntk_file)
    assert (header["format"], header["method"]) == (4, "ntk")
    sketch = {"kind": "sparse", "dim": 788, "seed": 0}
    expected = {"map": "energy", "normalise": "per_atom", "sketch": sketch, "force_rows": 16}
    assert header["settings"]["features"] == expected
    assert header["settings"]["committee"].keys() == {"members", "seed", "step", "precision"}
    assert header["networks"] == [{"path": "ethanol.model", "sha256": fitted.potential.fingerprint, "family": "mace"}]
    assert header["calibration"]["thresholds"]["0.9"]["error_over_sigma"] > 0
    assert header["calibration"]["thresholds"]["0.95"].keys() == {"error_over_sigma", "ntk_variance"}


def test_the_pair_can_be_moved_together(ntk_file, fitted, tmp_path):
    for path in (ntk_file, Path(fitted.potential.source)):
        shutil.copy(path, tmp_path)
    assert load_fitted(tmp_path / "ethanol.ntk").potential.source == str(tmp_path / "ethanol.model")


def test_a_moved_model_must_be_pointed_to(ntk_file, fitted, tmp_path):
    shutil.copy(ntk_file, tmp_path)
    with pytest.raises(InputError, match="say where with --model"):
        load_fitted(tmp_path / "ethanol.ntk")
    load_fitted(tmp_path / "ethanol.ntk", model=fitted.potential.source)


def test_another_model_is_refused_with_both_hashes(ntk_file, fitted, tmp_path):
    other = load_potential(fitted.potential.source)
    with torch.no_grad():
        next(other.module.parameters())[0] += 1e-3
    other.save(tmp_path / "other.model")
    with pytest.raises(MismatchError) as caught:
        load_fitted(ntk_file, model=tmp_path / "other.model")
    assert fitted.potential.fingerprint in str(caught.value)
    assert load_potential(tmp_path / "other.model").fingerprint in str(caught.value)


def test_every_network_must_be_the_right_one(fit_by_name, workbench, tmp_path):
    file = tmp_path / "committee.uq"
    save_fitted(fit_by_name("ensemble"), file)
    with pytest.raises(MismatchError, match="model SHA-256"):
        load_fitted(file, model=workbench.member(1).source)
    header, tensors = contents_of(file)
    header["networks"][1]["sha256"] = "0" * 64
    write_contents(file, header, tensors)
    with pytest.raises(MismatchError, match="network 1 SHA-256"):
        load_fitted(file)
    header["networks"][1]["path"] = "elsewhere.model"
    write_contents(file, header, tensors)
    with pytest.raises(InputError, match="put it back, or fit again"):
        load_fitted(file)


def test_another_head_is_refused(ntk_file, fitted):
    potential = load_potential(fitted.potential.source)
    potential.head = "ccsd"
    with pytest.raises(MismatchError, match="fitted for head 'Default' of the model, not 'ccsd'"):
        load_fitted(ntk_file, potential=potential)


def test_another_list_of_parameters_is_refused(ntk_file, fitted):
    module = tiny_network(torch.float32, numbers=(1, 6)).module
    impostor = MACEPotential(module, fitted.potential.fingerprint)
    with pytest.raises(MismatchError, match="parameter list"):
        load_fitted(ntk_file, potential=impostor)


def test_a_model_without_a_file_must_be_passed(tiny, parts, tmp_path):
    save_fitted(fit(GivenModel(parts["train"][:12], potential=tiny)), tmp_path / "a.ntk")
    with pytest.raises(InputError, match="without a file; pass the potential"):
        load_fitted(tmp_path / "a.ntk")
    assert load_fitted(tmp_path / "a.ntk", potential=tiny).potential is tiny


def test_files_that_are_none(ntk_file, tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load_fitted(tmp_path / "absent.ntk")
    for name, content in (("junk.ntk", b"junk"), ("cut.ntk", ntk_file.read_bytes()[:2000]), ("empty.ntk", b"")):
        (tmp_path / name).write_bytes(content)
        for read in (load_fitted, read_header):
            with pytest.raises(InputError, match=r"not a \.ntk file, or truncated" if content else "the file is empty"):
                read(tmp_path / name)
