"""Model files that somebody made to run code, or to break us. What they would run creates the file ``marker``."""

import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path

import torch


class Call:
    """An object that a pickle makes by calling a function."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def saved(thing) -> bytes:
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    return buffer.getvalue()


def with_record(content: bytes, name: str, change, method=zipfile.ZIP_STORED) -> bytes:
    """A file of torch with one part changed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(buffer, "w", method) as new:
        for entry in old.infolist():
            part = old.read(entry)
            new.writestr(entry.filename, change(part) if entry.filename.endswith(f"/{name}") else part)
    return buffer.getvalue()


def with_pickle(content: bytes, pickled: bytes) -> bytes:
    return with_record(content, "data.pkl", lambda _: pickled)


def inside(network, thing):
    """The network with something more in it."""
    network.payload = thing
    return network


def with_weights(network, value):
    """The network with other numbers."""
    for parameter in network.parameters():
        parameter.data.fill_(value)
    return network


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def reduce(module: str, name: str, *arguments: str) -> bytes:
    """A pickle of protocol 2 that calls a function with strings."""
    return b"\x80\x02c%b\n%b\n(%btR." % (module.encode(), name.encode(), b"".join(map(text, arguments)))


def stack_global(module: str, name: str, *arguments: str) -> bytes:
    """The same in protocol 4, which finds names with dots in them."""
    return b"\x80\x04%b%b\x93(%btR." % (text(module), text(name), b"".join(map(text, arguments)))


def graph_module(source: str) -> Call:
    """A module whose source is executed when it is unpickled."""
    function, (body, imports) = torch.fx.symbolic_trace(torch.nn.Identity()).__reduce__()
    return Call(function, body | {"_code": source}, imports + "\n")


class Writer(torch.nn.Module):
    """Compiled code that writes a file by itself."""

    def __init__(self, marker: Path):
        super().__init__()
        self.marker = str(marker)
        self._code = "def forward(self, x):\n    return x"

    def forward(self, x):
        torch.from_file(self.marker, True, 4, dtype=torch.float32)
        return x


def files(marker: Path, network) -> dict[str, bytes]:
    """By what is wrong with them; ``network()`` makes a real one."""
    touch = f"touch {marker}"
    real = saved(network())
    evil = f"__import__('os').system({touch!r})"
    traced = saved(graph_module(f"def forward(self, x):\n    {evil}\n    return x"))
    storage = torch.storage.TypedStorage(
        wrap_storage=torch.zeros(4).untyped_storage(), dtype=torch.float32, _internal=True
    )
    beyond = (storage, 0, (1000,), (1,), False, OrderedDict())
    default = f"def forward(self, x={evil}):\n    return x"
    return {
        "os.system": saved(Call(os.system, touch)),
        "builtins.exec": saved(Call(exec, evil)),
        "builtins.eval": with_pickle(real, reduce("__builtin__", "eval", evil)),
        "in a network": saved(inside(network(), Call(os.system, touch))),
        "torch.hub": with_pickle(real, reduce("torch.hub", "load_state_dict_from_url", "file:///etc/hostname")),
        "torch.load": with_pickle(real, reduce("torch.serialization", "load", "/dev/null")),
        "torch.os": with_pickle(real, reduce("torch.serialization", "os.system", touch)),
        "dotted": with_pickle(real, stack_global("torch.nn.modules.module", "Module.forward.__globals__", touch)),
        "stack global": with_pickle(real, stack_global("os", "system", touch)),
        "extension": with_pickle(real, b"\x80\x02\x82\x01."),
        "inst": with_pickle(real, b"\x80\x02(%bios\nsystem\n." % text(touch)),
        "persistent id": with_pickle(real, b"\x80\x02" + text("storage") + b"Q."),
        "source": traced,
        "source, default": saved(graph_module(default)),
        "source, decorator": saved(graph_module(f"@{evil}\ndef forward(self, x):\n    return x")),
        "source, attribute": saved(graph_module("def forward(self, x):\n    y = x.__class__.__base__\n    return y")),
        "source, function": saved(graph_module("def forward(self, x):\n    y = torch.load('x')\n    return y")),
        "a layer called": with_pickle(real, b"\x80\x02cmace.modules.models\nScaleShiftMACE\n)R."),
        "legacy pickle": pickle.dumps(Call(os.system, touch)),
        "compressed": with_record(real, "data.pkl", lambda _: b"\0" * 50_000_000, zipfile.ZIP_DEFLATED),
        "other byte order": with_record(real, "byteorder", lambda _: b"big"),
        "nothing in it": with_pickle(real, b"\x80\x02cmace.modules.models\nScaleShiftMACE\n)\x81}b."),
        "never filled": with_pickle(real, b"\x80\x02cmace.modules.models\nScaleShiftMACE\n)\x81."),
        "tensor beyond its numbers": saved(inside(network(), Call(torch._utils._rebuild_tensor_v2, *beyond))),
        "not a number": saved(with_weights(network(), float("nan"))),
        "short tensor": with_record(real, "data/0", lambda part: part[:-4]),
    }
