"""One table of settings read from its sources: later ones win, errors name the source. Must not know any setting."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs

from sticky.config.kinds import Place, Refused, show
from sticky.config.table import REQUIRED, Setting
from sticky.errors import ConfigError
from sticky.meant import meant


@attrs.frozen
class Layer:
    """Raw values from one source."""

    place: Place
    prefix: str  #: stands before a setting's name in errors
    raw: Mapping[str, object]

    def wrong(self, name: str, problem: str) -> ConfigError:
        spelled = name.replace("_", "-") if self.prefix == "--" else name
        return ConfigError(self.place.source, f"{self.prefix}{spelled}".rstrip("."), problem)


class Reading:
    """One table's values, read from its layers, and where each came from."""

    def __init__(self, table: Sequence[Setting], layers: Sequence[Layer]) -> None:
        rows = {setting.name: setting for setting in table}
        self._origins: dict[str, Layer] = {}
        self._first = layers[0]
        self.values: dict[str, Any] = {name: setting.default for name, setting in rows.items()}
        for layer in layers:
            for name, raw in layer.raw.items():
                if name not in rows:
                    raise layer.wrong(name, unknown(name, rows))
                self.values[name] = _read(rows[name], raw, layer)
                self._origins[name] = layer
        for name, value in self.values.items():
            if value is REQUIRED:
                raise self.wrong(name, f"is missing; allowed: {rows[name].kind.allowed}")

    def given(self, name: str) -> bool:
        """Whether any source sets it."""
        return name in self._origins

    def wrong(self, name: str, problem: str) -> ConfigError:
        """An error about this setting, naming the source that set it."""
        return self._origins.get(name, self._first).wrong(name, problem)


def unknown(name: str, known: Collection[str]) -> str:
    """The problem of a setting that does not exist."""
    close = meant(name, known)
    if close:
        return f"is not a setting; did you mean {close}?"
    return f"is not a setting; allowed: {', '.join(known)}"


def _read(setting: Setting, raw: object, layer: Layer) -> Any:
    shown = "this value" if setting.secret else show(raw)
    try:
        value = setting.kind.read(raw, layer.place)
    except Refused as refused:
        problem = refused.problem or f"{shown} is not allowed; allowed: {setting.kind.allowed}"
        raise layer.wrong(setting.name, problem) from None
    if setting.only and value not in setting.only:
        problem = f"{shown} is not supported by this version; allowed: {' or '.join(map(show, setting.only))}"
        raise layer.wrong(setting.name, problem)
    return value
