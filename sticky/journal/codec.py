"""Records as one line of JSON each, and back. Must not know where they are kept.

A line is a list: the kind, then the fields in their order; enums by value, infinity as null. What is remembered of ended sessions
takes most of a log, so that a shortened one has many of them in a line, column by column. An unknown kind, or other fields, are an
error: a journal written by a newer version is not read half. Schema 1 had objects with the fields' names, which are read still.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import product, repeat
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
from sticky.core.values import UNBOUNDED, ContainerId, EndReason

#: The container of an ended session in a shortened log: the tombstone does not say.
_NOWHERE = ContainerId("")

#: The kind of a line that holds many ended sessions.
_ENDED = "Ended"
#: Of 100,000 that are read in 0.26 s so, 50 to a line take 0.38 s and 5,000 no less, in lines of 300 kB.
_ENDED_IN_A_LINE = 500

_dumps = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps makes an encoder for each call
_loads = json.JSONDecoder().decode  # and json.loads looks at its arguments


class Unreadable(ValueError):
    """A line that this version did not write."""


def encode(record: Record) -> str:
    """One record as JSON."""
    kind = type(record)
    return _dumps([kind.__name__, *[_plain(getattr(record, name)) for name in _SHAPES[kind.__name__].fields]])


def decode(line: str) -> Sequence[Record]:
    """What a line tells: one record, or many ends. Raises `Unreadable`."""
    try:
        found = _loads(line)
        if type(found) is dict:
            return [_of_schema_1(found)]
        kind, *values = found
        if kind == _ENDED:
            return _ends(*values)
        return [_record(_SHAPES[kind], values)]
    except Unreadable:
        raise
    except (ValueError, TypeError, KeyError) as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from None


def lines_of(memory: Memory) -> Iterator[str]:
    """The shortest log that gives this memory."""
    ended = list(memory.ended.items())
    for first in range(0, len(ended), _ENDED_IN_A_LINE):
        some = ended[first : first + _ENDED_IN_A_LINE]
        reasons, details, times = zip(*(end for _, end in some), strict=True)
        sessions = [session for session, _ in some]
        yield _dumps(
            [_ENDED, sessions, [reason.value for reason in reasons], details, [_plain(time) for time in times]]
        )
    yield from map(encode, _living(memory))


def rows_of(memory: Memory) -> int:
    """How many lines that log has at least: those of what lives, without expired names (one line each)."""
    return len(memory.containers) + len(memory.sessions) + len(memory.keys) + len(memory.names.live)


def _living(memory: Memory) -> Iterator[Record]:
    """All that is remembered but what has ended."""
    if memory.deployment is not None:
        yield DeploymentMade(memory.deployment)
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


def _ends(sessions: list[Any], reasons: list[Any], details: list[Any], times: list[Any]) -> list[EndSession]:
    signatures = set(zip(map(type, sessions), map(type, reasons), map(type, details), map(type, times), strict=True))
    if not signatures <= _SIGNATURES_OF_ENDS:
        raise Unreadable(f"values of types {signatures - _SIGNATURES_OF_ENDS}")
    if None in times:
        times = [UNBOUNDED if time is None else time for time in times]
    return list(map(EndSession, sessions, repeat(_NOWHERE), map(_REASONS.__getitem__, reasons), details, times))


def _of_schema_1(found: dict[str, Any]) -> Record:
    shape = _SHAPES[found.pop("kind")]
    if found.keys() != set(shape.fields):
        raise Unreadable(f"fields of {shape.kind.__name__}: {sorted(found)}")
    return _record(shape, [found[name] for name in shape.fields])


@attrs.frozen
class _Shape:
    """What is known of a kind of record, looked up once: a daemon that starts reads tens of thousands of them."""

    kind: type[Any]
    fields: tuple[str, ...]
    signatures: set[tuple[type, ...]]  # the types that its values may have in JSON, together
    enums: list[tuple[int, Mapping[str, Enum]]]  # where they are, and what their values stand for
    times: list[int]  # where null is infinity


def _record(shape: _Shape, values: list[Any]) -> Record:
    signature = tuple(map(type, values))
    if signature not in shape.signatures:
        raise Unreadable(f"values of types {[one.__name__ for one in signature]} in {shape.kind.__name__}")
    for where, members in shape.enums:
        values[where] = members[values[where]]
    for where in shape.times:
        if values[where] is None:
            values[where] = UNBOUNDED
    record: Record = shape.kind(*values)
    return record


def _shape(kind: type[Any]) -> _Shape:
    fields = tuple(field.name for field in attrs.fields(kind))
    found = get_type_hints(kind)
    hints = [found[name] for name in fields]
    return _Shape(
        kind,
        fields,
        set(product(*map(_types, hints))),
        [(where, _members(hint)) for where, hint in enumerate(hints) if _is_enum(hint)],
        [where for where, hint in enumerate(hints) if hint is float],
    )


def _types(hint: Any) -> tuple[type, ...]:
    """Those that a field's values may have in JSON."""
    if _is_enum(hint):
        return (str,)
    if hint is float:
        return (float, int, type(None))
    return tuple(getattr(part, "__supertype__", part) for part in (get_args(hint) or (hint,)))


def _is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Enum)


def _members(kind: type[Enum]) -> dict[str, Enum]:
    return {member.value: member for member in kind}


_SHAPES = {kind.__name__: _shape(kind) for kind in get_args(Record)}
_REASONS = {reason.value: reason for reason in EndReason}
#: session, reason, detail, when it may be forgotten
_SIGNATURES_OF_ENDS = set(product((str,), (str,), _types(str | None), _types(float)))
