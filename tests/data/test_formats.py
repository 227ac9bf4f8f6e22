"""Formats besides extxyz: read and checked as extxyz is, refused where damaged; all others are refused by name."""

import bz2
import csv
import gzip
import json
import sqlite3

import ase.build
import ase.io
import numpy as np
import pytest
from ase.calculators.singlepoint import SinglePointCalculator

from adaptntk.data.extxyz import LARGEST_GROWTH, SMALL
from adaptntk.data.formats import READINGS, check_output
from adaptntk.data.structures import ENERGY, FORCES, read_structures, structure_hash, write_structures
from adaptntk.errors import InputError

# File name, what ase calls the format, whether it holds several frames.
FORMATS = [
    ("a.traj", "traj", True), ("a.db", "db", True), ("a.json", "json", True), ("a.cif", "cif", True),
    ("a.pdb", "proteindatabank", True), ("a.xsf", "xsf", True), ("XDATCAR", "vasp-xdatcar", True),
    ("a.gen", "gen", False), ("POSCAR", "vasp", False), ("CONTCAR_2", "vasp", False), ("a.vasp", "vasp", False),
]  # fmt: skip


def salt(count=3):
    frames = [ase.build.bulk("NaCl", "rocksalt", 5.6, cubic=True) for _ in range(count)]
    for seed, atoms in enumerate(frames):
        atoms.rattle(0.05, seed=seed)
    return frames


def annotated(count=3):
    frames = salt(count)
    for number, atoms in enumerate(frames):
        atoms.info |= {ENERGY: -27.5 + number, "name": f"salt, no. {number}", "sure": number > 0, "v": np.arange(3.0)}
        atoms.arrays[FORCES] = np.full((8, 3), 0.1 * number)
        atoms.arrays["predicted_forces"] = np.full((8, 3), 0.3)
    return frames


@pytest.mark.parametrize(("name", "kind", "several"), FORMATS)
def test_formats_are_read_whole_or_refused(name, kind, several, tmp_path):
    """Cut after every line, or at a hundred places: the frames that were written, or an error."""
    frames = salt() if several else salt(1)
    ase.io.write(tmp_path / name, frames, format=kind)
    found = read_structures(tmp_path / name)
    assert [a.get_chemical_formula() for a in found] == [a.get_chemical_formula() for a in frames]
    assert np.allclose(found[-1].get_all_distances(mic=True), frames[-1].get_all_distances(mic=True), atol=2e-3)
    whole = (tmp_path / name).read_bytes()
    lines = [] if kind in ("traj", "db") else whole.splitlines(keepends=True)[:-1]
    cuts = np.cumsum([len(line) for line in lines]) if lines else range(1, len(whole), len(whole) // 100)
    for cut in [*cuts, len(whole) - 1]:
        (tmp_path / name).write_bytes(whole[:cut])
        try:
            rest = read_structures(tmp_path / name)
        except InputError as error:
            assert str(error).startswith(str(tmp_path / name))  # noqa: PT017
            assert len(str(error).splitlines()) == 1  # noqa: PT017
            continue
        # What ends where a frame ends is whole; of the lines after the last atom nothing is read.
        assert np.allclose([a.positions for a in rest], [a.positions for a in found[: len(rest)]])
        assert len(rest) == len(found) or kind in ("cif", "proteindatabank", "vasp-xdatcar")


@pytest.mark.parametrize("packed", [gzip, bz2])
def test_any_format_may_be_compressed(packed, tmp_path):
    ase.io.write(tmp_path / "a.traj", salt())
    path = tmp_path / f"a.traj.{'gz' if packed is gzip else 'bz2'}"
    path.write_bytes(packed.compress((tmp_path / "a.traj").read_bytes()))
    assert len(read_structures(path)) == 3


def test_labels_of_calculators(tmp_path):
    frames = salt()
    for atoms in frames:
        atoms.calc = SinglePointCalculator(atoms, energy=-1.0, forces=np.zeros((8, 3)))
    for name in ("a.traj", "a.db", "a.json"):
        ase.io.write(tmp_path / name, frames)
        found = read_structures(tmp_path / name, "energy", "forces", labelled=True)
        assert found[0].info[ENERGY] == -1.0


@pytest.mark.parametrize(
    "name", ["a.py", "a.gpw", "a.bundle", "a.pckl", "a.dat", "pool", "a.xyz.zip", "a.data", "a.html"]
)
def test_other_formats_are_refused_by_name(name, tmp_path):
    """Some of them run code, or start a program."""
    (tmp_path / name).write_text("from ase import Atoms\nraise SystemExit('run')\n")
    with pytest.raises(InputError, match=r"structures are read from \.xyz, \.extxyz, .*POSCAR"):
        read_structures(tmp_path / name)


def test_the_name_decides_and_not_the_content(tmp_path):
    """ase would look into the file, and run this one."""
    for ending in READINGS:
        path = tmp_path / f"a{ending}"
        path.write_text(f"#!/usr/bin/env python\nfrom pathlib import Path\nPath({str(tmp_path / 'run')!r}).touch()\n")
        with pytest.raises(InputError):
            read_structures(path)
    assert not (tmp_path / "run").exists()


def test_a_database_is_left_as_it_is(tmp_path):
    path = tmp_path / "a.db"
    sqlite3.connect(path).execute("CREATE TABLE other (x)").connection.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match="systems"):
        read_structures(path)
    assert path.read_bytes() == before


