"""What a changed configuration means: which settings make a new deployment, which need a restart. Reads the table; applies nothing."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from sticky.config.settings import ServerSettings, Settings
from sticky.config.table import DAEMON, SERVER, Change
from sticky.core.values import Policy

#: Fields that are called, or are, something else in the file; the others have its names.
_KEYS = {"ready_path": "ready"}
#: What an app says of itself, and so no setting.
_OF_APPS = frozenset({"app", "reports_ready", "zygote"})
_CHANGES = {setting.name: setting.change for setting in SERVER}
_LIMITS = tuple(
    field.name for field in attrs.fields(Policy) if field.name != "single_use"
)  # which follows from `sandbox`


def what_runs(server: ServerSettings) -> tuple[tuple[str, object], ...]:
    """The settings that make a deployment, with their values: the same for the same containers. `env` holds secrets."""
    return tuple((name, value) for name, value in _values(server) if _change(name) is Change.DEPLOYMENT)


def changed(old: ServerSettings, new: ServerSettings) -> tuple[str, ...]:
    """The names of settings that differ, as the file calls them, without values."""
    before = dict(_values(old))
    return tuple(_KEYS.get(name, name) for name, value in _values(new) if before[name] != value)


def needs_restart(old: Settings, new: Settings) -> tuple[str, ...]:
    """Settings that differ and only a new daemon can take, as the file calls them."""
    return tuple(
        f"daemon.{setting.name}"
        for setting in DAEMON
        if setting.change is Change.RESTART and getattr(old.daemon, setting.name) != getattr(new.daemon, setting.name)
    )


def _values(server: ServerSettings) -> Iterator[tuple[str, object]]:
    for field in attrs.fields(ServerSettings):
        if field.name == "policy":
            yield from ((name, getattr(server.policy, name)) for name in _LIMITS)
        elif field.name != "name":
            yield field.name, getattr(server, field.name)


def _change(name: str) -> Change:
    return Change.DEPLOYMENT if name in _OF_APPS else _CHANGES[_KEYS.get(name, name)]
