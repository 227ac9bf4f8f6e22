import bz2
import contextlib
import gzip
import lzma
import time

import ase.build
import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from hypothesis import given, settings, strategies as st

from adaptntk.data.structures import (
    ENERGY,
    FORCES,
    StructureFile,
    check_force_unit,
    has_labels,
    open_structures,
    read_structures,
    structure_hash,
    structure_hashes,
    structure_sizes,
    structure_species,
    write_structures,
)
from adaptntk.errors import InputError


def labelled(seed=0):
    atoms = Atoms("OH2", positions=[[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
    atoms.rattle(0.01, rng=np.random.default_rng(seed))
    atoms.info[ENERGY] = -10.0 + seed
    atoms.arrays[FORCES] = np.full((3, 3), 0.1)
    return atoms


def test_round_trip_keeps_labels_and_extra_keys(tmp_path):
    frames = [labelled(seed) for seed in range(3)]
    frames[1].info["config_type"] = "hot"
    write_structures(tmp_path / "a.xyz", frames)
    back = read_structures(tmp_path / "a.xyz", labelled=True)
    assert [a.info[ENERGY] for a in back] == [-10.0, -9.0, -8.0]
    assert back[1].info["config_type"] == "hot"
    assert [structure_hash(a) for a in back] == [structure_hash(a) for a in frames]


def test_plain_keys_are_moved_to_the_standard_ones(tmp_path):
    """ase hands `energy` and `forces` over in a calculator."""
    atoms = labelled()
    forces = atoms.arrays.pop(FORCES)
    atoms.calc = SinglePointCalculator(atoms, energy=atoms.info.pop(ENERGY), forces=forces, stress=np.zeros(6))
    ase.io.write(tmp_path / "a.xyz", atoms)
    back = read_structures(tmp_path / "a.xyz", "energy", "forces", labelled=True)[0]
    assert has_labels(back)
    assert back.calc is None
    assert np.allclose(back.arrays[FORCES], forces)
    assert np.allclose(back.info["stress"], 0)
    write_structures(tmp_path / "b.xyz", [back])
    assert has_labels(read_structures(tmp_path / "b.xyz", labelled=True)[0])


def test_other_keys(tmp_path):
    atoms = labelled()
    atoms.info["dft_energy"], atoms.arrays["dft_forces"] = atoms.info.pop(ENERGY), atoms.arrays.pop(FORCES)
    ase.io.write(tmp_path / "a.xyz", atoms)
    assert read_structures(tmp_path / "a.xyz", "dft_energy", "dft_forces", labelled=True)[0].info[ENERGY] == -10.0


@settings(max_examples=30, deadline=None)
@given(shift=st.floats(-4e-7, 4e-7))
def test_hash_ignores_what_is_below_its_resolution(shift):
    atoms = Atoms("HF", positions=[[0, 0, 0], [0.5, 1.0, -2.0]])
    moved = atoms.copy()
    moved.positions += shift
    assert structure_hash(atoms) == structure_hash(moved)


def test_hash_survives_writing_and_reading(tmp_path):
    """Random coordinates lie anywhere between the edges of the hash's bins."""
    rng = np.random.default_rng(0)
    frames = [Atoms("CHON5", positions=rng.uniform(-9, 9, (8, 3))) for _ in range(300)]
    write_structures(tmp_path / "a.xyz", frames)
    back = ase.io.read(tmp_path / "a.xyz", ":")
    assert [structure_hash(a) for a in back] == [structure_hash(a) for a in frames]


def test_hash_tells_structures_apart(silicon):
    atoms = labelled()
    others = [atoms.copy() for _ in range(2)]
    others[0].positions[0, 0] += 1e-5
    others[1].numbers[0] = 16
    stretched = silicon.copy()
    stretched.cell[0, 0] += 0.01
    everything = [atoms, *others, silicon, stretched]
    assert len({structure_hash(a) for a in everything}) == len(everything)


def test_hash_ignores_labels_and_the_sign_of_zero():
    atoms = labelled()
    bare = Atoms(atoms.symbols, positions=atoms.positions)
    assert structure_hash(atoms) == structure_hash(bare)
    assert structure_hash(Atoms("H", positions=[[0.0, 0, 0]])) == structure_hash(Atoms("H", positions=[[-0.0, 0, 0]]))


def test_hash_is_frozen():
    """Stored in .ntk files: it must not change between versions."""
    atoms = Atoms("OH", positions=[[0, 0, 0], [0.5, -1.25, 3.0]])
    assert structure_hash(atoms).startswith("4e5e89aabc266fb3")


def broken(change):
    atoms = labelled()
    change(atoms)
    return atoms


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.info.pop(ENERGY), "no label 'REF_energy'"),
        (lambda a: a.arrays.pop(FORCES), "no label 'REF_forces'"),
        (lambda a: a.info.update({ENERGY: np.nan}), "REF_energy is NaN"),
        (lambda a: a.arrays[FORCES].__setitem__((0, 0), np.inf), "REF_forces is NaN or infinite"),
        (lambda a: a.positions.__setitem__((0, 0), np.nan), "position is NaN"),
        (lambda a: a.positions.__setitem__(1, a.positions[0] + 0.01), "atoms not fused"),
        (lambda a: a.set_positions(a.positions / 10), "nm"),
        (lambda a: a.set_positions(a.positions * 1.8897), "look like Bohr"),
    ],
)
def test_bad_frames_name_file_frame_and_cure(tmp_path, change, message):
    ase.io.write(tmp_path / "bad.xyz", [broken(change)])
    with pytest.raises(InputError, match=message) as caught:
        read_structures(tmp_path / "bad.xyz", labelled=True)
    assert str(tmp_path / "bad.xyz") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_dissociation_curve_is_not_taken_for_bohr(tmp_path):
    frames = [Atoms("H2", positions=[[0, 0, 0], [d, 0, 0]]) for d in np.linspace(0.6, 4.0, 20)]
    ase.io.write(tmp_path / "curve.xyz", frames)
    assert len(read_structures(tmp_path / "curve.xyz")) == 20


