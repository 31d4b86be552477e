"""A session's global names: how a function that comes is tied to them. Runs inside the interpreter; knows no sockets.

Data that a function brings along is set only where the session has none of that name; functions, classes and modules are taken anew,
and every function of the session sees one and the same namespace.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable, Mapping
from typing import Any


class Namespaces:
    """One namespace for each module that functions came from, for the interpreter's life."""

    def __init__(self) -> None:
        self._by_module: dict[str, dict[str, Any]] = {}

    def of(self, module: str) -> dict[str, Any]:
        """The global names of functions that were written in this module."""
        known = self._by_module.get(module)
        if known is None:
            known = {"__name__": module, "__builtins__": builtins}
            self._by_module[module] = known
        return known

    def function(self, spec: Mapping[str, Any]) -> Callable[..., Any]:
        """The function of this description (`sdk.calls.capture`), with what it refers to."""
        names = self.of(spec["module"])
        for name, (kind, value) in spec["globals"].items():
            if kind == "data":
                names.setdefault(name, value)
            elif kind == "function":
                names[name] = _tied(value, names)
            elif kind == "class":
                _tie_class(value, names)
                names[name] = value
            else:
                names[name] = value
        return _tied(spec["function"], names)


def _tied(parts: Mapping[str, Any], names: dict[str, Any]) -> types.FunctionType:
    closure = None if parts["closure"] is None else tuple(types.CellType(value) for value in parts["closure"])
    function = types.FunctionType(parts["code"], names, parts["name"], parts["defaults"], closure)
    function.__kwdefaults__ = parts["kwdefaults"]
    function.__qualname__ = parts["qualname"]
    function.__module__ = names["__name__"]
    function.__doc__ = parts["doc"]
    function.__dict__.update(parts["attributes"])
    if parts.get("remote"):
        function.__dict__["local"] = function  # in a sandbox everything is
    return function


def _tie_class(cls: type, names: dict[str, Any]) -> None:
    """Let a class's own methods see the session's names, where they came with a copy of their own."""
    for name, value in list(vars(cls).items()):
        if isinstance(value, types.FunctionType):
            _set(cls, name, _retied(value, names))
        elif isinstance(value, staticmethod | classmethod):
            inner = value.__func__
            if isinstance(inner, types.FunctionType):
                _set(cls, name, type(value)(_retied(inner, names)))
        elif isinstance(value, property):
            _set(cls, name, property(*(_accessor(part, names) for part in (value.fget, value.fset, value.fdel))))


def _accessor(part: Any, names: dict[str, Any]) -> Any:
    return _retied(part, names) if isinstance(part, types.FunctionType) else part


def _set(cls: type, name: str, value: object) -> None:
    try:
        setattr(cls, name, value)
    except (AttributeError, TypeError):
        pass  # an Enum's, or that of a class which forbids it: it keeps the names that it came with


def _retied(function: types.FunctionType, names: dict[str, Any]) -> types.FunctionType:
    tied = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    tied.__kwdefaults__ = function.__kwdefaults__
    tied.__qualname__ = function.__qualname__
    tied.__module__ = function.__module__
    tied.__doc__ = function.__doc__
    tied.__dict__.update(function.__dict__)
    return tied
