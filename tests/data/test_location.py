from pathlib import Path

import pytest

from adaptntk.data.location import data_directory, data_file
from adaptntk.errors import InputError


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
