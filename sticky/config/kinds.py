"""What values a setting may have: each kind reads a raw value and refuses what is wrong. Knows no setting by name.

A raw value comes from a person, by TOML or Python. `read` either returns the value that the program uses or raises
`Refused`: nothing is repaired silently, and a bool is never a number.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

import attrs

LONGEST_SECRET = 64 * 1024  #: bytes of a file with a secret: an environment takes 128 KiB a variable (execve(2))


class Refused(Exception):
    """A raw value is wrong. `problem` says why; None where the kind's `allowed` says it all."""

    def __init__(self, problem: str | None = None) -> None:
        self.problem = problem
        super().__init__(problem or "not allowed")


@attrs.frozen
class Place:
    """Where a value was written, as far as its meaning depends on that."""

    source: str  #: how errors name it: a file, or "command line"
    base: Path  #: relative paths are relative to this folder
    environ: Mapping[str, str] = attrs.field(repr=False, factory=dict)  #: for values written as "env:NAME"


class Kind(Protocol):
    """One kind of value."""

    @property
    def allowed(self) -> str:
        """What is allowed, to stand after "allowed:" in an error and in the documentation."""

    def read(self, value: object, place: Place) -> Any:
        """The value for the program. Raises `Refused`."""


def show(value: object) -> str:
    """A raw value as its author would write it in TOML: on one line and not too long."""
    match value:
        case bool():
            text = "true" if value else "false"
        case str():
            text = json.dumps(value, ensure_ascii=False)
        case datetime() | date() | time():
            text = value.isoformat()
        case list() | tuple():
            text = f"[{', '.join(map(show, value))}]"
        case dict():
            text = (
                "{ " + ", ".join(f"{_key(key)} = {show(item)}" for key, item in value.items()) + " }" if value else "{}"
            )
        case _:
            text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _key(key: object) -> str:
    return key if isinstance(key, str) and re.fullmatch(r"[A-Za-z0-9_-]+", key) else show(key)


@attrs.frozen
class Whole:
    """A whole number."""

    low: int
    high: int

    @property
    def allowed(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def read(self, value: object, place: Place) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            raise Refused
        return value


@attrs.frozen
class Seconds:
    """A duration, with or without a fraction."""

    low: float
    high: float

    @property
    def allowed(self) -> str:
        return f"seconds from {self.low:.12g} to {self.high:.12g}"

    def read(self, value: object, place: Place) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Refused
        if not math.isfinite(value) or not self.low <= value <= self.high:
            raise Refused
        return float(value)


@attrs.frozen
class Flag:
    """Yes or no."""

    @property
    def allowed(self) -> str:
        return "true or false"

    def read(self, value: object, place: Place) -> bool:
        if not isinstance(value, bool):
            raise Refused
        return value


@attrs.frozen
class Text:
    """A text of a certain form."""

    pattern: str
    allowed: str

    def read(self, value: object, place: Place) -> str:
        if not isinstance(value, str) or re.fullmatch(self.pattern, value) is None:
            raise Refused
        return value


@attrs.frozen
class OneOf:
    """One of a few values: texts, whole numbers, or the members of an Enum by their value."""

    choices: tuple[object, ...]

    @property
    def allowed(self) -> str:
        return " or ".join(show(_plain(choice)) for choice in self.choices)

    def read(self, value: object, place: Place) -> object:
        for choice in self.choices:
            plain = _plain(choice)
            if type(plain) is type(value) and plain == value:
                return choice
        raise Refused


def _plain(choice: object) -> object:
    return choice.value if isinstance(choice, Enum) else choice


@attrs.frozen
class ManyOf:
    """A list of values of one kind, kept in order as a tuple. What occurs twice is refused."""

    kind: Kind
    at_least: int = 0

    @property
    def allowed(self) -> str:
        return f"a list{' (not empty)' if self.at_least else ''}; each item: {self.kind.allowed}"

    def read(self, value: object, place: Place) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) < self.at_least:
            raise Refused
        seen: list[Any] = []
        for item in value:
            try:
                read = self.kind.read(item, place)
            except Refused as refused:
                raise Refused(refused.problem or f"{show(item)} is not allowed; allowed: {self.kind.allowed}") from None
            if read in seen:
                raise Refused(f"{show(item)} stands there twice")
            seen.append(read)
        return tuple(seen)


@attrs.frozen
class Parsed:
    """A text that a function reads: `parse(text, place)` raises `Refused`, or ValueError if `allowed` says it all."""

    parse: Callable[[str, Place], Any]
    allowed: str

    def read(self, value: object, place: Place) -> Any:
        if not isinstance(value, str):
            raise Refused
        try:
            return self.parse(value, place)
        except ValueError:
            raise Refused from None


