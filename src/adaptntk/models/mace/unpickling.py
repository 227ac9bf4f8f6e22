"""MACE model files, read without running anything of them.

A ``.model`` file is a pickle, and a pickle may name any function of any package and have it called. Here only names of
the table below are known, and all else is refused by its name before the first byte is unpickled. torch's restricted
unpickler does the reading: it takes the few operations that torch writes, and sets the state of nothing but objects of
known types. Two kinds of code that belong to every model are not taken from the file but rebuilt (``generated.py``):
the source of MACE's contractions, and the compiled functions of e3nn's layers.
"""

import io
import pickletools
import re
import sys
import threading
import zipfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch._weights_only_unpickler import Unpickler

from adaptntk.models.mace.generated import UnknownCodeError, rebuild
from adaptntk.models.mace.pickling import compile_layer
from adaptntk.models.mace.stock import layers, values

_LOCK = threading.RLock()  # torch's list of safe globals belongs to the process
# Known to torch's unpickler by itself; the others that it knows no model needs.
_TENSORS = {
    "builtins.set",
    "_codecs.encode",
    "collections.OrderedDict",
    "torch.Size",
    "torch.device",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_tensor_v2",
    *(f"torch.{kind}" for kind in ("float16", "bfloat16", "float32", "float64", "int32", "int64", "bool")),
    *(f"torch.{kind}Storage" for kind in ("Half", "BFloat16", "Float", "Double", "Int", "Long", "Bool", "Byte")),
}
_ACTIVATIONS = ("silu", "sigmoid", "tanh", "relu", "gelu", "softplus", "elu", "selu", "leaky_relu", "mish")


class UnsafeModelError(Exception):
    """Names what is in the file and has no place there."""


class DamagedModelError(Exception):
    """Not a file of torch, or only a part of one."""


def read_network(content: bytes) -> Any:
    """The object in a model file: a network, if it is one."""
    records = read_records(content)
    if "constants.pkl" in records:
        raise DamagedModelError("a compiled TorchScript model; use the .model file it was made from")
    return _unpickle(records, _substitutes())


def read_records(content: bytes) -> dict[str, bytes]:
    """The pickle and the tensors of a file that torch wrote, by name; of other parts only the names."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = {entry.filename.partition("/")[2]: entry for entry in archive.infolist()}
            needed = {name for name in entries if name in ("data.pkl", "byteorder") or name.startswith("data/")}
            # Torch stores these as they are: parts that grow when they are read were made to fill the memory.
            stored = all(entries[name].compress_type == zipfile.ZIP_STORED for name in needed)
            if not stored or sum(entries[name].file_size for name in needed) > len(content):
                raise DamagedModelError("compressed")
            records = {name: archive.read(entry) if name in needed else b"" for name, entry in entries.items()}
    except (zipfile.BadZipFile, NotImplementedError, EOFError, OSError, ValueError, RuntimeError) as error:
        raise DamagedModelError(str(error) or type(error).__name__) from None
    if records.get("byteorder", b"little").decode(errors="replace") != sys.byteorder:
        raise DamagedModelError(f"from a machine that is not {sys.byteorder}-endian")
    return records


def _unpickle(records: Mapping[str, bytes], substitutes: Mapping[str, Any]) -> Any:
    if "data.pkl" not in records:
        raise DamagedModelError("no data.pkl in it")
    pickled = records["data.pkl"]
    unknown = _names(pickled) - _TENSORS - set(substitutes)
    if unknown:
        raise UnsafeModelError(f"names {min(unknown)[:100]}, which no MACE model needs")
    unpickler = Unpickler(io.BytesIO(pickled), encoding="utf-8")
    unpickler.persistent_load = partial(_storage, records, {})  # type: ignore[method-assign]
    with _LOCK, torch.serialization.safe_globals([(thing, name) for name, thing in substitutes.items()]):
        return unpickler.load()


def _names(pickled: bytes) -> set[str]:
    """All that a pickle names; of the three ways to do so the restricted unpickler takes only the first."""
    names, texts = set(), ["", ""]
    for operation, argument, _ in pickletools.genops(pickled):
        if operation.name in ("GLOBAL", "INST"):
            names.add(str(argument).replace(" ", "."))
        elif operation.name == "STACK_GLOBAL":
            names.add(".".join(texts))
        elif isinstance(argument, str):
            texts = [texts[-1], argument]
    return {re.sub("^__builtin__", "builtins", name) for name in names}


def _storage(records: Mapping[str, bytes], loaded: dict[str, Any], identity: Any) -> Any:
    """The numbers of a tensor; as many as there are, whatever the pickle says."""
    _, kind, key, _, count = identity
    if key not in loaded:
        content = bytearray(records[f"data/{key}"])
        if len(content) != count * torch.empty(0, dtype=kind.dtype).element_size():
            raise DamagedModelError(f"tensor {key} has another size than it should")
        untyped = torch.frombuffer(content, dtype=torch.uint8).untyped_storage() if content else torch.UntypedStorage(0)
        loaded[key] = torch.storage.TypedStorage(wrap_storage=untyped, dtype=kind.dtype, _internal=True)
    return loaded[key]


@cache
def _substitutes() -> dict[str, Any]:
    """What a model file may name besides tensors, and what stands for it."""
    known: dict[str, Any] = {_full_name(kind): _stand_in(kind) for kind in layers()}
    known |= {_full_name(kind): kind for kind in values}
    known |= {f"torch.nn.functional.{name}": getattr(torch.nn.functional, name) for name in _ACTIVATIONS}
    known |= {"torch.fx.graph_module.reduce_graph_module": _graph_module, "torch.fx._symbolic_trace.Tracer": _Inert}
    known |= {"builtins.getattr": _activation, "torch._C._VariableFunctionsClass": _Inert, "numpy.dtype": _NumberType}
    return known | {f"numpy.{core}.multiarray.scalar": _number for core in ("core", "_core")}


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _stand_in(kind: type[torch.nn.Module]) -> type[torch.nn.Module]:
    """A class that a pickle can only fill, not call; what it fills becomes one of the class it stands for."""

    def refuse(self: Any, *arguments: Any, **options: Any) -> None:
        raise UnsafeModelError(f"calls {_full_name(kind)}, which no MACE model needs")

    def fill(self: Any, state: dict[str, Any]) -> None:
        compiled = state.pop("__codegen__", None)
        self.__class__ = kind
        kind.__setstate__(self, state)
        if compiled is not None:
            self.__dict__["__codegen__"] = list(compiled)
            for name, archive in compiled.items():
                setattr(self, name, _compile(archive))

    return type(kind.__name__, (kind,), {"__init__": refuse, "__setstate__": fill})


class _Inert:
    """Whatever a compiled function was when it was saved: only its attributes are of interest."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.state = dict(state)