def test_every_format_gets_the_same_checks(tmp_path):
    frames = salt()
    frames[1].positions[0] = frames[1].positions[1]
    frames[2].positions[0, 0] = np.nan
    for bad, cause in ((frames[:2], "frame 1: two atoms"), (frames[::2], "frame 1: position is NaN")):
        for name in ("a.traj", "a.db", "a.xyz.gz", "a.json"):
            ase.io.write(tmp_path / name, bad, format="extxyz" if "xyz" in name else None)
            with pytest.raises(InputError, match=cause):
                read_structures(tmp_path / name)
            (tmp_path / name).unlink()


def test_atoms_that_share_a_place_are_refused(tmp_path):
    atoms = ase.build.bulk("NaCl", "rocksalt", 5.6)
    atoms.info["occupancy"] = {"0": {"Na": 0.5, "K": 0.5}, "1": {"Cl": 1.0}}
    atoms.set_array("spacegroup_kinds", np.array([0, 1]))
    ase.io.write(tmp_path / "a.cif", atoms)
    with pytest.raises(InputError, match="share places"):
        read_structures(tmp_path / "a.cif")


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("adaptntk.data.extxyz.SMALL", 2**20)
    assert SMALL > 2**20
    (tmp_path / "a.xyz.bz2").write_bytes(bz2.compress(b"\n" * (LARGEST_GROWTH * 20_000)))
    with pytest.raises(InputError, match="it would grow to more than"):
        read_structures(tmp_path / "a.xyz.bz2")


def test_no_ordinary_file(tmp_path):
    import os

    os.mkfifo(tmp_path / "a.xyz")
    with pytest.raises(InputError, match="no ordinary file"):
        read_structures(tmp_path / "a.xyz")


@pytest.mark.parametrize("name", ["a.xyz", "a.extxyz", "a.xyz.gz", "a.extxyz.xz", "a.traj", "a.jsonl", "a.jsonl.bz2"])
def test_what_is_written_is_read_again(name, tmp_path):
    frames = annotated()
    write_structures(tmp_path / name, iter(frames))
    back = read_structures(tmp_path / name, labelled=True)
    assert [structure_hash(a) for a in back] == [structure_hash(a) for a in frames]
    for found, given in zip(back, frames, strict=True):
        assert [found.info[key] for key in (ENERGY, "name", "sure")] == [
            given.info[key] for key in (ENERGY, "name", "sure")
        ]
        assert np.allclose(found.info["v"], given.info["v"])
        for key in (FORCES, "predicted_forces"):
            assert np.allclose(found.arrays[key], given.arrays[key])


def test_files_are_what_their_names_say(tmp_path):
    """As other programs see them."""
    frames = annotated()
    for name in ("a.traj", "a.jsonl", "a.csv", "a.csv.gz"):
        write_structures(tmp_path / name, frames)
    assert len(ase.io.read(tmp_path / "a.traj", ":")) == 3
    records = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert np.shape(records[2]["arrays"]["predicted_forces"]) == (8, 3)
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [row["structure"] for row in rows] == ["0", "1", "2"]
    assert rows[1][ENERGY] == "-26.5"
    assert rows[1]["name"] == "salt, no. 1"
    assert "v" not in rows[0]
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()) == (tmp_path / "a.csv").read_bytes()


@pytest.mark.parametrize("name", ["a.cif", "a.json", "a", "a.xyz.zip", "a.traj.gz", "a.gz", "a.db"])
def test_other_outputs_are_refused(name, tmp_path):
    with pytest.raises(InputError, match=r"structures are written as \.xyz, \.extxyz, \.traj, \.jsonl, \.csv"):
        check_output(tmp_path / name)


def test_entries_that_a_comment_line_cannot_hold(tmp_path):
    atoms = salt(1)[0]
    atoms.info |= {"note": "two\nlines", "Properties": "pos:R:1", "Lattice": "no", "none": None, "key\n2": 1}
    write_structures(tmp_path / "a.xyz", [atoms])
    back = read_structures(tmp_path / "a.xyz")[0]
    assert back.info["note"] == "two lines"
    assert np.allclose(back.positions, atoms.positions)
