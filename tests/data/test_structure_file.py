import bz2
import gzip
import lzma

import numpy as np
import pytest

from adaptntk.data.structure_file import (
    StructureFile,
    open_structures,
    structure_hashes,
    structure_sizes,
    structure_species,
)
from adaptntk.data.structures import read_structures, structure_hash, write_structures
from adaptntk.errors import InputError


def test_the_same_frames_as_in_memory(files, silicon, parts, tmp_path):
    write_structures(tmp_path / "mixed.xyz", [*parts["pool"][:3], silicon])
    for path in (files["pool"], tmp_path / "mixed.xyz"):
        streamed, kept = open_structures(path), read_structures(path)
        assert isinstance(streamed, StructureFile)
        assert len(streamed) == len(kept)
        for a, b in zip(streamed, kept, strict=True):
            assert a == b
            assert a.info.keys() == b.info.keys()
            assert a.arrays.keys() == b.arrays.keys()
        assert streamed[-1] == kept[-1]
        assert [len(a) for a in streamed[1:3]] == [len(a) for a in kept[1:3]]
        assert structure_hashes(streamed) == structure_hashes(kept) == [structure_hash(a) for a in kept]
        assert structure_sizes(streamed).tolist() == structure_sizes(kept).tolist()
        assert structure_species(streamed) == structure_species(kept) == {z for a in kept for z in a.numbers}
        with pytest.raises(IndexError):
            streamed[len(kept)]


def test_only_large_files_are_streamed(files):
    assert isinstance(open_structures(files["pool"], memory_budget=2**30), list)
    assert isinstance(open_structures(files["pool"], memory_budget=2**16), StructureFile)


def test_labels_under_other_keys(files):
    frames = open_structures(files["pool"], energy_key="nope", labelled=False)
    assert "REF_energy" not in frames[0].info
    with pytest.raises(InputError, match="frame 0: no label 'nope'"):
        open_structures(files["pool"], energy_key="nope", labelled=True)


@pytest.mark.parametrize("read", [open_structures, read_structures])
def test_damaged_files(read, files, tmp_path):
    """The same is said of small and of large files."""
    text = files["pool"].read_text()
    path = tmp_path / "bad.xyz"
    cases = {
        text[: len(text) - 200]: "frame 29: incomplete",
        text[: len(text) - 20]: "frame 29: cannot be read",
        text.replace("\n9\n", "\nnine\n", 1): "frame 1: begins with 'nine'",
        text + "\n" + text: "a blank line after 30 frames",
        text + text.split("\n9\n")[0] + "\n": "frames 0 and 30 are the same structure",
        text.replace("C ", "Cx", 1): "frame 0: cannot be read",
        "\n" + text: "a blank line after 0 frames",
        "\n\n": "no structures in the file",
    }
    for content, message in cases.items():
        path.write_text(content)
        with pytest.raises(InputError, match=message):
            read(path)
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "nothing.xyz")


@pytest.mark.parametrize(("suffix", "opened"), [(".gz", gzip.open), (".bz2", bz2.open), (".xz", lzma.open)])
def test_compressed_files(suffix, opened, files, tmp_path):
    path = tmp_path / f"pool.xyz{suffix}"
    with opened(path, "wb") as file:
        file.write(files["pool"].read_bytes())
    plain = read_structures(files["pool"])
    assert list(open_structures(path)) == read_structures(path) == plain
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match="cannot be unpacked"):
        read_structures(path)
    with opened(path, "wb") as file:
        file.write(files["pool"].read_bytes()[:-2000])
    with pytest.raises(InputError, match="incomplete, the file is truncated"):
        read_structures(path)


@pytest.mark.parametrize("read", [open_structures, read_structures])
def test_cells_in_the_old_way(read, tmp_path):
    cell = "VEC1 9.0 0.0 0.0\nVEC2 0.0 9.0 0.0\nVEC3 0.0 0.0 9.0\n"
    frame = "2\n\nH 0 0 {}\nH 1 0 0\n" + cell
    (tmp_path / "old.xyz").write_text(frame.format(0) + frame.format(0.1))
    frames = read(tmp_path / "old.xyz")
    assert [atoms.cell.lengths().tolist() for atoms in frames] == [[9, 9, 9]] * 2


def test_bohr_is_noticed(parts, tmp_path):
    frames = [atoms.copy() for atoms in parts["pool"]]
    for atoms in frames:
        atoms.positions /= 0.529177
    write_structures(tmp_path / "bohr.xyz", frames)
    with pytest.raises(InputError, match="look like Bohr"):
        open_structures(tmp_path / "bohr.xyz")


def test_a_file_that_is_not_finite(parts, tmp_path):
    frames = [atoms.copy() for atoms in parts["pool"]]
    frames[4].positions[2, 1] = np.nan
    write_structures(tmp_path / "nan.xyz", frames)
    with pytest.raises(InputError, match="frame 4: position is NaN"):
        open_structures(tmp_path / "nan.xyz")