def test_fused_atoms_across_a_cell_boundary(tmp_path):
    atoms = Atoms("Si2", positions=[[0.05, 0, 0], [9.95, 0, 0]], cell=[10, 10, 10], pbc=True)
    ase.io.write(tmp_path / "cell.xyz", atoms)
    with pytest.raises(InputError, match=r"0\.100 Å apart"):
        read_structures(tmp_path / "cell.xyz")


def test_hydrides_are_not_taken_for_bohr(tmp_path):
    ase.io.write(tmp_path / "LiH.xyz", ase.build.bulk("LiH", "rocksalt", a=4.08, cubic=True))
    assert len(read_structures(tmp_path / "LiH.xyz")) == 1


def test_partly_periodic_without_cell_vectors(tmp_path):
    atoms = labelled()
    atoms.pbc = (True, True, False)
    ase.io.write(tmp_path / "slab.xyz", atoms)
    with pytest.raises(InputError, match="periodic in 2 directions"):
        read_structures(tmp_path / "slab.xyz")


def test_a_blank_line_hides_nothing(tmp_path):
    for seed in range(2):
        write_structures(tmp_path / f"{seed}.xyz", [labelled(seed)])
    parts = [(tmp_path / f"{seed}.xyz").read_text() for seed in range(2)]
    (tmp_path / "joined.xyz").write_text("\n".join(parts))
    with pytest.raises(InputError, match="blank line after 1 frames"):
        read_structures(tmp_path / "joined.xyz")
    (tmp_path / "end.xyz").write_text("".join(parts) + "\n\n")
    assert len(read_structures(tmp_path / "end.xyz")) == 2


def test_an_at_sign_in_the_name(tmp_path):
    write_structures(tmp_path / "run@300K.xyz", [labelled()])
    assert len(read_structures(tmp_path / "run@300K.xyz")) == 1


def test_a_label_that_was_not_asked_for_does_not_stand_in(tmp_path):
    ase.io.write(tmp_path / "a.xyz", labelled())
    with pytest.raises(InputError, match="no label 'dft_energy'"):
        read_structures(tmp_path / "a.xyz", energy_key="dft_energy", labelled=True)


@pytest.mark.parametrize("value", ["None", '"1 2"', "many"])
def test_labels_that_are_no_numbers(tmp_path, value):
    ase.io.write(tmp_path / "a.xyz", labelled())
    text = (tmp_path / "a.xyz").read_text().replace("REF_energy=-10.0", f"REF_energy={value}")
    (tmp_path / "a.xyz").write_text(text)
    with pytest.raises(InputError, match="frame 0: REF_energy or REF_forces is not a number"):
        read_structures(tmp_path / "a.xyz")


def test_a_dipole_is_not_a_column_of_atoms(tmp_path):
    atoms = labelled()
    atoms.calc = SinglePointCalculator(atoms, energy=-1.0, forces=np.zeros((3, 3)), dipole=np.ones(3))
    ase.io.write(tmp_path / "a.xyz", atoms)
    back = read_structures(tmp_path / "a.xyz", "energy", "forces", labelled=True)[0]
    assert "dipole" not in back.arrays
    assert np.allclose(back.info["dipole"], 1)


