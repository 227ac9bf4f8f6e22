"""Stock model files whose bytes depend on the network alone: not on the process, the day, or where it was loaded from.

What differs in files that ``torch.save`` writes: numbers that TorchScript gives to functions in the order in which a
process compiles them, places in source files, the order of sets and of attributes, which equal values are one object,
the name of the file. Stock MACE reads these files as any other.
"""

import io
import pickle
import re
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, fx

from adaptntk.models.mace.generated import UnknownCodeError, rebuild
from adaptntk.models.mace.stock import irreps, quiet

_NUMBERED = re.compile(rb"[./]___torch_mangle_\d+")
_DEFINED = re.compile(rb"^(?:def|class) (\w+)", re.MULTILINE)


def network_bytes(module: torch.nn.Module) -> bytes:
    """The content of a ``.model`` file."""
    buffer = io.BytesIO()
    with quiet():
        torch.save(module, buffer, pickle_module=SimpleNamespace(__name__="pickle", Pickler=_Pickler))
    return buffer.getvalue()


def compile_layer(source: str, tensors: Mapping[str, Tensor]) -> torch.jit.ScriptModule:
    """A function of a layer from its source and its constants; code that is no layer's raises `UnknownCodeError`."""
    with quiet():
        return torch.jit.load(io.BytesIO(_layer_bytes(source, tensors)))


class _Pickler(pickle._Pickler):
    """Equal strings and irreps become one object, sets and attributes are sorted, generated code is made anew."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._values: dict[Any, Any] = {}

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if type(obj) in (str, *irreps):
            obj = self._values.setdefault((type(obj), obj), obj)
        super().save(obj, save_persistent_id)  # type: ignore[misc]

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is set:
            return set, (sorted(obj),)
        try:
            if isinstance(obj, fx.GraphModule):
                return _reduced_graph(obj)
            return _reduced_layer(obj) if isinstance(obj, torch.nn.Module) else NotImplemented
        except UnknownCodeError:  # of a network that somebody trusted: it is written as it is
            return NotImplemented


def _reduced_layer(module: torch.nn.Module) -> Any:
    reduced: Any = module.__reduce_ex__(2)
    function, arguments, state, *rest = reduced
    for name in state.get("__codegen__", ()):
        compiled = getattr(module, name)
        state["__codegen__"][name] = _layer_bytes(compiled._code, dict(compiled.named_buffers()))
    return function, arguments, dict(sorted(state.items())), *rest


def _reduced_graph(module: fx.GraphModule) -> Any:
    """As torch would pickle a module that was read from its source, whatever made this one."""
    function, (body, imports) = rebuild(module.code, dict(module.named_buffers())).train(module.training).__reduce__()
    return function, (dict(sorted(body.items())), imports)


def _layer_bytes(source: str, tensors: Mapping[str, Tensor]) -> bytes:
    values = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    key = tuple((name, tensor.dtype, tensor.shape, tensor.numpy().tobytes()) for name, tensor in values.items())
    return _compiled(source, key)


@lru_cache(maxsize=512)  # compiling takes long, and networks of one kind have the same layers
def _compiled(source: str, tensors: tuple[tuple[str, torch.dtype, torch.Size, bytes], ...]) -> bytes:
    """The TorchScript archive of a function."""
    values = {
        name: torch.frombuffer(bytearray(content), dtype=dtype).view(shape) for name, dtype, shape, content in tensors
    }
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(rebuild(source, values)), buffer)
    return _without_chance(buffer.getvalue())


def _without_chance(archive: bytes) -> bytes:
    """The same archive without numbers that depend on what was compiled before, and without notes on sources."""
    parts: dict[str, list[bytes]] = {}
    with zipfile.ZipFile(io.BytesIO(archive)) as old:
        for name in old.namelist():
            if not name.endswith((".debug_pkl", "/serialization_id")):
                plain = _NUMBERED.sub(b"", name.encode()).decode()
                parts.setdefault(plain, []).append(_NUMBERED.sub(b"", old.read(name)))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as new:
        for name, contents in sorted(parts.items()):
            # Functions of one name that torch told apart by such a number, as einsum and tensordot of torch.functional.
            together = b"".join(sorted(set(contents)))
            defined = _DEFINED.findall(together)
            assert len(set(defined)) == len(defined), "two functions of one name in a layer"
            new.writestr(zipfile.ZipInfo(name), together)
    return buffer.getvalue()
