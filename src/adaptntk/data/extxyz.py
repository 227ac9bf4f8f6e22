"""Frames as they stand in a file, one at a time: nothing is checked but that the file is whole."""

import bz2
import gzip
import io
import lzma
import shutil
import tempfile
import zlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import ase.io
import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from adaptntk.errors import InputError

SUFFIXES = (".xyz", ".extxyz")
COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


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
        if path.suffix in COMPRESSED:
            # Frames are read in any order, for which compressed files are not made.
            self._unpacked = _unpack(path)
            self._plain = Path(self._unpacked.name)
        with self._plain.open("rb") as file:
            self._offsets, self.sizes = _scan(file, path)
        self.bytes = int(self._offsets[-1])  # unpacked

    def __len__(self) -> int:
        return len(self.sizes)

    def _frame(self, index: int) -> Atoms:
        start, stop = self._offsets[index : index + 2]
        with self._plain.open("rb") as file:
            file.seek(start)
            text = file.read(stop - start)
        try:
            return ase.io.read(io.StringIO(text.decode()), index=0, format="extxyz")
        except Exception as error:  # ase raises whatever its parser raises
            raise _unreadable(self.path, index, error) from None


def open_frames(path: Path) -> Sequence[Atoms]:
    """The frames of an extxyz file, or of whatever else ``ase.io`` reads; those are all read at once."""
    check_readable(path)
    plain = path.with_suffix("") if path.suffix in COMPRESSED else path
    if plain.suffix in SUFFIXES:
        return FrameFile(path)
    frames: list[Atoms] = []
    try:
        for atoms in ase.io.iread(path, index=":", do_not_split_by_at_sign=True):
            frames.append(atoms)
    except Exception as error:  # ase raises whatever its many parsers raise
        raise _unreadable(path, len(frames), error) from None
    return frames


def check_readable(path: Path) -> None:
    """Refuse what cannot be a structure file."""
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if path.is_dir():
        raise InputError(f"{path}: is a directory, not a structure file")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty")


def _unreadable(path: Path, index: int, error: Exception) -> InputError:
    details = str(error).splitlines()[0] if str(error) else "no details"
    why = f"cannot be read, the file is truncated or not a structure file ({type(error).__name__}: {details})"
    return InputError(f"{path}, frame {index}: {why}")


def _unpack(path: Path) -> "tempfile._TemporaryFileWrapper[bytes]":
    unpacked = tempfile.NamedTemporaryFile(prefix="adaptntk-", suffix=".xyz")  # noqa: SIM115  lives as long as its owner
    try:
        with COMPRESSED[path.suffix](path, "rb") as packed:
            shutil.copyfileobj(packed, unpacked)
        unpacked.flush()
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        unpacked.close()
        raise InputError(f"{path}: cannot be unpacked, it is truncated or damaged ({error}); copy it again") from None
    return unpacked


def _scan(file: BinaryIO, path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each frame begins (and the last one ends), and how many atoms it has.

    ase passes over a last frame that ends within its first two lines, and over all that follows a blank line.
    """
    offsets: list[int] = [0]
    sizes: list[int] = []
    while (first := file.readline()).strip():
        if first.startswith(b"VEC") and sizes:  # an old way to write the cell, after the atoms
            offsets[-1] = file.tell()
            continue
        try:
            atoms = int(first)
        except ValueError:
            found = first.decode(errors="replace").strip()[:40]
            why = f"begins with {found!r} instead of the number of atoms; not an extxyz file, or damaged"
            raise InputError(f"{path}, frame {len(sizes)}: {why}") from None
        for _ in range(atoms + 1):
            if not file.readline():
                raise InputError(f"{path}, frame {len(sizes)}: incomplete, the file is truncated; copy it again")
        offsets.append(file.tell())
        sizes.append(atoms)
    if any(line.strip() for line in file):
        raise InputError(f"{path}: a blank line after {len(sizes)} frames hides the frames behind it; remove the line")
    return np.array(offsets), np.array(sizes, dtype=np.int64)
