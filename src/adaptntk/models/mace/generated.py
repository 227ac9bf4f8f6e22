"""Code that e3nn generates for a layer, read as text and rebuilt: nothing of it is executed.

e3nn and MACE write the contractions of their layers as Python source, one operation on tensors per line. Such a source
is parsed here and becomes a graph of the operations below; a source with anything else in it is refused.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "torch._assert": torch._assert,
    "torch.cat": torch.cat,
    "torch.empty": torch.empty,
    "torch.zeros": torch.zeros,
    "torch.functional.broadcast_tensors": torch.functional.broadcast_tensors,
    "torch.functional.einsum": torch.functional.einsum,
    "torch.functional.tensordot": torch.functional.tensordot,
}
_METHODS = {
    "broadcast_to",
    "contiguous",
    "copy_",
    "expand",
    "narrow",
    "new_zeros",
    "permute",
    "reshape",
    "transpose",
    "view",
}
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_LONGEST = 1_000_000  # characters


class UnknownCodeError(Exception):
    """A piece of source that no layer needs."""


def rebuild(source: str, tensors: Mapping[str, Tensor]) -> fx.GraphModule:
    """The module whose ``forward`` has this source, and whose buffers are these tensors."""
    if len(source) > _LONGEST:
        raise UnknownCodeError("too long")
    try:
        (function,) = ast.parse(source.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UnknownCodeError("not one function") from None
    if not isinstance(function, ast.FunctionDef) or function.decorator_list or function.name != "forward":
        raise UnknownCodeError("not one function")
    return fx.GraphModule(_holder(tensors), _Reader(tensors).graph(function))


def _holder(tensors: Mapping[str, Tensor]) -> torch.nn.Module:
    module = torch.nn.Module()
    for name, tensor in tensors.items():
        module.register_buffer(name, tensor)
    return module


class _Reader:
    """Turns the lines of a function into the nodes of a graph."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors, self._graph = tensors, fx.Graph()
        self._known: dict[str, Any] = {}

    def graph(self, function: ast.FunctionDef) -> fx.Graph:
        arguments = function.args
        plain = ast.arguments([], arguments.args, None, [], [], None, [])
        if ast.dump(arguments) != ast.dump(plain) or [item.arg for item in arguments.args[:1]] != ["self"]:
            raise UnknownCodeError(ast.unparse(arguments))
        for item in arguments.args[1:]:
            self._known[item.arg] = self._graph.placeholder(item.arg, self._type(item.annotation))
        *lines, last = function.body
        for line in lines:
            self._assign(line)
        if isinstance(last, ast.Return):
            value = None if last.value is None else self._value(last.value)
            self._graph.output(value, self._type(function.returns))
        else:
            self._assign(last)
        return self._graph

    def _assign(self, line: ast.stmt) -> None:
        """``name = expression``, or ``name = other = None``, which only frees memory."""
        if not isinstance(line, ast.Assign) or not all(isinstance(target, ast.Name) for target in line.targets):
            raise UnknownCodeError(ast.unparse(line))
        if isinstance(line.value, ast.Constant) and line.value.value is None:
            return
        (target,) = line.targets
        assert isinstance(target, ast.Name)
        self._known[target.id] = self._node(line.value, target.id)

    def _node(self, expression: ast.expr, name: str) -> fx.Node:
        """One operation."""
        match expression:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=method)) if owner in self._known:
                if method not in _METHODS:
                    raise UnknownCodeError(f".{method}")
                how: tuple[str, Any] = ("call_method", method)
                arguments, options = self._arguments(expression)
                arguments = (self._known[owner], *arguments)
            case ast.Call(func=function):
                if (called := ast.unparse(function)) not in _FUNCTIONS:
                    raise UnknownCodeError(called)
                how = ("call_function", _FUNCTIONS[called])
                arguments, options = self._arguments(expression)
            case ast.Attribute(value=ast.Name(id="self"), attr=tensor) if tensor in self._tensors:
                how, arguments, options = ("get_attr", tensor), (), {}
            case ast.Attribute(value=ast.Name() as owner_name, attr="shape"):
                how, arguments, options = ("call_function", getattr), (self._value(owner_name), "shape"), {}
            case ast.Subscript(value=value, slice=place):
                how = ("call_function", operator.getitem)
                arguments, options = (self._value(value), self._value(place)), {}
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
                how = ("call_function", _OPERATORS[type(sign)])
                arguments, options = (self._value(left), self._value(right)), {}
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                how = ("call_function", operator.eq)
                arguments, options = (self._value(left), self._value(right)), {}
            case _:
                raise UnknownCodeError(ast.unparse(expression))
        return self._graph.create_node(*how, arguments, options, name)

    def _arguments(self, call: ast.Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
        named = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                raise UnknownCodeError(ast.unparse(call))
            named[keyword.arg] = self._value(keyword.value)
        return tuple(map(self._value, call.args)), named

    def _value(self, expression: ast.expr) -> Any:
        """What stands for a value: a name, a number, a list of these."""
        match expression:
            case ast.Name(id=name) if name in self._known:
                return self._known[name]
            case ast.Constant(value=value) if value is None or isinstance(value, bool | int | float | str):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if isinstance(value, int | float):
                return -value
            case ast.Tuple(elts=items):
                return tuple(map(self._value, items))
            case ast.List(elts=items):
                return list(map(self._value, items))
            case ast.Call(func=ast.Name(id="slice"), args=items, keywords=[]):
                return slice(*map(self._value, items))
        raise UnknownCodeError(ast.unparse(expression))

    def _type(self, annotation: ast.expr | None) -> Any:
        if annotation is None:
            return None
        match annotation:
            case ast.Subscript(value=ast.Name(id="typing_Tuple"), slice=ast.Tuple(elts=items)):
                return tuple[tuple(map(self._type, items))]  # type: ignore[misc]
            case _ if ast.unparse(annotation) == "torch.Tensor":
                return Tensor
        raise UnknownCodeError(ast.unparse(annotation))
