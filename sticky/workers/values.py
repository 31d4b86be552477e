"""Values that cross between processes, as JSON and back: attrs classes by their fields, bytes as Latin-1. Knows no message.

What is made from JSON is checked against the annotations of its class, so that a field that another version has not got is
an error where it is read, not later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs

from sticky import errors

_Made = TypeVar("_Made")


def plain(value: Any) -> Any:
    """The value in terms of JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Enum):
        return plain(value.value)
    if attrs.has(type(value)):
        return {field.name: plain(getattr(value, field.name)) for field in attrs.fields(type(value))}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted((plain(item) for item in value), key=repr)
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    return str(value)  # paths and networks


def made(kind: type[_Made], data: Any) -> _Made:
    """The value of this class that `plain` made this of. Raises ValueError, TypeError or KeyError where it cannot be."""
    return _made(kind, data)  # type: ignore[no-any-return]


def _made(kind: Any, data: Any) -> Any:
    if kind is Any or kind is object:
        return data
    kind = getattr(kind, "__supertype__", kind)  # of a NewType
    if kind is bytes:
        return _of(str, data).encode("latin-1")
    if kind in (str, bool, int):
        return _of(kind, data)
    if kind is float:
        return float(_of((int, float), data))
    if kind is NoneType:
        if data is not None:
            raise ValueError("null was expected")
        return None
    if kind is Path:
        return Path(_of(str, data))
    if kind in (IPv4Network, IPv6Network):
        network = ip_network(_of(str, data))
        if not isinstance(network, kind):
            raise ValueError("a network of the other family")
        return network
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _one_of(arguments, data)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_made(arguments[0], item) for item in _of(list, data))
    if origin is tuple:
        items = _of(list, data)
        if len(items) != len(arguments):
            raise ValueError(f"{len(arguments)} items were expected")
        return tuple(_made(one, item) for one, item in zip(arguments, items, strict=True))
    if origin in (frozenset, set):
        return origin(_made(arguments[0], item) for item in _of(list, data))
    if origin is not None and issubclass(origin, Mapping):
        return {_made(arguments[0], key): _made(arguments[1], item) for key, item in _of(dict, data).items()}
    if origin is not None and issubclass(origin, Sequence):
        return tuple(_made(arguments[0], item) for item in _of(list, data))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if attrs.has(kind):
        hints = _hints(kind)
        given = _of(dict, data)
        unknown = given.keys() - hints.keys()
        if unknown:
            raise ValueError(f"{kind.__name__} has no {min(unknown)}")
        return kind(**{name: _made(hints[name], value) for name, value in given.items()})
    raise TypeError(f"values of {kind} do not cross")


def _of(kind: Any, data: Any) -> Any:
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise TypeError(f"{kind} was expected, not {type(data).__name__}")
    return data


def _one_of(kinds: Sequence[Any], data: Any) -> Any:
    for kind in kinds:
        try:
            return _made(kind, data)
        except (ValueError, TypeError, KeyError):
            continue
    raise ValueError("of none of the kinds that there may be")


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in attrs.fields(kind)}


# --- refusals --------------------------------------------------------------------------------------------------------


def refused(refusal: errors.Refusal) -> dict[str, Any]:
    """A refusal, with everything that its class and its code say of it."""
    more = {name: plain(value) for name, value in vars(refusal).items() if name not in ("message", "code")}
    return {
        "kind": type(refusal).__name__,
        "status": refusal.status,
        "code": refusal.code,
        "message": refusal.message,
        **more,
    }


def refusal_of(data: Mapping[str, Any]) -> errors.Refusal:
    """The refusal again. One that this version has no class for keeps status, code and message."""
    fields = dict(data)
    name, status = fields.pop("kind"), fields.pop("status")
    kind = _kinds().get(name)
    if kind is None:
        kind = type(str(name), (errors.Refusal,), {"status": int(status)})
    refusal = kind.__new__(kind)
    Exception.__init__(refusal, fields["message"])
    vars(refusal).update({key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()})
    return refusal


@cache
def _kinds() -> dict[str, type[errors.Refusal]]:
    kinds, todo = {}, [errors.Refusal]
    while todo:
        kind = todo.pop()
        kinds[kind.__name__] = kind
        todo += kind.__subclasses__()
    return kinds
