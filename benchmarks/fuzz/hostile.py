"""Pickles that run code when somebody reads them: each would make a marker file."""

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.fuzz.case import MARKER, Rng, pick

TOUCH = f"touch {MARKER}"
PYTHON = f"open({MARKER!r}, 'w').close()"
# Callables that do harm with the arguments beside them, by the name a pickle calls them.
# Some are found inside modules that a reader of networks has to allow.
CALLS: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "os.system": ("os", "system", (TOUCH,)),
    "posix.system": ("posix", "system", (TOUCH,)),
    "subprocess": ("subprocess", "getoutput", (TOUCH,)),
    "eval": ("builtins", "eval", (PYTHON,)),
    "exec": ("builtins", "exec", (PYTHON,)),
    "open": ("builtins", "open", (MARKER, "w")),
    "runstring": ("numpy.testing._private.utils", "runstring", (PYTHON, {})),
    "torch's os": ("torch.serialization", "os.system", (TOUCH,)),
    "torch, dotted": ("torch", "serialization.os.system", (TOUCH,)),
    "collections, dotted": ("collections", "_sys.modules", ()),
    "e3nn, dotted": ("e3nn.util.codegen", "io.open", (MARKER, "w")),
    "torch.save": ("torch", "save", (1, MARKER)),
    "numpy.save": ("numpy", "save", (MARKER, 1)),
    "ndarray.tofile": ("numpy", "ndarray.tofile", ()),
    "torch.fx": ("torch.fx.graph_module", "reduce_graph_module", ({"_code": PYTHON}, PYTHON)),
    "torch.jit": ("torch.jit", "_script_if_tracing", (PYTHON,)),
    "importlib": ("importlib", "import_module", ("this",)),
    "getattr": ("builtins", "getattr", (1, "real")),
    "numpy.memmap": ("numpy", "memmap", (MARKER, "uint8", "w+", 0, (1,))),
    "numpy.core": ("numpy", "core.multiarray.fromfile", (MARKER,)),
    "torch.from_file": ("torch", "from_file", (MARKER, True, 1)),
    "storage from file": ("torch", "FloatStorage.from_file", (MARKER, True, 4)),
    "torch.hub": ("torch.hub", "download_url_to_file", ("file:///etc/passwd", MARKER)),
    "pathlib": ("pathlib", "Path.touch", ()),
    "shutil": ("shutil", "copyfile", ("/etc/passwd", MARKER)),
    "mace, dotted": ("mace.tools.utils", "os.system", (TOUCH,)),
    "cloudpickle": ("torch.distributed.elastic.utils", "get_logger", ()),
    "inner pickle": ("torch.storage", "_load_from_bytes", ()),
    "inner load": ("pickle", "loads", ()),
    "partial": ("functools", "partial", (print,)),
}


class Harm:
    """Pickles as a call of something."""

    def __init__(self, module: str, name: str, arguments: tuple[Any, ...]) -> None:
        self.module, self.name, self.arguments = module, name, arguments


def _pickled(module: str, name: str, arguments: tuple[Any, ...], protocol: int) -> bytes:
    """The bytes of a call, written by hand: nothing is imported, and a name may have dots."""
    body = pickle.dumps(arguments, protocol)[:-1]
    start = body[:2] if protocol >= 2 else b""
    body = body[len(start) :]
    if protocol >= 4:
        # Without frames, whose lengths would be wrong.
        body = pickle.dumps(arguments, 3)[2:-1]
        words = b"".join(b"\x8c" + bytes([len(word)]) + word.encode() for word in (module, name))
        return b"\x80\x04" + words + b"\x93" + body + b"R."
    return start + f"c{module}\n{name}\n".encode() + body + b"R."


def hostile_pickle(rng: Rng) -> tuple[str, bytes]:
    """Something harmful, and its name."""
    what = str(pick(rng, CALLS))
    module, name, arguments = CALLS[what]
    inner = _pickled("os", "system", (TOUCH,), 2)
    if what == "inner pickle":
        arguments = (inner,)
    if what == "inner load":
        arguments = (inner,)
    if what == "partial":
        arguments = (1,)
    protocol = 4 if "." in name else int(pick(rng, (2, 4)))
    return what, _pickled(module, name, arguments, protocol)


def _as_zip(path: Path, content: bytes, like: bytes) -> None:
    """As torch.save writes it."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in (("data.pkl", content), ("version", b"3\n"), ("byteorder", b"little")):
            archive.writestr(f"archive/{name}", part)


def _as_legacy(path: Path, content: bytes, like: bytes) -> None:
    """As torch.save wrote it before there were archives."""
    magic, protocol = pickle.dumps(torch.serialization.MAGIC_NUMBER, 2), pickle.dumps(1001, 2)
    path.write_bytes(magic + protocol + pickle.dumps({"little_endian": True}, 2) + content + pickle.dumps([], 2))


def _as_plain(path: Path, content: bytes, like: bytes) -> None:
    path.write_bytes(content)


def _in_network(path: Path, content: bytes, like: bytes) -> None:
    """A real network, whose pickle does harm first and then goes on as before."""
    path.write_bytes(like)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, part in parts.items():
            whole = part
            if name.endswith("data.pkl"):  # harm, thrown away, then the network
                whole = content[:-1] + b"0" + part[2:]
            archive.writestr(name, whole)


SHAPES: dict[str, Callable[[Path, bytes, bytes], None]] = {
    "archive": _as_zip, "legacy": _as_legacy, "plain": _as_plain, "in a network": _in_network,
}  # fmt: skip


def write_hostile(rng: Rng, path: Path, like: bytes) -> str:
    """Write a file that does harm when it is unpickled; returns what it is."""
    what, content = hostile_pickle(rng)
    shape = str(pick(rng, SHAPES))
    SHAPES[shape](path, content, like)
    return f"{what}, {shape}"
