"""What one client may cost the edge: sizes, counts and times, with their defaults. No behaviour.

All times are seconds, all sizes bytes. Limits of a Server are in `site.Site`.
"""

from __future__ import annotations

import attrs

from sticky.edge.forwarding import TrustedProxies
from sticky.edge.grammar import HeadLimits


@attrs.frozen(kw_only=True)
class EdgeLimits:
    """The limits of the whole edge. Any sane head passes (16 KiB of fields, a target of 8 KiB); a flood does not."""

    heads: HeadLimits = attrs.field(factory=HeadLimits)  #: of clients' heads, and of containers'
    connections: int | None = None  #: of clients in all; None: what the limit of open files leaves
    connections_per_client: int | None = None  #: from one address; None: half of `connections`
    head_timeout: float = 20.0  #: from the first byte of a head (or from the connection) to its last
    keep_alive_timeout: float = 75.0  #: between two requests
    connect_timeout: float = 5.0  #: towards a container
    linger_timeout: float = 3.0  #: for a client that still sends what nobody reads
    close_timeout: float = 10.0  #: for the last bytes of a broken answer
    upstream_idle: float = 4.0  #: idle connections to containers; Node's and uvicorn's own limit is 5
    min_body_rate: int = 0  #: bytes a second of a body that a client has to send, averaged over 10 s; 0: no floor
    early_bytes: int = 65_536  #: kept of what a client sends before it can be passed on


@attrs.frozen(kw_only=True)
class EdgeSettings:
    """What holds for every Server of a daemon."""

    limits: EdgeLimits = attrs.field(factory=EdgeLimits)
    trusted_proxies: TrustedProxies = attrs.field(factory=TrustedProxies)  #: whose X-Forwarded-* are believed