def _compile(archive: bytes) -> torch.jit.ScriptModule:
    """A function of a layer, compiled again from the source that its TorchScript archive holds beside its code."""
    records = read_records(archive)
    kinds = {name: _Inert for name in _names(records["data.pkl"]) if name.startswith("__torch__.")}
    saved = _unpickle(records, {"torch.jit._pickle.restore_type_tag": _first, **kinds})
    tensors = {name: value for name, value in saved.state.items() if isinstance(value, Tensor)}
    return _known_code(compile_layer, saved.state.get("_code"), tensors)


def _known_code(make: Callable[[str, Mapping[str, Tensor]], Any], source: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(source, str):
        raise UnsafeModelError("has code in a layer whose source is not there")
    try:
        return make(source, tensors)
    except UnknownCodeError as error:
        raise UnsafeModelError(f"has code in a layer that no MACE model needs ({str(error)[:100]})") from None


def _graph_module(body: dict[str, Any], imports: str) -> fx.GraphModule:
    """In place of ``torch.fx.graph_module.reduce_graph_module``, which executes the source and the imports."""
    module = _known_code(rebuild, body.get("_code") or body.get("code"), {**body["_buffers"], **body["_parameters"]})
    return module.train(bool(body["training"]))


class _NumberType:
    """In place of ``numpy.dtype``."""

    def __init__(self, code: str, *_: object) -> None:
        self.code, self.order = code, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]


def _number(kind: _NumberType, content: bytes) -> Any:
    """In place of numpy's ``scalar``: integers and floats alone."""
    found = np.dtype(kind.order + kind.code)
    if found.kind not in "biuf":
        raise UnsafeModelError(f"holds a number of type {found}, which no MACE model needs")
    return np.frombuffer(content, found)[0]


def _first(value: Any, *_: object) -> Any:
    return value


def _activation(_: object, name: str) -> Callable[..., Tensor]:
    """In place of ``getattr``, by which pickles name functions such as ``torch.tanh``."""
    if name not in ("abs", "tanh", "sigmoid", "relu"):
        raise UnsafeModelError(f"names torch.{name}, which no MACE model needs")
    return getattr(torch, name)
