"""Blocks of feature rows on disk, found again by the hash of their structure.

A store is a folder of three files:

- ``store.json``: the format's version and what the rows depend on (model, sketch, normalisation);
- ``rows.bin``: the blocks, float64, one after the other;
- ``index.bin``: for each block the SHA-256 of its structure and the CRC-32 of its bytes.

Both binary files only grow. A block counts once its index entry is there, and the blocks are on disk before their
entries are written: whatever an interruption leaves behind is cut off when the store is opened again. Blocks are
read when they are used, a part at a time, so a store may be larger than the memory. Several processes may use a store
at once: whoever adds blocks holds its lock for that moment, and takes in what others have added before.
"""

import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adaptntk.core.blocks import Blocks, chunks
from adaptntk.errors import InputError, MismatchError
from adaptntk.files import check_folder, locked, read_record, shortened, sweep_temporaries, sync_folder, write_json
from adaptntk.representation import short_repr

VERSION = 1
# What stores hold that were made before a structure could have several rows.
_FIRST_STORES: dict[str, Any] = {"map": "energy", "rows": 1}
_ENTRY = np.dtype([("hash", "S32"), ("checksum", "<u4")])


class FeatureStore:
    """Blocks of features by structure.

    Args:
        folder: where the store is, or will be.
        identity: what the features depend on; a store made for anything else is refused.
        width, rows: of each block, and
        asked: how many of its rows are asked about.
    """

    def __init__(
        self, folder: str | Path, identity: Mapping[str, Any], width: int, rows: int = 1, asked: int = 1
    ) -> None:
        check_folder(folder)
        self.folder = Path(folder)
        self._refuse_strangers()
        self._rows, self._index = self.folder / "rows.bin", self.folder / "index.bin"
        self.width, self.height, self.asked = width, rows, asked
        header = {"format": "adaptntk features", "version": VERSION, "dim": width, "dtype": "float64", **identity}
        self._sizes = {self._rows: 8 * width * rows, self._index: _ENTRY.itemsize}
        # Entries in parts, as they were added, until somebody looks for one.
        self._parts = [np.zeros(0, dtype=_ENTRY)]
        self._sorted: NDArray[np.int64] | None = None
        with self._alone():
            self._check_header(json.loads(json.dumps({**_FIRST_STORES, "rows": rows, **header})))
            for path in self._sizes:
                path.touch()
                if not path.is_file() and not path.is_dir():
                    raise InputError(f"{path}: is no ordinary file; remove the folder, its rows are made again")
            sync_folder(self.folder)
            # Cut off what an interrupted process has written in part.
            self._cut(min(path.stat().st_size // size for path, size in self._sizes.items()))
            self._take_in()

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def find(self, hashes: Sequence[str]) -> NDArray[np.int64]:
        """The number of the block of each structure (by its hexadecimal hash), -1 where there is none."""
        wanted = np.array([bytes.fromhex(digest) for digest in hashes], dtype="S32")
        if not len(self):
            return np.full(len(wanted), -1, dtype=np.int64)
        known = self._entries["hash"]
        if self._sorted is None:
            self._sorted = np.argsort(known, kind="stable")
        place = np.searchsorted(known, wanted, sorter=self._sorted)
        candidates = self._sorted[np.minimum(place, len(self) - 1)]
        return np.where(known[candidates] == wanted, candidates, -1)

    def append(self, hashes: Sequence[str], blocks: Tensor) -> None:
        """Add blocks of structures that `find` does not find."""
        if blocks.shape != (len(hashes), self.height, self.width):
            wanted = f"{len(hashes)} blocks of {self.height} x {self.width} numbers"
            raise InputError(f"{wanted} expected, not {tuple(blocks.shape)}")
        values = blocks.double().cpu().numpy()
        entries = np.zeros(len(hashes), dtype=_ENTRY)
        entries["hash"] = [bytes.fromhex(digest) for digest in hashes]
        entries["checksum"] = [zlib.crc32(block.tobytes()) for block in values]
        with self._alone():
            others = self._take_in()
            # Another process may have been faster; to look is costly in a large store.
            new = self.find(hashes) < 0 if others else np.ones(len(hashes), dtype=bool)
            for path, content in ((self._rows, values[new]), (self._index, entries[new])):
                try:
                    with path.open("ab") as file:
                        file.write(content.tobytes())
                        file.flush()
                        os.fsync(file.fileno())
                except OSError:
                    self._cut(len(self))
                    raise
        self._parts.append(entries[new])
        self._sorted = None

    def check(self, numbers: NDArray[np.int64]) -> None:
        """Compare blocks with their checksums."""
        checksums = self._entries["checksum"]
        for place, part in chunks(self.blocks(numbers)):
            for number, block in zip(numbers[place].tolist(), part.numpy(), strict=True):
                if zlib.crc32(block.tobytes()) != int(checksums[number]):
                    where = f"{self._rows}: row {number}"
                    raise InputError(f"{where} is damaged; remove the folder, its rows are made again")

    def blocks(self, numbers: NDArray[np.int64], device: torch.device | str = "cpu") -> "StoredBlocks":
        """These blocks, which are read when they are used."""
        if len(numbers) and int(numbers.min()) < 0:
            raise InputError(f"{self.folder}: some of the structures have no block in the feature store")
        return StoredBlocks(self, numbers, torch.device(device))

    @property
    def _entries(self) -> NDArray[Any]:
        self._parts = [np.concatenate(self._parts)]
        return self._parts[0]

    def read(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Copies of blocks. Read, not mapped: pages of a mapped file count as memory, sixteen for each touched."""
        blocks = np.empty((len(numbers), self.height, self.width))
        borders = np.flatnonzero(np.diff(numbers) != 1) + 1
        try:
            with self._rows.open("rb") as file:
                # Runs of neighbouring blocks at once.
                for run in np.split(np.arange(len(numbers)), borders) if len(numbers) else ():
                    file.seek(int(numbers[run[0]]) * self._sizes[self._rows])
                    part = blocks[run[0] : run[-1] + 1].data.cast("B")
                    if file.readinto(part) < len(part):
                        raise InputError(f"{self._rows}: is shorter than its index says; start again to mend it")
        except OSError as error:
            raise InputError(f"cannot read {self._rows}: {error.strerror or error}") from None
        return blocks

    @staticmethod
    def held(folder: str | Path, hashes: Sequence[str]) -> NDArray[np.bool_]:
        """Which structures a store seems to hold: a guess for estimates, without opening it."""
        try:
            path = Path(folder) / "index.bin"
            known = np.fromfile(path, dtype=_ENTRY)["hash"] if path.is_file() else np.zeros(0, dtype="S32")
        except OSError:
            known = np.zeros(0, dtype="S32")
        return np.isin(np.array([bytes.fromhex(digest) for digest in hashes], dtype="S32"), known)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Without other processes, and with errors of the system in one line."""
        with locked(self.folder, wait=True):
            try:
                yield
            except OSError as error:
                where = error.filename or self.folder
                raise InputError(f"cannot use {where}: {error.strerror or error}") from None

    def _take_in(self) -> bool:
        """Whether other processes have added entries, which we then know; what a killed one left is cut off.

        The caller holds the lock.
        """
        count = self._index.stat().st_size // _ENTRY.itemsize
        if count < len(self) or self._rows.stat().st_size < count * self._sizes[self._rows]:
            raise InputError(f"{self.folder}: another process has changed the feature store; start again")
        self._cut(count)
        if count == len(self):
            return False
        self._parts.append(np.fromfile(self._index, dtype=_ENTRY, offset=len(self) * _ENTRY.itemsize))
        self._sorted = None
        return True

    def _refuse_strangers(self) -> None:
        """A folder with something in it is a store, or not ours. Hidden are the lock, and what a killed start left."""
        try:
            names = os.listdir(self.folder) if self.folder.exists() else []
        except OSError as error:
            raise InputError(f"cannot use {self.folder}: {error.strerror or error}") from None
        # The description is the first of its files.
        if "store.json" not in names and any(not name.startswith(".") for name in names):
            raise InputError(f"{self.folder}: not a feature store, and not empty; choose another folder")

    def _check_header(self, header: dict[str, Any]) -> None:
        path = self.folder / "store.json"
        if not path.exists():
            self._refuse_strangers()
            sweep_temporaries(self.folder)
            write_json(path, header)
            return
        found = _FIRST_STORES | read_record(path, dict[str, Any])
        for key, value in header.items():
            if found.get(key) != value:
                there = shortened(found.get(key), 80)
                why = f"holds features of another kind: {key} is {there} there and {value} here"
                raise MismatchError(f"{self.folder}: {why}; choose another folder")

    def _cut(self, count: int) -> None:
        """Keep the first blocks only. The caller holds the lock."""
        for path, size in self._sizes.items():
            if path.stat().st_size > count * size:
                os.truncate(path, count * size)


@short_repr
@dataclass(frozen=True)
class StoredBlocks(Blocks):
    """Some blocks of a store, in an order of their own; parts of it are read when they are asked for."""

    store: FeatureStore
    numbers: NDArray[np.int64]
    device: torch.device

    @property
    def asked(self) -> int:
        return self.store.asked

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.numbers), self.store.height, self.store.width

    def __getitem__(self, key: slice | Tensor) -> Tensor:
        numbers = self.numbers[key if isinstance(key, slice) else key.cpu().numpy()]
        return torch.from_numpy(self.store.read(numbers)).to(self.device)
