"""What people and machines put into extxyz files: read as it is meant, or refused in one line with file and frame."""

import time

import numpy as np
import pytest

from adaptntk.data.extxyz import LONGEST_LINE
from adaptntk.data.structures import read_structures, write_structures
from adaptntk.errors import InputError

BASE = "Properties=species:S:1:pos:R:3"
LABELLED = f"{BASE}:REF_forces:R:3 REF_energy=-1.0"
WATER = ("O 0 0 0", "H 0.96 0 0", "H -0.24 0.93 0")


def frame(comment=BASE, rows=WATER, count=None, newline="\n", end="\n"):
    return newline.join([str(len(rows)) if count is None else count, comment, *rows]) + end


def periodic(cell, more=""):
    return f'Lattice="{cell}" {BASE} {more}'


def labelled(comment, first="O 0 0 0 0 0 0"):
    return frame(comment, (first, "H 1 0 0 0 0 0"))


GOOD = {
    "carriage returns": frame(newline="\r\n", end="\r\n"),
    "tabs": frame(rows=[row.replace(" ", "\t") for row in WATER]),
    "byte order mark": "\ufeff" + frame(),
    "no last line break, but a whole number": frame(rows=("O 0.00 0.00 0.00", "H 0.96 0.00 0.00"), end=""),
    "blank lines at the end": frame() + "\n \n",
    "left-handed": frame(periodic("0 9 0 9 0 0 0 0 9")),
    "large box": frame(periodic("500 0 0 0 500 0 0 0 500")),
    "not periodic, with an odd cell": frame(periodic("1e8 0 0 0 0 0 0 0 0", 'pbc="F F F"')),
    "booleans as numbers": frame(periodic("9 0 0 0 9 0 0 0 9", 'pbc="1 0 1"')),
    "symbols and numbers": frame("Properties=species:S:1:Z:I:1:pos:R:3", ("O 8 0 0 0", "H 1 1 0 0")),
    "keys of ours": frame(f"{BASE} ntk_variance=3 beyond_calibration=T pick=1"),
    "other scripts": frame(f'{BASE} schlüssel=1 "ключ"=2'),
    "JSON": frame(f'{BASE} a="_JSON {{\\"b\\": [1, 2]}}"'),
    "no comment": frame(""),
    "a comment in words": frame("Bob's water, E = -76.4 a.u."),
    "cells after the atoms": frame("c") + "VEC1 9 0 0\nVEC2 0 9 0\nVEC3 0 0 9\n",
}

