"""Files that earlier versions wrote: they open, and say what they said."""

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from adaptntk.data.structures import read_structures
from adaptntk.errors import InputError
from adaptntk.uncertainty.feature_model import FeatureModel
from adaptntk.uncertainty.file import load_fitted, read_header, save_fitted
from tests.conftest import DATA_FILES

OLD = DATA_FILES / "old_formats"
EXPECTED = json.loads((OLD / "expected.json").read_text())


@pytest.fixture(scope="module")
def pool():
    return read_structures(OLD / "pool.xyz")


def entries_of(fitted, pool):
    scores = fitted.score(pool)
    return [fitted.entries(scores, index, 0.9) for index in range(len(pool))]


@pytest.mark.parametrize("name", EXPECTED["score"])
def test_old_files_give_the_scores_they_gave(name, pool, tmp_path):
    fitted = load_fitted(OLD / name, device="cpu")
    for found, expected in zip(entries_of(fitted, pool), EXPECTED["score"][name], strict=True):
        assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-6)
    # Written again they are of the present format.
    save_fitted(fitted, tmp_path / "new.ntk")
    assert read_header(tmp_path / "new.ntk")["format"] == 4
    again = load_fitted(tmp_path / "new.ntk", device="cpu")
    for found, expected in zip(entries_of(again, pool), EXPECTED["score"][name], strict=True):
        assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-6)


def test_an_old_file_selects_what_it_selected(pool):
    fitted = load_fitted(OLD / "ntk-format-2.ntk", device="cpu")
    found = fitted.select(pool, len(EXPECTED["select"]))
    assert found.indices == [pick["pool_index"] for pick in EXPECTED["select"]]
    assert found.scores == pytest.approx([pick["score"] for pick in EXPECTED["select"]], rel=1e-6)


def test_an_old_store_is_used(pool, tmp_path, monkeypatch):
    shutil.copytree(OLD / "store", tmp_path / "store")
    fitted = load_fitted(OLD / "ntk-format-2.ntk", device="cpu")
    monkeypatch.setattr(FeatureModel, "extract", None)  # everything is there
    found = fitted.score(pool, store=tmp_path / "store").variance
    expected = [entry["ntk_variance"] for entry in EXPECTED["score"]["ntk-format-2.ntk"]]
    assert found.tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("header", [{"format": 99}, {"format": 1}, {"format": 2, "method": "ntk"}, {}])
def test_another_format_is_refused_in_one_line(header, tmp_path):
    save_file({"a": torch.zeros(2)}, tmp_path / "other.ntk", {"adaptntk": json.dumps(header)})
    with pytest.raises(InputError, match=f"written in format {header.get('format')}, this version reads up to 4") as no:
        load_fitted(tmp_path / "other.ntk")
    assert "\n" not in str(no.value)
