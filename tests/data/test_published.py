from pathlib import Path

import numpy as np
import pytest

from adaptntk.data.published import data_directory, data_file, load_rmd17, read_rmd17
from adaptntk.data.structures import ENERGY, FORCES
from adaptntk.errors import InputError

KCAL = 0.0433641153


def write_npz(folder, **changes):
    content = {
        "nuclear_charges": np.array([8, 1, 1]),
        "coords": np.array([[[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]]] * 2) + np.array([0, 0.001])[:, None, None],
        "energies": np.array([-100.0, -99.0]),
        "forces": np.ones((2, 3, 3)),
    } | changes
    (folder / "rmd17").mkdir()
    np.savez(folder / "rmd17" / "rmd17_aspirin.npz", **{k: v for k, v in content.items() if v is not None})


def test_units_are_converted_at_the_door(tmp_path):
    write_npz(tmp_path)
    frames = load_rmd17("aspirin", tmp_path)
    assert [a.info[ENERGY] for a in frames] == pytest.approx([-100 * KCAL, -99 * KCAL])
    assert np.allclose(frames[0].arrays[FORCES], KCAL)


def test_missing_file_says_where_it_is_published_and_where_to_put_it(tmp_path):
    with pytest.raises(InputError) as caught:
        load_rmd17("aspirin", tmp_path)
    text = str(caught.value)
    assert "figshare" in text
    assert str(tmp_path / "rmd17" / "rmd17_aspirin.npz") in text
    assert "ADAPTNTK_DATA" in text


def test_wrong_files(tmp_path):
    with pytest.raises(InputError, match="choose one of aspirin"):
        load_rmd17("caffeine", tmp_path)
    write_npz(tmp_path, forces=None)
    with pytest.raises(InputError, match="lacks forces"):
        load_rmd17("aspirin", tmp_path)
    path = tmp_path / "rmd17" / "rmd17_aspirin.npz"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="truncated or not an npz"):
        load_rmd17("aspirin", tmp_path)


def test_the_published_file(real_data):
    frames = load_rmd17("aspirin", real_data)
    assert len(frames[0]) == 21
    assert 0.5 < np.std(np.concatenate([a.arrays[FORCES] for a in frames[:50]])) < 2.0


def test_the_folder_that_is_named_goes_before_the_variable_and_that_before_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAPTNTK_DATA", "/data")
    assert data_directory(tmp_path) == tmp_path
    assert data_directory() == Path("/data")
    monkeypatch.delenv("ADAPTNTK_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_directory() == tmp_path / "adaptntk" / "data"


def test_a_missing_file_says_where_it_is_published(tmp_path):
    with pytest.raises(InputError, match=r"rmd17/a\.npz: not found. It is published as X"):
        data_file("rmd17/a.npz", "X", tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("energies", np.array("x")),
        ("energies", np.zeros((2, 3, 3))),
        ("nuclear_charges", np.array([1, 10**6])),
        ("nuclear_charges", np.zeros((2, 1))),
        ("coords", np.zeros((2, 4, 3))),
        ("forces", np.array(["a"] * 2)),
    ],
)
def test_arrays_of_another_kind(key, value, tmp_path):
    path = tmp_path / "rmd17_odd.npz"
    content = {"nuclear_charges": np.array([1, 8]), "coords": np.zeros((2, 2, 3)), "energies": np.zeros(2)}
    np.savez(path, **(content | {"forces": np.zeros((2, 2, 3)), key: value}))
    with pytest.raises(InputError, match=r"rmd17_odd\.npz: \w+ (must be|holds)"):
        read_rmd17(path)
