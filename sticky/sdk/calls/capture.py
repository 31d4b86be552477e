"""What of a function goes to a sandbox: its code, and what its global names stand for here. Knows no network.

Data, functions, classes and modules are told apart, because a session treats them differently (`sandbox.namespace`): data that the
session has is not overwritten, so that state persists; functions and classes always are, so that what was edited counts.
"""

from __future__ import annotations

import builtins
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from sticky.sdk.exception import InvalidError

_LIBRARIES = tuple(
    {path for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(name))}
)


def packed_function(function: Callable[..., Any]) -> bytes:
    """The function for a sandbox. Raises `InvalidError` for what cannot go, naming it."""
    if not isinstance(function, types.FunctionType):
        raise InvalidError(
            f"{function!r} is not a function that was written in Python; only those can be called remotely"
        )
    names: dict[str, tuple[str, Any]] = {}
    _collect(function, function.__globals__, names, set())
    module = function.__module__ or "__main__"
    spec = {"module": module, "function": _parts(function), "globals": names}
    with _by_value(module):
        for name, (kind, value) in names.items():
            _check(name, kind, value)
        return _dumps(spec, f"the function {function.__qualname__}")


def packed_arguments(arguments: tuple[Any, ...], named: Mapping[str, Any], module: str) -> bytes:
    """Arguments for a sandbox. Raises `InvalidError`, naming the one that cannot be pickled."""
    with _by_value(module):
        try:
            return _pickled((arguments, dict(named)))
        except Exception:
            for name, value in [*enumerate(arguments, 1), *named.items()]:
                _dumps(value, f"argument {name!r}")
            raise


def _parts(function: types.FunctionType) -> dict[str, Any]:
    try:
        closure = None if function.__closure__ is None else tuple(cell.cell_contents for cell in function.__closure__)
    except ValueError:
        raise InvalidError(f"{function.__qualname__} refers to a local name that has no value yet") from None
    return {
        "code": function.__code__,
        "name": function.__name__,
        "qualname": function.__qualname__,
        "doc": function.__doc__,
        "defaults": function.__defaults__,
        "kwdefaults": function.__kwdefaults__,
        "closure": closure,
        "attributes": {key: value for key, value in vars(function).items() if not key.startswith("__")},
    }


def _collect(
    function: types.FunctionType, scope: Mapping[str, Any], names: dict[str, tuple[str, Any]], seen: set[int]
) -> None:
    """The global names that this function, and what it calls in the same module, may look up."""
    if id(function) in seen:
        return
    seen.add(id(function))
    for name in _names(function.__code__):
        if name in names or name not in scope or (hasattr(builtins, name) and scope[name] is getattr(builtins, name)):
            continue
        value = getattr(scope[name], "__sticky_function__", scope[name])
        if isinstance(value, types.FunctionType) and value.__globals__ is scope:
            names[name] = ("function", {**_parts(value), "remote": value is not scope[name]})
            _collect(value, scope, names, seen)
        elif isinstance(value, type) and _mine(value, scope):
            names[name] = ("class", value)
            for part in vars(value).values():
                for inner in _functions(part):
                    _collect(inner, scope, names, seen)
        elif isinstance(value, types.ModuleType | types.FunctionType | types.BuiltinFunctionType | type):
            names[name] = ("reference", value)
        else:
            names[name] = ("data", value)


def _functions(part: object) -> Iterator[types.FunctionType]:
    candidates = (part.fget, part.fset, part.fdel) if isinstance(part, property) else (getattr(part, "__func__", part),)
    yield from (one for one in candidates if isinstance(one, types.FunctionType))


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _mine(cls: type, scope: Mapping[str, Any]) -> bool:
    return cls.__module__ == scope.get("__name__")


def _check(name: str, kind: str, value: Any) -> None:
    try:
        _pickled(value)
    except Exception as error:
        raise InvalidError(
            f"the global name {name!r} ({kind}) cannot go to a sandbox: {type(error).__name__}: {error}. "
            "Make it inside a function of the session instead."
        ) from None


def _dumps(value: Any, what: str) -> bytes:
    try:
        return _pickled(value)
    except Exception as error:
        raise InvalidError(f"{what} cannot be pickled: {type(error).__name__}: {error}") from None


def _pickled(value: Any) -> bytes:
    data: bytes = cloudpickle.dumps(value, protocol=5)
    return data


@contextmanager
def _by_value(module: str) -> Iterator[None]:
    """While this lasts, what the user's own module defines goes by value: the sandbox cannot import it."""
    found = sys.modules.get(module)
    ours = found is not None and module != "__main__" and _is_users(found)
    before = module in cloudpickle.list_registry_pickle_by_value()
    if ours and not before:
        cloudpickle.register_pickle_by_value(found)
    try:
        yield
    finally:
        if ours and not before:
            cloudpickle.unregister_pickle_by_value(found)


def _is_users(module: types.ModuleType) -> bool:
    path = getattr(module, "__file__", None)
    return path is not None and not path.startswith(_LIBRARIES)
