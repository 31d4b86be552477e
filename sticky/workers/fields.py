"""Fields of messages, read, for both sides: what is missing or of another kind is the other side's fault (`BadMessage`).

Values in the sense of docs/protocol.md are `values`'s; must not know which message a field is of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from sticky.core.tokens import Claims
from sticky.core.values import ContainerId, DeploymentId, EndReason, ServerName, SessionId
from sticky.isticky import Address, TCPAddress, UNIXAddress
from sticky.workers.frames import BadMessage
from sticky.workers.values import made

_Made = TypeVar("_Made")


def number_of(message: Mapping[str, Any], name: str) -> int:
    """A whole number."""
    number = message.get(name)
    if not isinstance(number, int):
        raise BadMessage(f"{name} is not a number")
    return number


def text_of(message: Mapping[str, Any], name: str) -> str:
    """A string."""
    text = message.get(name)
    if not isinstance(text, str):
        raise BadMessage(f"{name} is not a string")
    return text


def list_of(message: Mapping[str, Any], name: str) -> list[Any]:
    """A list, of whatever."""
    items = message.get(name)
    if not isinstance(items, list):
        raise BadMessage(f"{name} is not a list")
    return items


def age_of(message: Mapping[str, Any]) -> float:
    """How long ago it was, in seconds."""
    age = message.get("idle_for")
    if not isinstance(age, int | float) or not 0 <= age < float("inf"):
        raise BadMessage("a time that has not come")
    return float(age)


def value_of(kind: type[_Made], data: Any) -> _Made:
    """A value of this class."""
    try:
        return made(kind, data)
    except (ValueError, TypeError, KeyError) as problem:
        raise BadMessage(f"what is no {kind.__name__}: {problem}") from problem


def claims_of(message: Mapping[str, Any]) -> Claims:
    """Enough of a token's claims to route by: the proxy has verified the rest."""
    session, server, container = (text_of(message, name) for name in ("session", "server", "container"))
    return Claims(SessionId(session), ServerName(server), DeploymentId(""), ContainerId(container), 0, 0)


def address_of(data: Any) -> Address:
    """An address as it crosses."""
    return value_of(TCPAddress, data) if isinstance(data, dict) and "port" in data else value_of(UNIXAddress, data)


def reason_of(code: str) -> EndReason:
    """A reason as it crosses; one of another version is no more than an end."""
    try:
        return EndReason(code)
    except ValueError:
        return EndReason.UNKNOWN
