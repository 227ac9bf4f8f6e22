"""Frames of extxyz files, one at a time, as they stand there.

What ase passes over in silence is refused: frames behind a blank line, columns that were not declared, the first of two
entries of the same name, words that Python takes for numbers.
"""

import bz2
import gzip
import io
import lzma
import os
import re
import tempfile
import weakref
import zlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from ase import Atoms
from ase.data import atomic_numbers
from ase.io.extxyz import REV_PROPERTY_NAME_MAP, key_val_str_to_dict, read_xyz
from numpy.typing import NDArray

from adaptntk.errors import InputError

COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
LONGEST_LINE = 2**20
# A file that grows by more than this when it is unpacked holds no structures.
LARGEST_GROWTH, SMALL = 200, 2**30
_COUNT = re.compile(rb"\s*[0-9]{1,9}\s*")
_COLUMNS = re.compile(r"[^:\s]+:[RISL]:[1-9][0-9]{0,3}(:[^:\s]+:[RISL]:[1-9][0-9]{0,3})*")
_OPENING = re.compile(r"""["'{[]""")
_QUOTED = {
    mark[0]: re.compile(rf"{re.escape(mark[0])}(?:\\.|[^{re.escape(mark[1])}\\])*{re.escape(mark[1])}")
    for mark in ('""', "''", "{}", "[]")
}
_DECLARED = {"positions": [("R", 3), ("I", 3)], "symbols": [("S", 1)], "numbers": [("I", 1)]}
_BOOLEANS = {"T", "F", "True", "False"}
_MARK = b"\xef\xbb\xbf"  # that some editors put before a text