BAD = {
    "old line ends": (frame(newline="\r", end="\r"), "frame 0: begins with '3"),
    "cut in the last number": (frame(end=""), "frame 0: the last line has no end"),
    "large coordinate": (frame(rows=("O 1e300 0 0", "H 0 0 0")), "frame 0: position is 1e.300 Å, where 1e.05 is"),
    "not a number": (frame(rows=("O nan 0 0",)), "frame 0: position is NaN"),
    "infinite": (frame(rows=("O inf 0 0",)), "frame 0: position is NaN or infinite"),
    "huge count": (frame(count="99999999999"), "begins with '99999999999'"),
    "count beyond the file": (frame(count="999999999"), "frame 0: incomplete"),
    "negative count": (frame(count="-3"), "begins with '-3'"),
    "no atoms": (frame(rows=()), "frame 0: the structure has no atoms"),
    "broken count": (frame(count="3.0"), "begins with '3.0'"),
    "count of many digits": (frame(count="9" * 5000), "begins with '9999"),
    "count in Python": (frame(count="0_3"), "begins with '0_3'"),
    "large energy": (labelled(LABELLED.replace("-1.0", "1e308")), "REF_energy is 5e.307 eV per atom"),
    "energy in words": (labelled(LABELLED.replace("-1.0", "low")), "REF_energy or REF_forces is not a number"),
    "energy without a value": (labelled(LABELLED.replace("=-1.0", "")), "REF_energy or REF_forces is not a number"),
    "two energies": (labelled(LABELLED + " REF_energy=2"), "'REF_energy' stands twice"),
    "energies": (labelled(LABELLED.replace("-1.0", '"1 2"')), "REF_energy or REF_forces is not a number"),
    "large force": (labelled(LABELLED, "O 0 0 0 1e308 0 0"), "REF_forces is 1e.308 eV/Å"),
    "forces in words": (labelled(LABELLED.replace("forces:R", "forces:S")), "is not a number"),
    "one force": (frame(f"{BASE}:REF_forces:R:1", ("O 0 0 0 1",)), "REF_forces must be three finite numbers"),
    "small cell": (frame(periodic("0.001 0 0 0 0.001 0 0 0 0.001"), ("O 0 0 0",)), "repeats every 0.001 Å"),
    "large cell": (frame(periodic("1e8 0 0 0 1e8 0 0 0 1e8")), "cell is 1e.08 Å"),
    "no cell": (frame(f'{BASE} pbc="T T T"'), "without as many cell vectors"),
    "flat cell": (frame(periodic("9 0 0 9 0 0 0 0 9")), "without as many cell vectors"),
    "nearly flat cell": (frame(periodic("9 0 0 9 0.0001 0 0 0 9")), "repeats every 0.0001 Å"),
    "cell that is not a number": (frame(periodic("nan 0 0 0 9 0 0 0 9")), "cell is NaN"),
    "cell of eight numbers": (frame(periodic("9 0 0 0 9 0 0 0")), "Lattice"),
    "two directions": (frame(periodic("9 0 0 0 9 0 0 0 9", 'pbc="T T"')), "pbc must be three of T and F"),
    "directions in words": (frame(periodic("9 0 0 0 9 0 0 0 9", 'pbc="y n n"')), "pbc must be three of T and F"),
    "unknown element": (frame(rows=("Xx 0 0 0",)), "Xx"),
    "no element": (frame(rows=("X 0 0 0",)), "atom 0 has no element"),
    "element 200": (frame("Properties=Z:I:1:pos:R:3", ("200 0 0 0",)), "atomic number 200"),
    "two elements": (frame("Properties=species:S:1:Z:I:1:pos:R:3", ("H 2 0 0 0",)), "H by its symbol and 2 by its"),
    "column twice": (frame(f"{BASE}:pos:R:3", ("O 0 0 0 1 1 1",)), "a name stands twice in Properties"),
    "negative columns": (frame("Properties=species:S:1:pos:R:-3"), "Properties must be name"),
    "four coordinates": (frame("Properties=species:S:1:pos:R:4"), "Properties must declare pos:R:3"),
    "coordinates as words": (frame("Properties=species:S:1:pos:S:3"), "Properties must declare pos:R:3"),
    "elements as numbers": (frame("Properties=species:R:1:pos:R:3", ("8 0 0 0",)), "species:S:1 or Z:I:1"),
    "no coordinates": (frame("Properties=species:S:1", ("O",)), "Properties must declare pos:R:3"),
    "columns by the million": (frame("Properties=species:S:1:pos:R:9999999"), "Properties must be name"),
    "unknown kind": (frame("Properties=species:S:1:pos:Q:3"), "Properties must be name"),
    "too many columns": (frame(rows=("O 0 0 0 7", "H 1 0 0 7")), "atom 0 has 5 columns where 4 are declared"),
    "too few columns": (frame(rows=("O 0 0 0", "H 1 0")), "atom 1 has 3 columns where 4 are declared"),
    "Fortran": (frame(rows=("O 1.0D+00 0 0",)), "1.0D.00"),
    "underscores": (frame(rows=("O 1_0 0 0",)), "a number that is none"),
    "other digits": (frame(rows=("O １ 0 0",)), "a number that is none"),
    "perhaps": (frame(f"{BASE}:fixed:L:1", ("O 0 0 0 perhaps",)), "where T or F is declared"),
    "no mass": (frame(f"{BASE}:masses:R:1", ("O 0 0 0 0",)), "masses must be positive"),
    "three masses": (frame(f"{BASE}:masses:R:3", ("O 0 0 0 1 1 1",)), "masses must be a finite number"),
    "momentum": (frame(f"{BASE}:momenta:R:3", ("O 0 0 0 nan 0 0",)), "momenta must be three finite numbers"),
    "deep JSON": (frame(f'{BASE} x="_JSON {"[" * 20000}{"]" * 20000}"'), "frame 0: cannot be read"),
    "many digits": (frame(f"{BASE} n={'9' * 5000}"), "'n' is infinite or too large"),
    "large integer": (frame(f"{BASE}:tags:I:1", ("O 0 0 0 99999999999",)), "frame 0: cannot be read"),
    "NUL": (frame(f"{BASE} a=\0b"), "NUL"),
    "blank line": (frame() + "\n" + frame(rows=WATER[:2]), "line 6: a blank line after 1 frames"),
    "something else": (frame() + "the end\n", "frame 1: begins with 'the end' .line 6. instead"),
    "open quotation": (frame(f'{BASE} a="b REF_energy=2'), "never closed"),
    "long line": (frame(f"{BASE} a={'x' * LONGEST_LINE}"), "line 2: longer than"),
    "Latin-1": (frame() + "1\ncaf\udce9\nH 0 0 0\n", "frame 1: cannot be read"),
    "UTF-16": (frame().encode("utf-16").decode("latin-1"), "frame 0: begins with"),
}


@pytest.mark.parametrize("name", GOOD)
def test_read_as_meant(name, tmp_path):
    (tmp_path / "a.xyz").write_text(GOOD[name], encoding="utf-8", newline="")
    found = read_structures(tmp_path / "a.xyz")
    assert len(found) == 1
    assert found[0].symbols[0] == "O"
    assert found[0].positions[1, 0] in (0.96, 1.0)
    write_structures(tmp_path / "b.xyz", found)
    assert np.allclose(read_structures(tmp_path / "b.xyz")[0].positions, found[0].positions)


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("ending", [".xyz", ".EXTXYZ", ".xyz.gz"])
def test_refused_in_one_line(name, ending, tmp_path):
    """Whatever the file is called, and compressed or not."""
    import gzip

    text, cause = BAD[name]
    path, content = tmp_path / f"a{ending}", text.encode("utf-8", "surrogateescape")
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    began = time.perf_counter()
    with pytest.raises(InputError, match=cause) as caught:
        read_structures(path)
    assert time.perf_counter() - began < 5
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value).splitlines()) == 1
