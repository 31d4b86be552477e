"""Records as one line of JSON each, and back. Must not know where they are kept.

A field is written under its own name; enums by value, infinity as null. An unknown kind or field is an error: a journal
written by a newer version is not read half.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from math import isinf
from typing import Any, get_args, get_type_hints

import attrs

from sticky.core.container import ContainerState
from sticky.core.effects import EndSession
from sticky.core.memory import Memory
from sticky.core.records import (
    ContainerCreated,
    ContainerMoved,
    DeploymentMade,
    Record,
    SessionCreated,
    SessionDrains,
)
from sticky.core.values import UNBOUNDED, ContainerId

#: The container of an ended session in a shortened log: the tombstone does not say.
_NOWHERE = ContainerId("")

_dumps = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps makes an encoder for each call

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Record)}


class Unreadable(ValueError):
    """A line that this version did not write."""


def encode(record: Record) -> str:
    """One record as JSON."""
    kind = type(record)
    fields = {name: _plain(getattr(record, name)) for name in _FIELDS[kind]}
    return _dumps({"kind": kind.__name__, **fields})


def decode(line: str) -> Record:
    """The record again. Raises `Unreadable`."""
    try:
        fields = json.loads(line)
        kind = _KINDS[fields.pop("kind")]
        readers = _READERS[kind]
        if fields.keys() != readers.keys():
            raise Unreadable(f"fields of {kind.__name__}: {sorted(fields)}")
        record: Record = kind(**{name: read(fields[name]) for name, read in readers.items()})
    except Unreadable:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from None
    return record


def records_of(memory: Memory) -> Iterator[Record]:
    """The shortest log that gives this memory."""
    if memory.deployment is not None:
        yield DeploymentMade(memory.deployment)
    for session, (reason, detail, forget_at) in memory.ended.items():
        yield EndSession(session, _NOWHERE, reason, detail, forget_at)
    for container, box in memory.containers.items():
        yield ContainerCreated(container, box.deployment, box.born, box.max_age)
    for session, stay in memory.sessions.items():
        yield SessionCreated(session, stay.container, stay.caller, stay.idle_timeout, stay.created_at)
    yield from memory.keys.values()
    for names in memory.names.expired.values():
        yield from names.values()
    yield from memory.names.live.values()
    for container, box in memory.containers.items():
        if box.state is not ContainerState.STARTING:
            yield ContainerMoved(container, box.state, box.reason)
    for session, stay in memory.sessions.items():
        if stay.drains is not None:
            yield SessionDrains(session, stay.container, stay.drains)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and isinf(value):
        return None
    return value


def _reader(hint: Any) -> Callable[[Any], Any]:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    if hint is float:
        return lambda value: UNBOUNDED if value is None else _typed(value, (float, int))
    allowed = tuple(getattr(part, "__supertype__", part) for part in (get_args(hint) or (hint,)))
    return lambda value: _typed(value, allowed)


def _typed(value: Any, allowed: tuple[type, ...]) -> Any:
    if not isinstance(value, allowed) or isinstance(value, bool):
        raise Unreadable(f"a value of type {type(value).__name__}")
    return value


def _readers(kinds: Iterable[type[Any]]) -> dict[type[Any], dict[str, Callable[[Any], Any]]]:
    return {kind: {name: _reader(hint) for name, hint in get_type_hints(kind).items()} for kind in kinds}


_FIELDS = {kind: tuple(field.name for field in attrs.fields(kind)) for kind in _KINDS.values()}
_READERS = _readers(_KINDS.values())