class Frames(Sequence[Atoms]):
    """Frames that are read when they are asked for."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return [self[index] for index in range(*key.indices(len(self)))]
        return self._frame(range(len(self))[key])

    @abstractmethod
    def _frame(self, index: int) -> Atoms: ...


class FrameFile(Frames):
    """The frames of an extxyz file, which may be compressed: 16 bytes per frame are kept, and it is read when asked."""

    def __init__(self, path: Path) -> None:
        self.path = self._plain = path
        if path.suffix.lower() in COMPRESSED:
            # Frames are read in any order, for which compressed files are not made.
            self._plain = unpack(path)
            weakref.finalize(self, self._plain.unlink, missing_ok=True)
        with self._plain.open("rb") as file:
            self._offsets, self.sizes = _Scan(file, path).frames()
        self.bytes = int(self._offsets[-1])  # unpacked
        if len(self.sizes) and _is_cut(self._text(len(self.sizes) - 1), int(self.sizes[-1])):
            why = "the last line has no end, so the file may be truncated; copy it again, or end it with a line break"
            raise InputError(f"{path}, frame {len(self.sizes) - 1}: {why}")

    def __len__(self) -> int:
        return len(self.sizes)

    def _text(self, index: int) -> bytes:
        start, stop = self._offsets[index : index + 2]
        with self._plain.open("rb") as file:
            file.seek(start)
            return file.read(stop - start)

    def _frame(self, index: int) -> Atoms:
        try:
            return parse_frame(self._text(index).decode(), int(self.sizes[index]))
        except Exception as error:  # ase raises whatever its parser raises
            raise unreadable(self.path, index, error) from None


def parse_frame(text: str, atoms: int) -> Atoms:
    """One frame of so many atoms; raises an InputError, or what ase raises, if it is not what it declares."""
    lines = text.split("\n")
    comment, rows = lines[1].strip(), lines[2 : 2 + atoms]
    if "\0" in text:
        raise InputError("it holds NUL characters")
    entries: dict[str, Any] = {}
    # Cells as lines after the atoms go with a comment that is no list of entries.
    if comment and not "".join(lines[2 + atoms :]).strip():
        entries = key_val_str_to_dict(comment)
        _check_entries(entries, comment)
    _check_rows(rows, str(entries.get("Properties", "species:S:1:pos:R:3")))
    return next(read_xyz(io.StringIO(text), index=0, properties_parser=lambda _: entries))


def unreadable(path: Path, index: int, error: Exception) -> InputError:
    """What to say of a frame that some parser failed on, ours or another."""
    if isinstance(error, InputError):
        return InputError(f"{path}, frame {index}: {error}; correct or remove it")
    details = str(error).splitlines()[0][:300] if str(error) else "no details"
    why = f"cannot be read, the file is truncated or not a structure file ({type(error).__name__}: {details})"
    return InputError(f"{path}, frame {index}: {why}")


def unpack(path: Path) -> Path:
    """The content of a compressed file in a temporary one, which the caller removes."""
    most = max(SMALL, LARGEST_GROWTH * path.stat().st_size)
    handle, name = tempfile.mkstemp(prefix="adaptntk-", suffix=path.with_suffix("").suffix)
    try:
        with os.fdopen(handle, "wb") as unpacked, COMPRESSED[path.suffix.lower()](path, "rb") as packed:
            while part := packed.read(2**20):
                unpacked.write(part)
                if unpacked.tell() > most:
                    raise OSError(f"it would grow to more than {most:,} bytes")
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if not isinstance(error, OSError | EOFError | zlib.error | lzma.LZMAError):
            raise
        raise InputError(f"{path}: cannot be unpacked, it is truncated or damaged ({error}); copy it again") from None
    return Path(name)


class _Scan:
    """Where the frames of a file are; every line belongs to one, but for blank ones at the end."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file, self.path, self.number = file, path, 0
        if file.read(len(_MARK)) != _MARK:
            file.seek(0)

    def line(self) -> bytes:
        found = self.file.readline(LONGEST_LINE + 1)
        self.number += 1
        if len(found) > LONGEST_LINE:
            raise InputError(f"{self.path}, line {self.number}: longer than {LONGEST_LINE:,} bytes; not an extxyz file")
        return found

    def frames(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where each frame begins (and the last one ends), and how many atoms it has."""
        offsets: list[int] = [self.file.tell()]
        sizes: list[int] = []
        while (first := self.line()).strip():
            if first.lstrip().startswith(b"VEC") and sizes:  # an old way to write the cell, after the atoms
                offsets[-1] = self.file.tell()
                continue
            where = f"{self.path}, frame {len(sizes)}"
            if not _COUNT.fullmatch(first):
                found = first.decode(errors="replace").strip()[:40]
                why = f"begins with {found!r} (line {self.number}) instead of the number of atoms"
                raise InputError(f"{where}: {why}; not an extxyz file, or damaged")
            for _ in range(int(first) + 1):
                if not self.line():
                    raise InputError(f"{where}: incomplete, the file is truncated; copy it again")
            offsets.append(self.file.tell())
            sizes.append(int(first))
        blank = self.number
        while left := self.line():
            if left.strip():
                why = f"a blank line after {len(sizes)} frames hides the frames behind it; remove the line"
                raise InputError(f"{self.path}, line {blank}: {why}")
        return np.array(offsets), np.array(sizes, dtype=np.int64)


def _is_cut(text: bytes, atoms: int) -> bool:
    """Without a line break at the end: does the last number have fewer digits than the one above or before it?"""
    if text.endswith(b"\n") or not atoms:
        return False
    lines = text.split(b"\n")
    words = lines[-1].split()
    other = lines[-2].split() if atoms > 1 else words[:-1]
    digits = [len(word.partition(b".")[2]) for word in (words[-1:] + other[-1:])]
    return len(digits) < 2 or digits[0] == 0 or digits[0] != digits[1]


def _check_entries(entries: dict[str, Any], comment: str) -> None:
    """Of the comment line."""
    keys = Counter(_keys(comment)) if "=" in comment else Counter()
    for key, count in keys.items():
        if count > 1:
            raise InputError(f"{key!r} stands twice in its comment line")
    for key, value in entries.items():
        if isinstance(value, np.ndarray | np.floating) and value.dtype.kind == "f" and np.isinf(value).any():
            raise InputError(f"{key!r} is infinite or too large a number")
    if "pbc" in entries:
        periodic = np.ravel(np.asarray(entries["pbc"]))
        if periodic.size not in (1, 3) or periodic.dtype.kind not in "bi" or not {*periodic.tolist()} <= {0, 1}:
            raise InputError("pbc must be three of T and F")


def _keys(comment: str) -> list[str]:
    """The words before equals signs that are not quoted; in one go, a line may be a megabyte."""
    bare: list[str] = []
    place = 0
    while found := _OPENING.search(comment, place):
        quoted = _QUOTED[found.group()].match(comment, found.start())
        if quoted is None and found.group() == "'":
            break  # an apostrophe
        if quoted is None:
            raise InputError("a quotation mark or bracket of its comment line is never closed")
        bare += comment[place : found.start()], "-"
        place = quoted.end()
    words = [part.replace(",", " ").split()[-1:] for part in "".join([*bare, comment[place:]]).split("=")[:-1]]
    return [word for last in words for word in last if not word.endswith("-")]


@lru_cache(maxsize=16)
def _columns(properties: str) -> tuple[str, list[int], list[int], dict[str, int]]:
    """What the properties declare: the kind of each column, which are numbers and which T or F, where names begin."""
    if not _COLUMNS.fullmatch(properties):
        raise InputError(f"Properties must be name:R|I|S|L:columns and so on, not {properties[:80]!r}")
    parts = properties.split(":")
    names = [REV_PROPERTY_NAME_MAP.get(name, name) for name in parts[::3]]
    counts = [int(count) for count in parts[2::3]]
    first = dict(zip(names, np.cumsum([0, *counts]).tolist(), strict=False))
    if len(first) < len(names):
        raise InputError("a name stands twice in Properties")
    declared = dict(zip(names, zip(parts[1::3], counts, strict=True), strict=True))
    for name, known in _DECLARED.items():
        if declared.get(name, known[0]) not in known or "positions" not in declared:
            raise InputError("Properties must declare pos:R:3, and species:S:1 or Z:I:1")
    kinds = "".join(kind * count for kind, count in zip(parts[1::3], counts, strict=True))
    numeric = [column for column, kind in enumerate(kinds) if kind in "RI"]
    logical = [column for column, kind in enumerate(kinds) if kind == "L"]
    return kinds, numeric, logical, first


def _check_rows(rows: Sequence[str], properties: str) -> None:
    """Every row has what the properties declare: so many columns, each of its kind."""
    kinds, numeric, logical, first = _columns(properties)
    symbols = first.get("symbols")
    two_names = "numbers" in first and "symbols" in first
    for number, row in enumerate(rows):
        words = row.split()
        if len(words) != len(kinds):
            raise InputError(f"atom {number} has {len(words)} columns where {len(kinds)} are declared")
        # Python's numbers may have underscores, and digits of other scripts.
        if (not row.isascii() or "_" in row) and any("_" in words[c] or not words[c].isascii() for c in numeric):
            raise InputError(f"atom {number} has a number that is none")
        if logical and any(words[column] not in _BOOLEANS for column in logical):
            raise InputError(f"atom {number} has something else where T or F is declared")
        if symbols is not None and words[symbols].capitalize() not in atomic_numbers:
            raise InputError(f"atom {number} is {words[symbols][:20]!r}, which is no chemical element")
        if two_names:
            symbol, element = words[first["symbols"]], words[first["numbers"]]
            if str(atomic_numbers.get(symbol.capitalize())) != element.lstrip("0"):
                raise InputError(f"atom {number} is {symbol} by its symbol and {element} by its number")
