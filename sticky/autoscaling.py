"""The scaling settings that an operator has changed since the last deploy: checked, applied, and kept for the next daemon.

Kept in `{state_dir}/autoscaler.json` with the deployed values that they replaced: where those differ after a restart the
definition is a new one, and holds. Must not know what the settings do, nor who asks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.logger import Logger

from sticky import errors
from sticky.config.kinds import Place, Refused, show
from sticky.config.settings import ServerSettings, Settings
from sticky.config.table import SERVER
from sticky.core.values import Policy, ServerName
from sticky.daemon import Servers
from sticky.ioperating import ScalingView

FILE: Final = "autoscaler.json"
SCALING: Final = ("min_containers", "max_containers", "buffer_containers", "scaleup_window", "scaledown_window")
_KINDS = {setting.name: setting.kind for setting in SERVER if setting.name in SCALING}


class Autoscaling:
    """See the module. `path`: None keeps nothing for a next daemon."""

    log = Logger()

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._deployed: dict[ServerName, Policy] = {}
        self._updates: dict[ServerName, dict[str, Any]] = {}

    def recall(self, settings: Settings) -> None:
        """A daemon begins with this definition: take up what an earlier one kept, as far as it still counts."""
        self._deployed = {server.name: server.policy for server in settings.servers}
        kept = self._read()
        for server in settings.servers:
            self._recall(server, kept.get(server.name))

    def policy(self, server: ServerSettings) -> Policy:
        """What a Server that is about to start goes by."""
        return attrs.evolve(server.policy, **self._updates.get(server.name, {}))

    def deployed(self, settings: Settings) -> None:
        """A definition was deployed: it holds, and the updates are over."""
        self._deployed = {server.name: server.policy for server in settings.servers}
        self._updates = {}
        try:
            self._write()
        except OSError as error:  # it would come back with the next daemon; a full disk must not stop a deploy
            self.log.error("cannot write {file}: {reason}", file=str(self._path), reason=error.strerror)

    def view(self, servers: Servers, server: str) -> ScalingView:
        """What holds now. Raises `errors.UnknownServer`."""
        name = _known(servers, server)
        policy = servers.by_name[name].fleet.policy
        values = {key: getattr(policy, key) for key in SCALING}
        return ScalingView(name, values, tuple(self._updates.get(name, {})))

    def update(self, servers: Servers, server: str, changes: Mapping[str, object]) -> ScalingView:
        """See `IOperating.scale`."""
        name = _known(servers, server)
        if not changes:
            raise errors.BadRequest(f"The body changes nothing; it may have {', '.join(SCALING)}.")
        service = servers.by_name[name]
        read = {key: _value(key, value) for key, value in changes.items()}
        policy = attrs.evolve(service.fleet.policy, **read)
        _check(policy)
        before = dict(self._updates)
        self._updates[name] = {**self._updates.get(name, {}), **read}
        try:
            self._write()
        except OSError as error:
            self._updates = before
            raise errors.StorageFailed(f"The change cannot be kept: {error.strerror}.", retry_after=1.0) from None
        service.change_policy(policy)
        self.log.info("Server {server} scales by other settings: {settings}", server=name, settings=", ".join(read))
        return self.view(servers, name)

    # --- the file

    def _recall(self, server: ServerSettings, kept: object) -> None:
        match kept:
            case {"deployed": dict(deployed), "updated": dict(updated)} if deployed == _scaling(server.policy):
                pass
            case _:
                return
        try:
            read = {key: _value(key, value) for key, value in updated.items()}
            _check(attrs.evolve(server.policy, **read))
        except errors.BadRequest as problem:
            self.log.warn("{file} is passed over: {problem}", file=str(self._path), problem=problem.message)
        else:
            self._updates[server.name] = read

    def _read(self) -> Mapping[str, object]:
        if self._path is None:
            return {}
        try:
            kept = json.loads(self._path.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            self.log.warn("{file} cannot be read and is passed over", file=str(self._path))
            return {}
        return kept if isinstance(kept, dict) else {}

    def _write(self) -> None:
        if self._path is None:
            return
        if not self._updates:
            self._path.unlink(missing_ok=True)
            return
        kept = {
            name: {"deployed": _scaling(self._deployed[name]), "updated": updated}
            for name, updated in self._updates.items()
        }
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(kept), "utf-8")
        os.replace(fresh, self._path)


def _scaling(policy: Policy) -> dict[str, Any]:
    return {key: getattr(policy, key) for key in SCALING}


def _known(servers: Servers, server: str) -> ServerName:
    name = ServerName(server)
    if name not in servers.by_name:
        raise errors.UnknownServer(f"There is no Server {server!r}; there are: {', '.join(sorted(servers.by_name))}.")
    return name


def _value(key: str, value: object) -> Any:
    if key not in _KINDS:
        raise errors.BadRequest(f"{show(key)} is not a setting of the autoscaler; there are: {', '.join(SCALING)}.")
    try:
        return _KINDS[key].read(value, Place("request", Path()))
    except Refused:
        raise errors.BadRequest(f"{key} = {show(value)} is not allowed; allowed: {_KINDS[key].allowed}.") from None


def _check(policy: Policy) -> None:
    for low, high, limit in (
        ("min_containers", "max_containers", policy.max_containers),
        ("buffer_containers", "max_containers", policy.max_containers),
        ("max_containers", "max_total_containers", policy.total),
    ):
        if getattr(policy, low) > limit:
            raise errors.BadRequest(f"{low} = {getattr(policy, low)} is above {high}, which is {limit}.")