@attrs.frozen
class FilePath:
    """A path, made absolute; `~` is the home folder."""

    @property
    def allowed(self) -> str:
        return "a path (relative to the file that names it; on the command line to the working directory)"

    def read(self, value: object, place: Place) -> Path:
        if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
            raise Refused
        try:
            return absolute(str(value), place)
        except ValueError as error:
            raise Refused(str(error)) from None


def absolute(path: str, place: Place) -> Path:
    """The path that is meant where it was written. Raises ValueError for the home of a user whom nobody knows."""
    try:
        return Path(str(place.base / Path(path).expanduser())).absolute()
    except RuntimeError:  # pathlib's word for it
        raise ValueError(f"{show(path)} is in the home folder of an unknown user") from None


@attrs.frozen
class Arguments:
    """A program and its arguments. `check` looks at each argument and raises `Refused`."""

    check: Callable[[str], object]
    allowed: str

    def read(self, value: object, place: Place) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or not value:
            raise Refused
        for argument in value:
            if not isinstance(argument, str) or "\0" in argument:
                raise Refused
            self.check(argument)
        if not value[0]:
            raise Refused
        return tuple(value)


@attrs.frozen
class Variables:
    """Environment variables. `reserved` are those that the program sets itself."""

    reserved: Sequence[str] = ()

    @property
    def allowed(self) -> str:
        return 'a table of texts such as { LEVEL = "1" }'

    def read(self, value: object, place: Place) -> Mapping[str, str]:
        if not isinstance(value, Mapping):
            raise Refused
        for name, text in value.items():
            # The values are not repeated: this is where people put passwords.
            if not isinstance(name, str) or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None:
                raise Refused(f"{show(name)} is not a variable's name; allowed: letters, digits and _")
            if name in self.reserved:
                raise Refused(f"{name} is set by Sticky itself; allowed: any other name")
            if not isinstance(text, str) or "\0" in text:
                raise Refused(f"the value of {name} is not a text; allowed: {self.allowed}")
        return dict(value)


@attrs.frozen
class Secrets:
    """Environment variables whose values come from the daemon's own, NAME -> "env:OTHER", or from files, "file:PATH"."""

    reserved: Sequence[str] = ()

    @property
    def allowed(self) -> str:
        return (
            'a table such as { API_KEY = "env:API_KEY", DB = "file:/run/secrets/db" }:'
            " variables of the daemon's environment, and files"
        )

    def read(self, value: object, place: Place) -> Mapping[str, str]:
        references = Variables(self.reserved).read(value, place)
        secrets = {}
        for name, reference in references.items():
            source, _, where = reference.partition(":")
            if source not in ("env", "file") or not where:
                raise Refused(f"the value of {name} (not shown) is not a reference; allowed: {self.allowed}")
            secrets[name] = _of_environment(name, where, place) if source == "env" else _of_file(name, where, place)
        return secrets


def _of_environment(name: str, variable: str, place: Place) -> str:
    if variable not in place.environ:
        raise Refused(f"the environment variable {show(variable)} for {name} is not set")
    return place.environ[variable]


def _of_file(name: str, path: str, place: Place) -> str:
    """A file's text, without a line's end at its end: editors and `echo` leave one."""
    try:
        with open(place.base / path, "rb") as file:
            text = file.read(LONGEST_SECRET + 1).decode("utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Refused(f"the file {show(path)} for {name} cannot be read: {reason}") from None
    if len(text) > LONGEST_SECRET or "\0" in text:
        raise Refused(f"the file {show(path)} for {name} is longer than {LONGEST_SECRET} bytes, or holds a zero byte")
    return text.removesuffix("\n").removesuffix("\r")


@attrs.frozen
class Readiness:
    """When a container counts as ready: None for its open port, else the path that is probed."""

    @property
    def allowed(self) -> str:
        return '"port" or { path = "/..." }'

    def read(self, value: object, place: Place) -> str | None:
        if value == "port":
            return None
        match value:
            case {"path": str(path), **others} if not others and re.fullmatch(r"/[\x21-\x7e]*", path):
                return path
        raise Refused


@attrs.frozen
class Moment:
    """A point in time, as Unix seconds."""

    @property
    def allowed(self) -> str:
        return "a time with its offset such as 2030-01-31T12:00:00Z, or Unix seconds"

    def read(self, value: object, place: Place) -> float:
        if isinstance(value, datetime) and value.tzinfo is not None:
            return value.timestamp()
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            raise Refused
        return float(value)
