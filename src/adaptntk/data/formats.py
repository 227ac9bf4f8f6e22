"""Which formats of structures are read and written: a table of each, by the end of a file's name.

Of what ase reads, only formats are taken that run no code of the file and start no program, and that tell when a part
of the file is missing.
"""

import csv
import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import quote

import ase.io
import numpy as np
from ase import Atoms
from ase.formula import Formula
from ase.io.trajectory import TrajectoryWriter

from adaptntk.data.extxyz import COMPRESSED, FrameFile, unpack, unreadable
from adaptntk.errors import InputError
from adaptntk.files import check_readable, check_writable, parse_json, plain

EXTXYZ = (".xyz", ".extxyz")
_STANDARD = {"numbers", "positions"}
# Arrays that trajectories of ase have places for; all others stand together in one entry.
_IN_TRAJECTORIES = {"momenta", "masses", "tags", "initial_magmoms", "initial_charges", *_STANDARD}
_OTHER_ARRAYS = "arrays"
# What ase writes into the comment line itself.
_RESERVED = {"Properties", "Lattice", "pbc"}


@dataclass(frozen=True)
class Reading:
    """How a format is read.

    Args:
        name: what ase calls it.
        whole: of a text and the frames that ase found in it, whether nothing is missing; None for what is no text.
    """

    name: str
    whole: Callable[[str, list[Atoms]], bool] | None = lambda text, frames: True


def open_frames(path: Path) -> Sequence[Atoms]:
    """The frames of a file; those of extxyz files are read when they are asked for, others all at once."""
    check_readable(path, "structure file")
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    if plain.suffix.lower() in EXTXYZ:
        return FrameFile(path)
    reading = _reading_of(plain)
    if reading is None:
        known = ", ".join([*EXTXYZ, *READINGS, *NAMES])
        raise InputError(f"{path}: structures are read from {known} (also .gz, .bz2, .xz), by the name of the file")
    if plain is path:
        return _read(path, path, reading)
    unpacked = unpack(path)
    try:
        return _read(unpacked, path, reading)
    finally:
        unpacked.unlink(missing_ok=True)


def check_output(path: Path) -> None:
    """Refuse a file that structures cannot be written to, before hours of work are spent on it."""
    _writing_of(path)
    check_writable(path)


def write_frames(temporary: Path, path: Path, frames: Iterable[Atoms]) -> None:
    """Write what the name of ``path`` says to ``temporary``."""
    writing, packed = _writing_of(path)
    writing(temporary, COMPRESSED.get(packed, open), frames)


def _reading_of(path: Path) -> Reading | None:
    by_name = (reading for name, reading in NAMES.items() if path.name.upper().startswith(name))
    return READINGS.get(path.suffix.lower()) or next(by_name, None)


def _read(content: Path, path: Path, reading: Reading) -> list[Atoms]:
    """All frames; ``path`` is what errors call the file whose content that is."""
    frames: list[Atoms] = []
    try:
        text = "" if reading.whole is None else content.read_text(encoding="utf-8")
        if "\0" in text:
            raise InputError("it holds NUL characters")
        if reading.whole is not None and not text.endswith("\n"):
            raise InputError("the last line has no end, so the file may be truncated")
        for atoms in _frames_of(content, reading.name):
            frames.append(atoms)
    except Exception as error:  # ase raises whatever its many parsers raise
        raise unreadable(path, len(frames), error) from None
    if reading.whole is not None and not reading.whole(text, frames):
        why = "something is missing at the end, the file is truncated; copy it again"
        raise InputError(f"{path}, frame {max(0, len(frames) - 1)}: {why}")
    return frames


def _frames_of(path: Path, name: str) -> Iterator[Atoms]:
    if name == "jsonl":
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield _from_record(parse_json(line))
        return
    if name == "db":
        # ase would make a table where there is none.
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as database:
            database.execute("SELECT COUNT(*) FROM systems")
            if database.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise InputError("the database is damaged")
    for atoms in ase.io.iread(path, index=":", format=name, do_not_split_by_at_sign=True):
        for key, array in (atoms.info.pop(_OTHER_ARRAYS, {}) if name == "traj" else {}).items():
            atoms.set_array(key, np.asarray(array))
        sites = atoms.info.get("occupancy", {}) if name == "cif" else {}
        if not np.allclose([share for site in sites.values() for share in site.values()], 1):
            raise InputError("atoms share places (fractional occupancies)")
        yield atoms


def _whole_xdatcar(text: str, frames: list[Atoms]) -> bool:
    parts = text.split("Direct configuration=")[1:]
    return len(parts) == len(frames) > 0 and len(parts[-1].split("\n", 1)[1].split()) == 3 * len(frames[-1])


def _whole_outcar(text: str, frames: list[Atoms]) -> bool:
    return text.count("TOTAL-FORCE (eV/Angst)") == len(frames)


def _whole_cif(text: str, frames: list[Atoms]) -> bool:
    """A CIF has no end, but most tell the composition, of which a cell holds one or several."""
    formulas = re.findall(r"^_chemical_formula_sum\s+['\"]?([A-Za-z0-9 ]+?)['\"]?\s*$", text, re.MULTILINE)
    if not formulas:
        return True
    if len(formulas) != len(frames):
        return False
    pairs = zip((Formula(formula.replace(" ", "")) for formula in formulas), frames, strict=True)
    return all(not atoms.symbols.formula % formula and len(atoms) for formula, atoms in pairs)


