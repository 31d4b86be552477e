"""The configuration as the program uses it: frozen, validated, complete. Must not know defaults or sources.

Built by `sticky.config.loading`. Paths are absolute and times are seconds. What is secret is left out of every repr.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

import attrs

from sticky.core.values import Policy, ServerName


@attrs.frozen(kw_only=True)
class ProxyTokenSettings:
    """A proxy token from the file. Exactly one of `secret` and `secret_hash` is there."""

    id: str  #: "wk-…"
    secret: str | None = attrs.field(repr=False)  #: "ws-…"
    secret_hash: str | None = attrs.field(repr=False)  #: as `sticky.core.tokens` makes it
    owner: str
    servers: tuple[str, ...]  #: names, or "*" for all
    expires_at: float | None  #: Unix time
    admin: bool


@attrs.frozen(kw_only=True)
class DaemonSettings:
    """What holds for the whole daemon."""

    listen: tuple[str, ...]  #: Twisted endpoint strings
    admin: str | None  #: the same, for the admin API; None: the default's path would be too long for a socket
    admin_listen: tuple[str, ...]  #: where the admin API listens besides, for holders of a token
    admin_hosts: tuple[str, ...]  #: names by which it is known there
    state_dir: Path
    brand: str
    workers: int
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...]
    shutdown_timeout: float
    drain_timeout: float
    ephemeral: bool  #: containers die with the daemon, and nothing is kept for the next one
    access_log: str  #: "-" for standard output, "off", or an absolute path
    access_log_format: str
    max_connections: int | None
    max_connections_per_client: int | None
    max_head_size: int  #: bytes, as the next but one
    max_head_fields: int
    max_target_size: int
    head_timeout: float
    keep_alive_timeout: float
    connect_timeout: float
    min_body_rate: int  #: bytes a second; 0: no floor
    proxy_tokens: tuple[ProxyTokenSettings, ...]


@attrs.frozen(kw_only=True)
class ServerSettings:
    """One Server."""

    name: ServerName
    app: str  #: the app's name; of a Server with a command in the file its own
    hosts: tuple[str, ...]  #: lower case, no port; empty: any Host
    url: str | None  #: what clients see, without a slash at its end; None: from Host and listener
    command: tuple[str, ...]  #: with {placeholders}
    directory: Path  #: containers' working directory
    backend: str
    docker: Mapping[str, object] | None  #: what the backend "docker" takes as options
    sandbox: Mapping[str, object] | None  #: it runs function calls, with these
    isolation: Mapping[str, object] | None  #: what the backend "process" takes as options, as the next five
    memory: int | None  #: bytes
    cpu: float | None  #: processors
    pids: int | None
    rlimits: Mapping[str, int] | None
    user: str | None
    port: int | None  #: where the program listens if it ignores PORT
    ready_path: str | None  #: probed with GET; None: an open port is enough
    reports_ready: bool  #: the program says itself when its enter hooks are done
    preimport: tuple[str, ...]  #: modules that an app's class is imported after
    snapshot: bool  #: whether that, and the class's snap hooks, may be done once for all containers
    zygote: tuple[str, ...]  #: the command of what does so, and forks containers; empty: each starts from scratch
    env: Mapping[str, str] = attrs.field(repr=False)
    unauthenticated: bool
    public_names: bool
    policy: Policy
    allowed_origins: tuple[str, ...]
    half_close_timeout: float
    response_timeout: float | None
    websocket: str
    max_message_size: int  #: bytes, of a WebSocket message where they are relayed whole
    ping_interval: float  #: 0: no pings
    ping_timeout: float
    silent_timeout: float | None
    websocket_refusal: str
    ended_status: int
    third_party_frames: bool
    insecure_cookie: bool

    @property
    def sessioned(self) -> bool:
        """False: a plain Server."""
        return self.policy.sessioned


@attrs.frozen(kw_only=True)
class Settings:
    """Everything. `warnings` are lines for the operator: what is allowed but wants a second look."""

    daemon: DaemonSettings
    servers: tuple[ServerSettings, ...]
    warnings: tuple[str, ...]
