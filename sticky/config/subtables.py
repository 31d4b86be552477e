"""Tables within a table, and the kinds that only they need: sizes, numbers, mounts, a local socket. Knows no setting by name."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs

from sticky.config.kinds import Kind, Place, Refused, absolute, show
from sticky.meant import meant

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Row(Protocol):
    """What this needs of a `table.Setting`."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def default(self) -> Any: ...


@attrs.frozen
class SubTable:
    """A table of settings as the value of one. Gives a mapping of its values, without those that are None."""

    rows: Sequence[Row]
    required: object = attrs.field(repr=False)  #: the default of what must be given
    allowed: str

    def read(self, value: object, place: Place) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise Refused
        rows = {row.name: row for row in self.rows}
        values = {name: row.default for name, row in rows.items()}
        for name, raw in value.items():
            if name not in rows:
                close = meant(str(name), rows)
                hint = f"did you mean {close}?" if close else f"allowed: {', '.join(rows)}"
                raise Refused(f"{show(name)} is not a setting; {hint}")
            try:
                values[name] = rows[name].kind.read(raw, place)
            except Refused as refused:
                problem = refused.problem or f"{show(raw)} is not allowed; allowed: {rows[name].kind.allowed}"
                raise Refused(f"{name}: {problem}") from None
        for name, read in values.items():
            if read is self.required:
                raise Refused(f"{name} is missing; allowed: {rows[name].kind.allowed}")
        return {name: read for name, read in values.items() if read is not None}


@attrs.frozen
class Number:
    """A number, with or without a fraction."""

    low: float
    high: float

    @property
    def allowed(self) -> str:
        return f"a number from {self.low:g} to {self.high:g}"

    def read(self, value: object, place: Place) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Refused
        if not math.isfinite(value) or not self.low <= value <= self.high:
            raise Refused
        return float(value)


def size(text: str, place: Place) -> int:
    """Bytes, as Docker's command line takes them ("512m"), and as everybody else writes them ("512Mi"). Raises ValueError."""
    found = re.fullmatch(r"([0-9]{1,15})([kmg]?)i?b?", text.lower())
    if found is None or int(found.group(1)) == 0:
        raise ValueError(text)
    return int(found.group(1)) * _UNITS[found.group(2)]


def mount(text: str, place: Place) -> str:
    """`source:/target` or `source:/target:ro`; a source with a slash is a path, made absolute, else a volume's name."""
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if "\0" in text or not target.startswith("/") or mode not in ("", "ro", "rw"):
        raise ValueError(text)
    if "/" in source or source in (".", "..", "~"):
        source = str(absolute(source, place))
    elif re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", source) is None:
        raise ValueError(text)
    return f"{source}:{target}" + (f":{mode}" if mode else "")


def local_socket(text: str, place: Place) -> str:
    """The path of a Unix socket, made absolute; `unix://` in front of it is what Docker's own tools write."""
    path = text.removeprefix("unix://")
    if not path or "\0" in path:
        raise ValueError(text)
    return str(absolute(path, place))


def writable(text: str, place: Place) -> str:
    """A path, made absolute. Not the root: then nothing would be read-only."""
    if not text or "\0" in text or len(text.splitlines()) != 1:
        raise ValueError(text)
    path = str(absolute(text, place))
    if path == "/":
        raise ValueError(text)
    return path