READINGS = {
    ".traj": Reading("traj", None),
    ".db": Reading("db", None),
    ".json": Reading("json"),
    ".jsonl": Reading("jsonl"),
    ".cif": Reading("cif", _whole_cif),
    ".pdb": Reading("proteindatabank", lambda text, _: text.rstrip().rpartition("\n")[2].startswith("END")),
    ".gen": Reading("gen"),
    ".xsf": Reading("xsf"),
    ".vasp": Reading("vasp"),
    ".poscar": Reading("vasp"),
}
# Names that files of VASP have, or begin with.
NAMES = {
    "POSCAR": Reading("vasp"),
    "CONTCAR": Reading("vasp"),
    "XDATCAR": Reading("vasp-xdatcar", _whole_xdatcar),
    "OUTCAR": Reading("vasp-out", _whole_outcar),
    "VASPRUN": Reading("vasp-xml", lambda text, _: text.rstrip().endswith("</modeling>")),
}

Opener = Callable[..., Any]


def _writing_of(path: Path) -> tuple[Callable[[Path, Opener, Iterable[Atoms]], None], str]:
    """The function that writes what the name says, and how the file is compressed, if it is."""
    packed = path.suffix.lower() if path.suffix.lower() in COMPRESSED else ""
    ending = path.with_suffix("").suffix.lower() if packed else path.suffix.lower()
    if ending not in WRITINGS or (packed and ending == ".traj"):
        known = f"{', '.join(WRITINGS)}; all but .traj also with {', '.join(COMPRESSED)}"
        raise InputError(f"cannot write {path}: structures are written as {known}, by the name of the file")
    return WRITINGS[ending], packed


def _write_extxyz(path: Path, opener: Opener, frames: Iterable[Atoms]) -> None:
    with opener(path, "wt", encoding="utf-8") as file:
        for number, atoms in enumerate(frames):
            file.write(_extxyz_text(atoms, number))


def _extxyz_text(atoms: Atoms, number: int) -> str:
    written = atoms.copy()
    written.calc = atoms.calc
    written.info = {
        " ".join(str(key).splitlines()): " ".join(value.splitlines()) if isinstance(value, str) else value
        for key, value in atoms.info.items()
        if key not in _RESERVED
    }
    text = StringIO()
    try:
        ase.io.write(text, written, format="extxyz")
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise InputError(f"structure {number} cannot be written as extxyz ({error})") from None
    if text.getvalue().count("\n") != len(atoms) + 2:
        raise InputError(f"structure {number} cannot be written as extxyz: an entry of it has several lines")
    return text.getvalue()


def _write_trajectory(path: Path, opener: Opener, frames: Iterable[Atoms]) -> None:
    with TrajectoryWriter(path, "w") as file:
        for atoms in frames:
            written = atoms.copy()
            written.calc = atoms.calc
            others = {name: written.arrays.pop(name) for name in [*written.arrays] if name not in _IN_TRAJECTORIES}
            if others:
                written.info[_OTHER_ARRAYS] = others
            file.write(written)


def _write_json_lines(path: Path, opener: Opener, frames: Iterable[Atoms]) -> None:
    with opener(path, "wt", encoding="utf-8") as file:
        for atoms in frames:
            others = {name: array for name, array in atoms.arrays.items() if name not in _STANDARD}
            record = {
                "numbers": atoms.numbers, "positions": atoms.positions, "cell": atoms.cell.array, "pbc": atoms.pbc,
                "info": atoms.info, "arrays": others,
            }  # fmt: skip
            file.write(json.dumps(plain(record), allow_nan=False) + "\n")


def _from_record(record: dict[str, Any]) -> Atoms:
    places = {name: record[name] for name in ("numbers", "positions", "cell", "pbc")}
    atoms = Atoms(**places, info=dict(record["info"]))
    for name, array in record["arrays"].items():
        atoms.set_array(name, np.array(array))
    return atoms


def _write_table(path: Path, opener: Opener, frames: Iterable[Atoms]) -> None:
    """One row per structure: its number, its atoms, and every entry that is one number or word."""
    rows: list[dict[str, Any]] = []
    for number, atoms in enumerate(frames):
        rows.append({"structure": number, "formula": str(atoms.symbols), "atoms": len(atoms)})
        single = {str(key): plain(value) for key, value in atoms.info.items()}
        rows[-1] |= {key: value for key, value in single.items() if not isinstance(value, dict | list)}
    columns = dict.fromkeys(key for row in rows for key in row)
    file: TextIO
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, [*columns])
        table.writeheader()
        table.writerows(rows)


WRITINGS: dict[str, Callable[[Path, Opener, Iterable[Atoms]], None]] = {
    ".xyz": _write_extxyz,
    ".extxyz": _write_extxyz,
    ".traj": _write_trajectory,
    ".jsonl": _write_json_lines,
    ".csv": _write_table,
}
