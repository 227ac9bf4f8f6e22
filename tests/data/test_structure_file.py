import numpy as np
import pytest

from adaptntk.data.structure_file import StructureFile, open_structures, structure_hashes, structure_sizes
from adaptntk.data.structures import read_structures, structure_hash, write_structures
from adaptntk.errors import InputError


def test_the_same_frames_as_in_memory(files, silicon, parts, tmp_path):
    write_structures(tmp_path / "mixed.xyz", [*parts["pool"][:3], silicon])
    for path in (files["pool"], tmp_path / "mixed.xyz"):
        streamed, kept = StructureFile(path), read_structures(path)
        assert len(streamed) == len(kept)
        for a, b in zip(streamed, kept, strict=True):
            assert a == b
            assert a.info.keys() == b.info.keys()
            assert a.arrays.keys() == b.arrays.keys()
        assert streamed[-1] == kept[-1]
        assert [len(a) for a in streamed[1:3]] == [len(a) for a in kept[1:3]]
        assert structure_hashes(streamed) == structure_hashes(kept) == [structure_hash(a) for a in kept]
        assert structure_sizes(streamed).tolist() == structure_sizes(kept).tolist()
        assert streamed.species == {z for a in kept for z in a.numbers}
        with pytest.raises(IndexError):
            streamed[len(kept)]


def test_only_large_files_are_streamed(files):
    assert isinstance(open_structures(files["pool"], memory_budget=2**30), list)
    assert isinstance(open_structures(files["pool"], memory_budget=2**16), StructureFile)


def test_labels_under_other_keys(files):
    frames = StructureFile(files["pool"], energy_key="nope", labelled=False)
    assert "REF_energy" not in frames[0].info
    with pytest.raises(InputError, match="frame 0: no label 'nope'"):
        StructureFile(files["pool"], energy_key="nope", labelled=True)


def test_damaged_files(files, tmp_path):
    text = files["pool"].read_text()
    path = tmp_path / "bad.xyz"
    cases = {
        text[: len(text) - 200]: "frame 29: incomplete",
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
            StructureFile(path)
    with pytest.raises(InputError, match="no such file"):
        StructureFile(tmp_path / "nothing.xyz")


def test_bohr_is_noticed(parts, tmp_path):
    frames = [atoms.copy() for atoms in parts["pool"]]
    for atoms in frames:
        atoms.positions /= 0.529177
    write_structures(tmp_path / "bohr.xyz", frames)
    with pytest.raises(InputError, match="look like Bohr"):
        StructureFile(tmp_path / "bohr.xyz")


def test_a_file_that_is_not_finite(parts, tmp_path):
    frames = [atoms.copy() for atoms in parts["pool"]]
    frames[4].positions[2, 1] = np.nan
    write_structures(tmp_path / "nan.xyz", frames)
    with pytest.raises(InputError, match="frame 4: position is NaN"):
        StructureFile(tmp_path / "nan.xyz")
