"""What an app says about its Servers: frozen, complete, and the same after a round trip through JSON.

Owns the document that crosses from the child that imports user code to whoever asks. Must not know user classes, defaults,
or how a Server is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import attrs

from sticky.sdk.exception import InvalidError

SCHEMA = 1  #: raised when a reader of the old document would misread a new one


def _frozen(value: Mapping[str, object]) -> Mapping[str, object]:
    return MappingProxyType(dict(value))


@attrs.frozen(kw_only=True)
class ServerDeclaration:
    """One Server. Times are seconds."""

    name: str
    port: int | None  #: where its program listens if it ignores PORT; None: it takes PORT for sure
    sessioned: bool
    command: tuple[str, ...] | None = None  #: instead of enter hooks
    python: str | None = None  #: another virtual environment's interpreter
    snap: bool = False  #: some of its enter hooks run once for all containers
    #: keys as in config.md, only what the app sets itself; values are JSON values
    settings: Mapping[str, object] = attrs.field(factory=dict, converter=_frozen)

    def document(self) -> dict[str, object]:
        """As JSON values."""
        return {
            "name": self.name,
            "port": self.port,
            "sessioned": self.sessioned,
            "command": None if self.command is None else list(self.command),
            "python": self.python,
            "snap": self.snap,
            "settings": dict(self.settings),
        }


@attrs.frozen(kw_only=True)
class AppDeclaration:
    """An app: its Servers in the order of declaration, and the names of its local entrypoints."""

    name: str
    servers: tuple[ServerDeclaration, ...]
    entrypoints: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        """As JSON values, with the schema's version."""
        return {
            "schema": SCHEMA,
            "app": self.name,
            "servers": [server.document() for server in self.servers],
            "entrypoints": list(self.entrypoints),
        }

    @classmethod
    def from_document(cls, document: object) -> AppDeclaration:
        """The inverse of `document`. Raises `InvalidError` for anything else, and for another schema version."""
        fields = _mapping(document, "the declaration")
        schema = fields.get("schema")
        if schema != SCHEMA:
            raise InvalidError(
                f"the declaration has schema {schema!r} and this Sticky reads {SCHEMA}:"
                " install the same version of sticky in both Python environments"
            )
        return cls(
            name=_string(fields, "app"),
            servers=tuple(_server(entry) for entry in _items(fields, "servers")),
            entrypoints=_strings(fields, "entrypoints"),
        )


def _server(document: object) -> ServerDeclaration:
    fields = _mapping(document, "a Server")
    port = fields.get("port")
    if port is not None and type(port) is not int:
        raise InvalidError("the declaration is malformed: port is not a number")
    sessioned = fields.get("sessioned")
    if type(sessioned) is not bool:
        raise InvalidError("the declaration is malformed: sessioned is not true or false")
    return ServerDeclaration(
        name=_string(fields, "name"),
        port=port,
        sessioned=sessioned,
        command=None if fields.get("command") is None else _strings(fields, "command"),
        python=None if fields.get("python") is None else _string(fields, "python"),
        snap=fields.get("snap") is True,
        settings=_mapping(fields.get("settings"), "settings"),
    )


def _mapping(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidError(f"the declaration is malformed: {what} is not an object")
    return value


def _string(fields: Mapping[str, object], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise InvalidError(f"the declaration is malformed: {key} is not a string")
    return value


def _items(fields: Mapping[str, object], key: str) -> Sequence[object]:
    value = fields.get(key)
    if not isinstance(value, list | tuple):
        raise InvalidError(f"the declaration is malformed: {key} is not a list")
    return value


def _strings(fields: Mapping[str, object], key: str) -> tuple[str, ...]:
    values = tuple(item for item in _items(fields, key) if isinstance(item, str))
    if len(values) != len(_items(fields, key)):
        raise InvalidError(f"the declaration is malformed: {key} is not a list of strings")
    return values