def test_the_frame_is_counted(tmp_path):
    ase.io.write(tmp_path / "bad.xyz", [labelled(0), labelled(1), broken(lambda a: a.info.update({ENERGY: np.nan}))])
    with pytest.raises(InputError, match="frame 2"):
        read_structures(tmp_path / "bad.xyz")


def test_a_wrong_key_is_suggested(tmp_path):
    atoms = labelled()
    atoms.info["energy"] = atoms.info.pop(ENERGY)
    ase.io.write(tmp_path / "a.xyz", atoms)
    with pytest.raises(InputError, match="it has others: pass --energy-key energy"):
        read_structures(tmp_path / "a.xyz", labelled=True)


def test_duplicates_empty_missing_and_truncated_files(tmp_path):
    ase.io.write(tmp_path / "twice.xyz", [labelled(0), labelled(1), labelled(0)])
    with pytest.raises(InputError, match="frames 0 and 2 are the same structure"):
        read_structures(tmp_path / "twice.xyz")
    assert len(read_structures(tmp_path / "twice.xyz", unique=False)) == 3
    (tmp_path / "empty.xyz").touch()
    with pytest.raises(InputError, match="empty"):
        read_structures(tmp_path / "empty.xyz")
    with pytest.raises(InputError, match="no such file"):
        read_structures(tmp_path / "absent.xyz")
    whole = (tmp_path / "twice.xyz").read_text()
    (tmp_path / "cut.xyz").write_text(whole[: int(len(whole) * 0.9)])
    with pytest.raises(InputError, match="frame 2: incomplete, the file is truncated"):
        read_structures(tmp_path / "cut.xyz")


def test_forces_in_kcal_are_noticed():
    frames = [labelled(seed) for seed in range(3)]
    check_force_unit(frames, "train.xyz")
    for atoms in frames:
        atoms.arrays[FORCES] = np.full((3, 3), 25.0)
    with pytest.raises(InputError, match="kcal/mol"):
        check_force_unit(frames, "train.xyz")


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.xyz"
    write_structures(path, [labelled()])
    before = path.read_bytes()
    with pytest.raises(Exception):  # noqa: B017, PT011  whatever ase raises
        write_structures(path, [labelled(), None])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_unwritable_outputs(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        write_structures(tmp_path / "no" / "a.xyz", [labelled()])
    with pytest.raises(InputError, match="is a directory"):
        write_structures(tmp_path, [labelled()])


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
        text[: len(text) - 20]: "frame 29: the last line has no end",
        text[: len(text) - 20] + "\n": "frame 29: atom 8 has 6 columns where 7 are declared",
        text.replace("\n9\n", "\nnine\n", 1): "frame 1: begins with 'nine'",
        text + "\n" + text: "a blank line after 30 frames",
        text + text.split("\n9\n")[0] + "\n": "frames 0 and 30 are the same structure",
        text.replace("C ", "Cx", 1): "frame 0: atom 0 is 'Cx', which is no chemical element",
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


def test_one_kind_of_label_may_do(ethanol_frames, tmp_path):
    """Unless the other one is there under another name: then it was not asked for by its name."""
    atoms = ethanol_frames[0].copy()
    forces = atoms.arrays.pop(FORCES)
    write_structures(tmp_path / "energy.xyz", [atoms])
    assert FORCES not in read_structures(tmp_path / "energy.xyz", labelled="partly")[0].arrays
    with pytest.raises(InputError, match="no label 'REF_forces'"):
        read_structures(tmp_path / "energy.xyz", labelled=True)
    atoms.arrays["dft_forces"] = forces
    write_structures(tmp_path / "other.xyz", [atoms])
    with pytest.raises(InputError, match="it has others: pass --forces-key dft_forces"):
        read_structures(tmp_path / "other.xyz", labelled="partly")
    assert has_labels(read_structures(tmp_path / "other.xyz", forces_key="dft_forces", labelled="partly")[0])


@pytest.mark.parametrize("part", ["x", "a=1 ", '"', "'", "[", "{", "\\'", "=", "a ="])
def test_a_long_comment_line_takes_no_time(part, tmp_path):
    """Whether it is refused or not."""
    path = tmp_path / "long.xyz"
    path.write_text(f"1\nProperties=species:S:1:pos:R:3 {part * (200_000 // len(part))}\nH 0 0 0\n")
    began = time.perf_counter()
    with contextlib.suppress(InputError):
        read_structures(path)
    assert time.perf_counter() - began < 10
